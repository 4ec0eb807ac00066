"""Advice on an experiment, in words and as the contents of `advice.json`."""

from collections.abc import Mapping, Sequence
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
from dpprof.findings.sentences import said
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.capacity import assumptions, doubt_words
from dpprof.record.figures.results import device_name
from dpprof.record.figures.step import LogicalStep
from dpprof.record.ledger import LedgerResult
from dpprof.vocabulary.formats import joined, memory, number
from dpprof.vocabulary.precision import precision_in_words
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import mib

_ALTERED = {LEARNED: " It alters what is learned.", ROUNDING: " It rounds: products are in bf16."}
_LACKS = (
    "The experiment does not fit. The first rows are changes that make it fit by themselves, in order of "
    "{least}. Changes that do not suffice by themselves follow, in order of bytes saved. Changes to what is "
    "learned come last."
)
_FITS = (
    "The first rows are changes that take less time, in order of {least}. Changes that lower the memory "
    "follow, in order of bytes saved. Changes to what is learned come last."
)
_BY_TIME, _BY_FLOPS = "their predicted time", "FLOPs, then of bytes moved"
_ESTIMATED = (
    "Every row is an estimate of the whole experiment with the change: bytes at the peak, what is in doubt "
    "added; FLOPs and bytes moved in a logical step, the same for all."
)
_PREDICTED = (
    "Predicted time: measured times of operators of these sizes, on the target or, where it lacks them, on "
    "other GPUs. It was not measured."
)
_EXTENDED = (
    f"With more than {MOST_ESTIMATED} physical batches in a logical one, two and three of them are "
    "estimated; each further one costs what the third does."
)
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
    config = data.config
    batch = f"physical batches of {config.batch_size:,}"
    if config.accumulation_steps > 1:
        batch += f", {config.accumulation_steps:,} in a logical one"
    ranks = f", {config.world_size} ranks with {config.parallel}" if config.world_size > 1 else ""
    return (
        f"{config.model_title} with {short_name(config.trainer)}, {batch}, sequences of "
        f"{config.seq_len:,}, {precision_in_words(config.precision, data.weights_dtype)}{ranks}."
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
    return f"{_need(data)} {then}"


def _need(data: AdviceData) -> str:
    advice, held = data.advice, f"{device_name(data.config)} with {data.asked.headroom} kept free"
    needs = size_words(advice.given.needed)
    if advice.limit is None:
        return f"It needs {needs}; no device is given to hold that against."
    if advice.fits:
        return f"It fits {held}: it needs {needs} of the {size_words(advice.limit)} that it may use."
    return f"It does not fit {held}: it needs {needs}, and may use only {size_words(advice.limit)}."


def _alone(advice: Weighing, best: Weighed) -> str:
    text = f"Alone, {best.name} makes it fit: {_costs(advice, best)}"
    sufficing = [one for one in advice.ordered if advice.verdict(one) == SUFFICES and one is not best]
    same = [one.name for one in sufficing if one.alters != LEARNED]
    if same:
        text += f" So {'do' if len(same) > 1 else 'does'} {joined(same)}."
    other = [one.name for one in sufficing if one.alters == LEARNED]
    if other:
        text += f" It would fit with {joined(other)}, too, but that alters what is learned."
    if advice.together is not None:
        text += f" Faster are {advice.together.name}, together: {_costs(advice, advice.together)}"
    return text


def _of_fitting(advice: Weighing) -> str:
    best = advice.best
    if best is not None:
        text = f"With {best.name} it {_lowers(advice, best)}: {_costs(advice, best)}"
        given_s, seconds = advice.given.seconds, best.cost.seconds
        is_close = given_s is not None and not is_clearly_less(seconds, given_s)
        return f"{text} That is too close to call by prediction: measure both." if is_close else text
    saving = [one for one in advice.ordered if advice.verdict(one) == SMALLER and one.alters != LEARNED]
    most = f" The most memory is saved by {saving[0].name}." if saving else ""
    return f"No change that leaves what is learned as it is takes less time.{most}"


def _lowers(advice: Weighing, best: Weighed) -> str:
    """Name the measure by which the best change is the fastest."""
    if advice.given.seconds is not None:
        return "has the lowest predicted time"
    return "takes the fewest FLOPs" if best.cost.flops < advice.given.flops else "moves the fewest bytes"


def _together(advice: Weighing) -> str:
    text = "No change alone makes it fit and leaves what is learned as it is."
    together = advice.together
    if together is None:
        return f"{text} Nor do several together."
    if not together.cost.fits(advice.limit):
        text += f" Nor do these together: with {together.name} it needs {size_words(together.cost.needed)}."
        return f"{text} `dpprof fit --along world_size` finds how many GPUs hold it in shards."
    if len(together.changes) == 1:
        return f"Alone, {together.name} makes it fit: {_costs(advice, together)}"
    return f"{text} Together, {together.name} do: {_costs(advice, together)}"


def _costs(advice: Weighing, one: Weighed) -> str:
    """Describe what some changes need and take, and what they alter, if anything."""
    cost, given = one.cost, advice.given
    text = f"it needs {size_words(cost.needed)}"
    if cost.seconds is not None and given.seconds is not None:
        took = _compared(cost.seconds, given.seconds, "less", "more", "much") + " time"
        text += f", and a logical step takes {number(cost.seconds * 1e3)} ms by prediction, {took}."
    elif cost.flops != given.flops:
        text += f", with {_compared(cost.flops, given.flops, 'fewer', 'more', 'many')} FLOPs."
    else:
        moved = _compared(cost.moved, given.moved, "fewer", "more", "many")
        text += f", with as many FLOPs and {moved} bytes moved."
    return text + _ALTERED.get(one.alters, "")


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
    least = _BY_FLOPS if data.advice.given.seconds is None else _BY_TIME
    return (_FITS if data.advice.fits else _LACKS).format(least=least)


def notes(data: AdviceData) -> list[str]:
    """List the changes that are not among the rows, and why."""
    found = []
    for verdict, words in ((NOTHING, "Saves nothing here"), (TOO_LARGE, "Would not fit")):
        others = [one for one in data.advice.others if data.advice.verdict(one) == verdict]
        if others:
            found.append(
                f"{words}: {', '.join(f'{one.name} ({size_words(one.cost.needed)})' for one in others)}."
            )
    return [*found, *(f"Not possible, {name}: {why}." for name, why in data.left_out.items())]


def rests_on(data: AdviceData) -> list[str]:
    """List what the figures are based on."""
    found = [_ESTIMATED]
    if data.advice.given.seconds is not None:
        found.append(_PREDICTED)
    if any("accumulation_steps" in change.settings for one in data.estimated for change in one.changes):
        found.append(_EXTENDED)
    if data.ledger is not None:
        found += [f"Taken for granted: {text}." for text in assumptions(data.config, data.ledger)]
        found += [f"In doubt: {doubt_words(doubt.text, doubt.num_bytes)}." for doubt in data.ledger.doubts]
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
