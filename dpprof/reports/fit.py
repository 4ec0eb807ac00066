"""What a fit found, as tables: the largest batch or sequence of each trainer, and what limits it."""

import math
from dataclasses import dataclass
from typing import Any

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.fit import WORLD_SIZE, FitConfig
from dpprof.figures.capacity import capacity_bytes, logical_floor_s
from dpprof.figures.figures import Figures
from dpprof.figures.ledger import UNTRACKED
from dpprof.figures.results import FINISHED, Result, describe, device_name
from dpprof.reports.colors import words
from dpprof.reports.comparison.models import distinct_names, identity
from dpprof.reports.markdown_table import markdown_table
from dpprof.vocabulary.formats import fixed, number
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.trainers import trainer_info
from dpprof.vocabulary.units import MIB

_NOT_SEARCHED = "not searched"
_IN_DOUBT = (
    " What an estimate cannot follow is in doubt, and counts as needed: each answer fits even with that, and "
    "a larger one may fit too."
)
_SHOWN = {"batch_size": "batch", "seq_len": "sequence", WORLD_SIZE: "ranks"}


@dataclass(frozen=True)
class Answer:
    """What was found for one trainer under one set of settings.

    `size` is the largest that fits (0: none), `best` its estimate; `suffix` is what its run's name has beyond
    the usual. `verified` are measured runs of `sizes_to_verify`, where asked for. `failure` says why there is
    no answer. `is_open` says that the search went no further than `size`, though larger ones may fit.
    `without_headroom` is the size that should fit all of the memory, if that is known.
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

    @property
    def sizes_to_verify(self) -> tuple[int, ...]:
        """The answer, and the next larger size if that is known not to fit."""
        return (self.size,) if self.is_open else (self.size, self.size + 1)


def expected_batch(largest: int, tail: float) -> float:
    """The expected batch of Poisson sampling that exceeds `largest` in no more than a share `tail` of steps.

    The batch is taken as Poisson distributed (the limit of the binomial for small sampling rates):
    P(batch > k) = P(k + 1, mean), the regularised lower incomplete gamma function.
    """
    from scipy.special import gammaincinv

    return float(gammaincinv(largest + 1, tail))


def rows(answers: list[Answer], fit: FitConfig) -> list[dict[str, Any]]:
    """One row of plain values for each answer; None where there is nothing to tell."""
    names = distinct_names(answer.config for answer in answers)
    return [_row(answer, fit, names[identity(answer.config)]) for answer in answers]


def _row(answer: Answer, fit: FitConfig, model: str) -> dict[str, Any]:
    config, best = answer.config, answer.best
    figures = best.figures if best else None
    estimate = figures.estimate if figures else None
    row: dict[str, Any] = {
        "model": model,
        "precision": config.precision,
        **{given: getattr(config, given) for given in _given(config, answer.along)},
        "trainer": config.trainer,
        _found_name(fit): None if answer.failure else answer.size,
        "is_at_least": answer.is_open,
        "headroom_pct": 100 * (1 - fit.usable),
        "without_headroom": answer.without_headroom,
        "needed_gib": estimate.needed_mib / 1024 if estimate else None,
        "doubt_gib": estimate.doubt_mib / 1024 if estimate and estimate.doubt_mib is not None else None,
        "limiting_phase": None if answer.is_open else _peak_phase(best),
        "limiting_category": None if answer.is_open else _largest_category(figures),
        "evaluations": answer.num_evaluations,
        "failure": describe(answer.failure) if answer.failure else None,
    }
    if answer.along == "batch_size":
        is_asked = answer.size and trainer_info(config.trainer).is_private and not config.poisson_sampling
        row["expected_batch"] = (
            expected_batch(answer.size, config.estimating.poisson_tail) if is_asked else None
        )
        if fit.logical_batch:
            at_once = answer.size * config.world_size
            row["physical_steps"] = math.ceil(fit.logical_batch / at_once) if at_once else None
            row["logical_floor_s"] = _logical_floor_s(best, fit)
    if fit.verify:
        row |= _measured(answer, fit)
    return row


def _peak_phase(best: Result | None) -> str | None:
    ledger = best.record.ledger if best is not None and best.record is not None else None
    return ledger.peak_phase if ledger is not None else None


def _largest_category(figures: Figures | None) -> str | None:
    held = figures.ledger.all_at_peak_mib if figures and figures.ledger else {}
    held.pop(UNTRACKED, None)
    return max(held, key=lambda name: held[name], default=None)


def _logical_floor_s(best: Result | None, fit: FitConfig) -> float | None:
    ledger = best.record.ledger if best is not None and best.record is not None else None
    return None if best is None or ledger is None else logical_floor_s(best.config, ledger, fit.logical_batch)


def _measured(answer: Answer, fit: FitConfig) -> dict[str, Any]:
    """What the runs of the answer and of the next size say. Confirmed: the one leaves the headroom free,
    the other does not; of an open answer, or with something in doubt, that the one does.
    """
    if not answer.verified:
        return dict.fromkeys(("tokens_per_s", "measured_gib", "next_size", "confirmed"))
    capacity = capacity_bytes(answer.best.config) if answer.best else None
    limit = None if capacity is None else capacity * fit.usable
    found = [result.figures if result.status == FINISHED else None for result in answer.verified]
    peaks = [figures.memory.peak_allocated_mib if figures else None for figures in found]
    estimated = answer.best.figures.estimate if answer.best and answer.best.figures else None
    beside = estimated.added_mib.get("cuda_context", 0.0) if estimated else 0.0  # no allocator reports it
    fits = [peak is not None and limit is not None and (peak + beside) * MIB <= limit for peak in peaks]
    step = found[0].step if found[0] else None
    following = _NOT_SEARCHED if answer.is_open else describe(answer.verified[1])
    if not answer.is_open and peaks[1] is not None:
        following = f"{_gib((peaks[1] + beside) / 1024)} GiB"
    return {
        "tokens_per_s": step.tokens_per_s if step else None,
        "measured_gib": None if peaks[0] is None else (peaks[0] + beside) / 1024,
        "next_size": following,
        "confirmed": fits[0] if estimated and estimated.doubt_mib else fits == [True, False][: len(fits)],
    }


def to_markdown(name: str, answers: list[Answer], fit: FitConfig) -> str:
    """The table, what stands behind it, and why some rows have no answer."""
    found = rows(answers, fit)
    first = answers[0].config
    size = _size_name(first, fit)
    given = _given(first, fit.along)
    wanted = f"{'fewest' if fit.along == WORLD_SIZE else 'largest'} {size}"
    header = ["model", "precision", *(_SHOWN[name] for name in given)]
    header += ["trainer", "limited by", wanted, "needs GiB"]
    if _has(found, "without_headroom"):
        header.append("without headroom")
    if _has(found, "doubt_gib"):
        header.append("in doubt GiB")
    if fit.along == "batch_size" and not first.poisson_sampling:
        header.append("expected batch")
    if fit.logical_batch:
        header.append(f"steps for {fit.logical_batch:,}")
    if _has(found, "logical_floor_s"):
        header.append("floor [s]")
    if fit.verify:
        header += ["tokens/s", "measured GiB", f"next {size}", "confirmed"]
    table = markdown_table(header, [_shown(row, fit, given, header) for row in found], right=4 + len(given))
    explained = _explained(first, fit, found) + (_IN_DOUBT if _has(found, "doubt_gib") else "")
    return "\n".join([f"# {name}\n", f"{explained}\n", table, *_failures(found)])


def _has(found: list[dict[str, Any]], name: str) -> bool:
    return any(row.get(name) is not None for row in found)


def _size_name(config: ExperimentConfig, fit: FitConfig) -> str:
    """What is searched for; under Poisson sampling a batch size is the expected one."""
    is_expected = config.poisson_sampling and fit.along == "batch_size"
    return "expected batch" if is_expected else _SHOWN[fit.along]


def _given(config: ExperimentConfig, along: str) -> list[str]:
    """The sizes that are fixed."""
    sizes = ["seq_len", "batch_size", *([] if config.parallel == NONE else [WORLD_SIZE])]
    return [name for name in sizes if name != along]


def _found_name(fit: FitConfig) -> str:
    """What the answer is called in the JSON file."""
    return f"{'fewest' if fit.along == WORLD_SIZE else 'largest'}_{fit.along}"


def _shown(row: dict[str, Any], fit: FitConfig, given: list[str], header: list[str]) -> list[str]:
    size = row[_found_name(fit)]
    more = " or more (not searched further)" if row["is_at_least"] else ""
    limited = f"{words(row['limiting_category'])} in {row['limiting_phase']}" if row["limiting_phase"] else ""
    cells = [row["model"], row["precision"], *(f"{row[name]:,}" for name in given), row["trainer"]]
    cells += [limited, "failed" if size is None else "none fits" if size == 0 else f"{size:,}{more}"]
    cells += [_gib(row["needed_gib"])]
    if "without headroom" in header:
        without = row["without_headroom"]
        cells.append("" if without is None else f"{without:,}")
    if "in doubt GiB" in header:
        cells.append(_gib(row["doubt_gib"]))
    if "expected batch" in header:
        expected = row["expected_batch"]
        cells.append("" if expected is None else number(expected) + (" or more" if more else ""))
    if fit.logical_batch:
        steps = row["physical_steps"]
        fewer = " or fewer" if more and steps and steps > 1 else ""
        cells.append("" if steps is None else f"{steps:,}{fewer}")
    if "floor [s]" in header:
        cells.append(number(row["logical_floor_s"]))
    if fit.verify:
        confirmed = {True: "yes", False: "NO", None: ""}[row["confirmed"]]
        cells += [number(row["tokens_per_s"]), _gib(row["measured_gib"]), row["next_size"] or "", confirmed]
    return cells


def _gib(value: float | None) -> str:
    if value is None:
        return ""
    return fixed(value, 2 if value >= 1 else 4)


def _explained(config: ExperimentConfig, fit: FitConfig, found: list[dict[str, Any]]) -> str:
    size, tail = _size_name(config, fit), config.estimating.poisson_tail
    open_ones = [row["is_at_least"] for row in found if not row["failure"]]
    is_all_open = bool(open_ones) and all(open_ones)
    tried = "Both were" if not is_all_open else "It was"
    larger = "" if is_all_open else "; the next larger one does not"
    device = f"{device_name(config)}{_headroom_words(fit)}"
    if fit.along == WORLD_SIZE:
        text = (
            f"The fewest ranks whose training step fits {device}, one on each device; with one fewer it does "
            f"not. The model lies in shards. {tried} estimated on fake tensors."
        )
    else:
        ranks = "" if config.world_size == 1 else f" on each of {config.world_size} ranks"
        text = (
            f"The largest {size} whose training step fits {device}{ranks}{larger}. {tried} estimated on fake "
            "tensors."
        )
    kept_for = "fragmentation, other processes, and what an estimate does not include."
    text += f" {'The headroom is' if fit.usable < 1 else 'No headroom is left'} for {kept_for}"
    if _has(found, "without_headroom"):
        text += " `without headroom` should just fit in all of the memory. It is predicted, not estimated."
    if any(open_ones):
        text += (
            f" Where it says `or more`, the search stopped at a {size} that fits; larger ones were not tried."
        )
    return text + _explained_batches(config, fit, found, tail)


def _headroom_words(fit: FitConfig) -> str:
    return f" with {fit.headroom} of its memory free" if fit.usable < 1 else ""


def _explained_batches(
    config: ExperimentConfig, fit: FitConfig, found: list[dict[str, Any]], tail: float
) -> str:
    text = ""
    if config.poisson_sampling:
        text += (
            " Batches are Poisson-sampled. Each estimate takes a batch that at most "
            f"{tail:g} of the steps exceed, after one step with a full batch and one with an empty batch."
        )
    elif fit.along == "batch_size":
        text += (
            " For Poisson sampling, keep the expected batch at or below `expected batch`: at most "
            f"{tail:g} of the steps then exceed the largest batch."
        )
    if fit.logical_batch:
        text += (
            f" `steps for {fit.logical_batch:,}` is the number of physical steps in one logical batch. "
            "The memory includes what gradient accumulation needs."
        )
    if _has(found, "logical_floor_s"):
        text += (
            f" `floor [s]` is the least time for one logical batch on {device_name(config)}, by its "
            "bandwidth and its rate of matrix products. It is not a prediction."
        )
    if fit.verify:
        text += (
            " The measured columns come from three steps each, in fresh processes. They count the same bytes "
            "outside the allocator as the estimates do."
        )
    return text


def _failures(found: list[dict[str, Any]]) -> list[str]:
    return [f"{row['trainer']}: {row['failure']}\n" for row in found if row["failure"]]
