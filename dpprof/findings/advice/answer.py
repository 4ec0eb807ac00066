"""Advice on an experiment, in words and as the contents of `advice.json`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpprof.config.changes import LEARNED, ROUNDING, SAME, changed
from dpprof.config.entry_points import AdviceConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.findings.advice.arithmetic import ByArithmetic
from dpprof.findings.advice.weighing import (
    MOST_ESTIMATED,
    NOTHING,
    SMALLER,
    SUFFICES,
    TOO_LARGE,
    Weighed,
    Weighing,
)
from dpprof.findings.closeness import is_clearly_less
from dpprof.findings.launch_bound import LARGER_BATCH, PredictedStep, launch_bound
from dpprof.findings.sentences import said, say
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.capacity import assumptions, doubt_words
from dpprof.record.figures.results import device_name
from dpprof.record.figures.step import LogicalStep
from dpprof.record.ledger import LedgerResult
from dpprof.vocabulary.formats import memory
from dpprof.vocabulary.precision import precision_in_words
from dpprof.vocabulary.units import mib, ms

_ALTERED = {LEARNED: "advice.learned", ROUNDING: "advice.rounding"}
# Smaller changes, in percent, count as none.
_LEAST_PCT = 0.05


@dataclass(frozen=True)
class AdviceData:
    """An advice. `left_out` says why some changes cannot be made.

    `ledger` and `weights_dtype`, the types of the model's weights in words, are the unchanged experiment's.
    """

    name: str
    config: ExperimentConfig
    asked: AdviceConfig
    advice: Weighing
    arithmetic: Sequence[ByArithmetic]
    left_out: Mapping[str, str]
    ledger: LedgerResult | None
    weights_dtype: str = ""

    @property
    def estimated(self) -> list[Weighed]:
        """All changes that were estimated, alone and together."""
        together = self.advice.together
        return [*self.advice.alone, *([together] if together else [])]


def change_pct(now: float | None, before: float | None) -> float | None:
    """Return a difference in percent, 0 if it is too small to see; None if a value is missing."""
    if not before or now is None:
        return None
    pct = 100 * (now / before - 1)
    return pct if abs(pct) >= _LEAST_PCT else 0.0


def experiment(data: AdviceData) -> str:
    """Describe the experiment as given."""
    config, batches, ranks = data.config, data.config.accumulation_steps, data.config.world_size
    return say(
        "advice.experiment",
        model=config.model_title,
        trainer=config.trainer,
        batch=config.batch_size,
        logical=said("advice.logical", number=batches) if batches > 1 else "",
        seq_len=config.seq_len,
        precision=precision_in_words(config.precision, data.weights_dtype),
        ranks=said("advice.ranks", number=ranks, parallel=config.parallel) if ranks > 1 else "",
    )


def answer(data: AdviceData) -> str:
    """Say if the experiment fits, and what to change first."""
    advice = data.advice
    if advice.fits:
        then = _of_fitting(advice)
    elif advice.best is None:
        then = _together(advice)
    else:
        then = _alone(advice, advice.best)
    kind = "advice.fits" if advice.fits else "advice.does_not_fit"
    need = say(
        "advice.needs" if advice.limit is None else kind,
        device=device_name(data.config),
        headroom=data.asked.headroom,
        needs=advice.given.needed,
        limit=advice.limit,
    )
    return " ".join([need, *then])


def _alone(advice: Weighing, best: Weighed) -> Iterator[str]:
    yield _with_costs("advice.alone", advice, best)
    sufficing = [one for one in advice.ordered if advice.verdict(one) == SUFFICES and one is not best]
    same = [one.name for one in sufficing if one.alters != LEARNED]
    if same:
        yield say("advice.also" if len(same) > 1 else "advice.also_one", changes=same)
    other = [one.name for one in sufficing if one.alters == LEARNED]
    if other:
        yield say("advice.also_altering", changes=other)
    if advice.together is not None:
        yield _with_costs("advice.faster", advice, advice.together)


def _of_fitting(advice: Weighing) -> Iterator[str]:
    best = advice.best
    if best is None:
        yield say("advice.none_faster")
        saving = [o for o in advice.ordered if advice.verdict(o) == SMALLER and o.alters != LEARNED]
        if saving:
            yield say("advice.saves_most", change=saving[0].name)
        return
    given_s = advice.given.seconds
    kind = "advice.fewest_flops" if best.cost.flops < advice.given.flops else "advice.fewest_bytes"
    yield _with_costs(kind if given_s is None else "advice.least_time", advice, best)
    if given_s is not None and not is_clearly_less(best.cost.seconds, given_s):
        yield say("advice.too_close")


def _together(advice: Weighing) -> Iterator[str]:
    together = advice.together
    if together is not None and len(together.changes) == 1 and together.cost.fits(advice.limit):
        yield _with_costs("advice.alone", advice, together)
        return
    yield say("advice.none_alone")
    if together is None:
        yield say("advice.none_together")
    elif together.cost.fits(advice.limit):
        yield _with_costs("advice.together", advice, together)
    else:
        yield say("advice.not_together", change=together.name, needs=together.cost.needed)


def _with_costs(kind: str, advice: Weighing, one: Weighed) -> str:
    """Say a sentence of some changes, with what they need and take, and what they alter, if anything."""
    cost, given = one.cost, advice.given
    if cost.seconds is not None and given.seconds is not None:
        of, compared = "time", _compared(cost.seconds, given.seconds, "less", "more", "much")
    elif cost.flops != given.flops:
        of, compared = "flops", _compared(cost.flops, given.flops, "fewer", "more", "many")
    else:
        of, compared = "moved", _compared(cost.moved, given.moved, "fewer", "more", "many")
    costs = said(
        f"costs.{of}",
        needs=cost.needed,
        ms=None if cost.seconds is None else ms(cost.seconds),
        compared=compared,
        altered=said(_ALTERED[one.alters]) if one.alters in _ALTERED else "",
    )
    return say(kind, change=one.name, costs=costs)


def _compared(now: float, before: float, less: str, more: str, same: str) -> str:
    pct = change_pct(now, before)
    return f"{abs(pct):.1f} % {less if pct < 0 else more}" if pct else f"as {same}"


def size_words(num_bytes: int) -> str:
    """Format a number of bytes."""
    return memory(mib(num_bytes))


def waits(data: AdviceData) -> Finding | None:
    """Say that the experiment as given is launch-bound; None if it is not, or nothing is predicted."""
    advice, config = data.advice, data.config
    is_logical = config.accumulation_steps == 1
    larger = said("help.larger_batch_and_logical") if is_logical else LARGER_BATCH
    trainers = [
        PredictedStep(changed(config, one.changes[0].settings), one.cost)
        for one in advice.alone
        if one.changes[0].kind == "trainer" and one.alters == SAME and one.cost.fits(advice.limit)
        if one.cost.bound is not None
    ]
    fastest = min(trainers, key=lambda one: one.step.effort, default=None)
    return launch_bound([PredictedStep(config, advice.given)], larger if advice.fits else None, fastest)


def order(data: AdviceData) -> str:
    """Explain the order of the rows."""
    is_timed = data.advice.given.seconds is not None
    least = "their predicted time" if is_timed else "FLOPs, then of bytes moved"
    return say("advice.order_fitting" if data.advice.fits else "advice.order_lacking", least=least)


def notes(data: AdviceData) -> list[str]:
    """List the changes that are not among the rows, and why."""
    found = []
    for verdict, kind in ((NOTHING, "advice.useless"), (TOO_LARGE, "advice.too_large")):
        others = [one for one in data.advice.others if data.advice.verdict(one) == verdict]
        changes = [said("advice.change_needs", change=one.name, needs=one.cost.needed) for one in others]
        found += [say(kind, changes=changes)] if changes else []
    return [*found, *(say("advice.left_out", change=name, why=why) for name, why in data.left_out.items())]


def rests_on(data: AdviceData) -> list[str]:
    """List what the figures are based on."""
    found = [say("advice.on_estimates")]
    if data.advice.given.seconds is not None:
        found.append(say("advice.on_times"))
    if any("accumulation_steps" in change.settings for one in data.estimated for change in one.changes):
        found.append(say("advice.on_many_batches", most=MOST_ESTIMATED))
    if data.ledger is not None:
        found += [say("advice.assumed", text=text) for text in assumptions(data.config, data.ledger)]
        doubts = [doubt_words(doubt.text, doubt.num_bytes) for doubt in data.ledger.doubts]
        found += [say("advice.doubted", text=text) for text in doubts]
    return found


def to_data(data: AdviceData) -> dict[str, Any]:
    """Return the contents of `advice.json`."""
    advice = data.advice
    together = advice.together
    return {
        "name": data.name,
        "asked": vars(data.asked),
        "experiment": to_flat(data.config),
        "fits": None if advice.limit is None else advice.fits,
        "limit_bytes": advice.limit,
        "answer": answer(data),
        "launch_bound": (found := waits(data)) and [found.text, *map(str, found.points)],
        "order": order(data),
        "given": _cost(advice.given),
        "changes": [_change(advice, one) for one in (*advice.ordered, *advice.others)],
        "together": None if together is None else _change(advice, together),
        "by_arithmetic": [vars(one) for one in data.arithmetic],
        "left_out": dict(data.left_out),
        "rests_on": rests_on(data),
    }


def _change(advice: Weighing, one: Weighed) -> dict[str, Any]:
    settings = {name: value for change in one.changes for name, value in change.settings.items()}
    return {
        "name": one.name,
        "settings": settings,
        "alters": one.alters,
        "fits": None if advice.limit is None else one.cost.fits(advice.limit),
        "verdict": advice.verdict(one),
        **_cost(one.cost),
    }


def _cost(cost: LogicalStep) -> dict[str, Any]:
    return {
        "needed_bytes": cost.needed,
        "peak_phase": cost.peak_phase,
        "flops": cost.flops,
        "moved_bytes": cost.moved,
        "seconds": cost.seconds,
        "estimates": [str(folder) for folder in cost.folders],
    }
