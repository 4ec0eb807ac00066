"""Results of `dpprof fit`: the largest batch or sequence of each trainer, and what limits it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpprof.config.entry_points import WORLD_SIZE, FitConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.findings.closeness import (
    PREDICTED_DOUBT,
    all_known,
    elsewhere,
    too_close,
)
from dpprof.findings.comparison.models import distinct_names, identity
from dpprof.findings.launch_bound import PredictedStep, launch_bound
from dpprof.findings.sentences import say
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.capacity import capacity_bytes, round_batch
from dpprof.record.figures.cost import StepCost
from dpprof.record.figures.ledger import UNTRACKED
from dpprof.record.figures.names import TOKENS
from dpprof.record.figures.results import FINISHED, Result, describe, device_name
from dpprof.vocabulary.formats import fixed
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.precision import precision_in_words
from dpprof.vocabulary.trainers import trainer_info
from dpprof.vocabulary.units import GIB, MIB, ms

_NOT_SEARCHED = "not searched"
SIZES = {"batch_size": "batch", "seq_len": "sequence", WORLD_SIZE: "ranks"}


@dataclass(frozen=True)
class Answer:
    """Result for one trainer under one set of settings.

    `size` is the largest that fits, or the fewest ranks (0: none), and `best` its estimate. `suffix` is
    appended to its run's usual name. `is_open` means that the search stopped at `size`, though larger ones
    may fit. `without_headroom` is the size that should fit in all of the memory. `weights_dtype` are the
    types of the model's weights in words, empty if it was not built.
    """

    config: ExperimentConfig
    along: str
    suffix: str
    size: int
    num_evaluations: int
    best: Result | None = None
    verified: tuple[Result, ...] = ()
    failure: Result | None = None
    is_open: bool = False
    without_headroom: int | None = None
    weights_dtype: str = ""

    @property
    def sizes_to_verify(self) -> tuple[int, ...]:
        """The answer, and the next larger size if that is known not to fit."""
        return (self.size,) if self.is_open else (self.size, self.size + 1)


def gib_words(value: float | None) -> str:
    """Format a size in GiB; small sizes get more digits."""
    return "" if value is None else fixed(value, 2 if value >= 1 else 4)


def expected_batch(largest: int, tail: float) -> float:
    """Return the expected Poisson-sampled batch that exceeds `largest` in at most a share `tail` of steps.

    With Poisson distributed batches (the limit of the binomial for small sampling rates), P(batch > k) is P(k
    + 1, mean), the regularised lower incomplete gamma function.
    """
    from scipy.special import gammaincinv

    return float(gammaincinv(largest + 1, tail))


def rows(answers: Sequence[Answer], fit: FitConfig) -> list[dict[str, Any]]:
    """Return one row of plain values for each answer; None where nothing is known."""
    names = distinct_names(answer.config for answer in answers)
    return [_row(answer, fit, names[identity(answer.config)]) for answer in answers]


def _row(answer: Answer, fit: FitConfig, model: str) -> dict[str, Any]:
    config, best = answer.config, answer.best
    figures = best.figures if best else None
    estimate = figures.estimate if figures else None
    ledger = best.record.ledger if best is not None and best.record is not None else None
    at_peak = figures.ledger.all_at_peak_mib if figures and figures.ledger else {}
    held = {category: mib for category, mib in at_peak.items() if category != UNTRACKED}
    row: dict[str, Any] = {
        "model": model,
        "precision": config.precision,
        "weights_dtype": answer.weights_dtype,
        **{given: getattr(config, given) for given in given_sizes(config, answer.along)},
        "trainer": config.trainer,
        found_name(fit): None if answer.failure else answer.size,
        "is_at_least": answer.is_open,
        "headroom_pct": 100 * (1 - fit.usable),
        "without_headroom": answer.without_headroom,
        "needed_gib": estimate.needed_mib / 1024 if estimate else None,
        "doubt_gib": estimate.doubt_mib / 1024 if estimate and estimate.doubt_mib is not None else None,
        "limiting_phase": None if answer.is_open or ledger is None else ledger.peak_phase,
        "limiting_category": None if answer.is_open else max(held, key=lambda name: held[name], default=None),
        "evaluations": answer.num_evaluations,
        "failure": describe(answer.failure) if answer.failure else None,
    }
    if answer.along == "batch_size":
        row["round_batch_size"] = round_batch(answer.size)
        is_asked = answer.size and trainer_info(config.trainer).is_private and not config.poisson_sampling
        row["expected_batch"] = (
            expected_batch(answer.size, config.estimating.poisson_tail) if is_asked else None
        )
        at_once = answer.size * config.world_size
        samples = fit.logical_batch or at_once
        time = None
        if best is not None and best.estimated is not None and at_once:
            step = StepCost.of([best.estimated])
            batch = best.config.estimated_batch
            time = step.logical(batch, samples / (batch * config.world_size)).time
        names = ("ms_per_sample", "least_ms_per_sample", "most_ms_per_sample")
        each = [None] * 3 if time is None else [ms(seconds) / samples for seconds in time]
        row |= dict(zip(names, each, strict=True))
        if fit.logical_batch:
            row["physical_steps"] = math.ceil(fit.logical_batch / at_once) if at_once else None
            row |= {f"logical_{name}": s for name, s in time._asdict().items()} if time else {}
    if fit.verify:
        row |= _measured(answer, fit)
    return row


def _measured(answer: Answer, fit: FitConfig) -> dict[str, Any]:
    """Return the measured columns; `confirmed` if `size` fits and, where known, no larger size does."""
    if not answer.verified:
        return dict.fromkeys(("tokens_per_s", "measured_gib", "next_size", "confirmed"))
    capacity = capacity_bytes(answer.best.config) if answer.best else None
    limit = None if capacity is None else capacity * fit.usable
    found = [result.figures if result.status == FINISHED else None for result in answer.verified]
    peaks = [figures.peak_mib if figures else None for figures in found]
    estimated = answer.best.figures.estimate if answer.best and answer.best.figures else None
    beside = estimated.added_mib.get("cuda_context", 0.0) if estimated else 0.0  # no allocator reports it
    fits = [peak is not None and limit is not None and (peak + beside) * MIB <= limit for peak in peaks]
    following = _NOT_SEARCHED if answer.is_open else describe(answer.verified[1])
    if not answer.is_open and peaks[1] is not None:
        following = f"{gib_words((peaks[1] + beside) / 1024)} GiB"
    return {
        "tokens_per_s": answer.verified[0].metrics.get(TOKENS) if found[0] else None,
        "measured_gib": None if peaks[0] is None else (peaks[0] + beside) / 1024,
        "next_size": following,
        "confirmed": fits[0] if estimated and estimated.doubt_mib else fits == [True, False][: len(fits)],
    }


def size_name(config: ExperimentConfig, fit: FitConfig) -> str:
    """Name the size searched for; with Poisson sampling, a batch size is the expected one."""
    is_expected = config.poisson_sampling and fit.along == "batch_size"
    return "expected batch" if is_expected else SIZES[fit.along]


def given_sizes(config: ExperimentConfig, along: str) -> list[str]:
    """Return the names of the sizes that are fixed."""
    sizes = ["seq_len", "batch_size", *([] if config.parallel == NONE else [WORLD_SIZE])]
    return [name for name in sizes if name != along]


def found_name(fit: FitConfig) -> str:
    """Return the answer's key in the JSON file."""
    return f"{'fewest' if fit.along == WORLD_SIZE else 'largest'}_{fit.along}"


def has(found: Sequence[dict[str, Any]], name: str) -> bool:
    """Return True if any row has a value for `name`."""
    return any(row.get(name) is not None for row in found)


def answer_of(config: ExperimentConfig, fit: FitConfig, found: Sequence[dict[str, Any]]) -> str:
    """Say what the table's sizes are, and of which training."""
    open_ones = [row["is_at_least"] for row in found if not row["failure"]]
    headroom = f" with {fit.headroom} of its memory free" if fit.usable < 1 else ""
    kind = "fit.largest_tried" if open_ones and all(open_ones) else "fit.largest"
    largest = say(
        "fit.fewest_ranks" if fit.along == WORLD_SIZE else kind,
        size=size_name(config, fit),
        device=f"{device_name(config)}{headroom}",
        ranks="" if config.world_size == 1 else f" on each of {config.world_size} ranks",
    )
    is_checkpointed = config.activation_checkpointing
    kind = "fit.optimizer_checkpointed" if is_checkpointed else "fit.optimizer"
    return f"{largest} {say(kind, optimizer=config.optimizer)}"


def limit_in_words(config: ExperimentConfig, fit: FitConfig) -> str:
    """Say how much memory a size may need, `37.43 GiB: A100-40GB (39.4 GiB) less 5%`. A device is given."""
    capacity = capacity_bytes(config)
    assert capacity is not None, "checked before"
    values = {"gib": gib_words(capacity * fit.usable / GIB), "device": device_name(config)}
    return say("fit.limit_less" if fit.usable < 1 else "fit.limit", headroom=fit.headroom, **values)


def precision_of(row: dict[str, Any]) -> str:
    """Describe a row's precision, with the type of the weights."""
    return precision_in_words(row["precision"], row["weights_dtype"])


def first_choices(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Name the private trainer to start with, for each model, precision and sequence."""
    timed = [row for row in found if row.get("ms_per_sample") and trainer_info(row["trainer"]).is_private]
    places = grouped(timed, by=lambda row: (row["model"], precision_of(row), row.get("seq_len")))
    for (model, precision, seq_len), rows in places.items():
        close = too_close(rows, lambda row: float(row["ms_per_sample"]))
        best = min(close, key=lambda row: elsewhere(row["trainer"]))
        where = f" ({model}, {precision}, sequence {seq_len:,})" if len(places) > 1 else ""
        trainers = [row["trainer"] for row in close]
        of = {"trainer": best["trainer"], "where": where, "trainers": trainers, "number": len(rows)}
        if len(close) > 1:
            kind = "fit.start_close_known" if all_known(trainers) else "fit.start_close"
            yield say(kind, pct=100 * PREDICTED_DOUBT, **of)
        elif len(rows) > 1:
            yield say("fit.start", **of)


def waits(answers: Sequence[Answer]) -> Finding | None:
    """Say which answers' steps are launch-bound; None if none is. No larger batch is known to fit."""
    known = [(answer.config, answer.best.step) for answer in answers if answer.best is not None]
    sizes = "at batch {0.batch_size:,}, sequence {0.seq_len:,}"
    return launch_bound(
        [PredictedStep(one, step, f" {sizes.format(one)}") for one, step in known if step is not None]
    )


def explained(config: ExperimentConfig, fit: FitConfig, found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Explain the table, a sentence or two at a time."""
    tail, name = config.estimating.poisson_tail, found_name(fit)
    is_open = any(row["is_at_least"] for row in found if not row["failure"])
    is_rounded = any(row.get("round_batch_size") not in (None, row[name] or 0) for row in found)
    of_batches = fit.along == "batch_size"
    is_timed = has(found, "ms_per_sample")
    is_untimed = of_batches and not is_timed and any(row[name] for row in found)
    yield say("fit.headroom" if fit.usable < 1 else "fit.no_headroom")
    for kind, is_said in (
        ("fit.without_headroom", has(found, "without_headroom")),
        ("fit.or_more", is_open),
        ("fit.poisson", config.poisson_sampling),
        ("fit.expected_batch", of_batches and not config.poisson_sampling),
        ("fit.round", is_rounded),
        ("fit.logical", bool(fit.logical_batch)),
        ("fit.times", is_timed),
        ("fit.no_times", is_untimed),
        ("fit.measured", fit.verify),
        ("fit.doubts", has(found, "doubt_gib")),
    ):
        if is_said:
            yield say(kind, size=size_name(config, fit), tail=tail, batch=fit.logical_batch)
