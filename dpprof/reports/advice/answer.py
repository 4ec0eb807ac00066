"""What to do with an experiment, in a few sentences."""

from dpprof.config.changes import LEARNED, ROUNDING
from dpprof.figures.advice.weighing import SMALLER, SUFFICES, Advice, Weighed
from dpprof.reports.advice.words import capital, compared, size_of
from dpprof.vocabulary.formats import joined

_ALTERED = {LEARNED: " It alters what is learned.", ROUNDING: " It rounds: products are in bf16."}


def answer(advice: Advice, held: str) -> str:
    """Whether the experiment fits, and what to change first. `held` names the device, with what is kept
    free.
    """
    if advice.fits:
        return f"{_need(advice, held)} {_of_fitting(advice)}"
    if advice.best is None:
        return f"{_need(advice, held)} {_together(advice)}"
    return f"{_need(advice, held)} {_alone(advice, advice.best)}"


def _need(advice: Advice, held: str) -> str:
    needs = size_of(advice.given.needed)
    if advice.limit is None:
        return f"It needs {needs}; no device is given to hold that against."
    limit = size_of(advice.limit)
    if advice.fits:
        return f"It fits {held}: it needs {needs} of the {limit} that it may use."
    return f"It does not fit {held}: it needs {needs}, and may use only {limit}."


def _alone(advice: Advice, best: Weighed) -> str:
    text = f"Alone, {best.name} makes it fit: {_in_words(advice, best)}"
    sufficing = [one for one in advice.ordered if advice.verdict(one) == SUFFICES and one is not best]
    same = [one.name for one in sufficing if one.alters != LEARNED]
    if same:
        text += f" So {'do' if len(same) > 1 else 'does'} {joined(same)}."
    other = [one.name for one in sufficing if one.alters == LEARNED]
    text += f" {_listed_as_learned(other)}" if other else ""
    if advice.together is not None:
        text += f" Faster are {advice.together.name}, together: {_in_words(advice, advice.together)}"
    return text


def _of_fitting(advice: Advice) -> str:
    if advice.best is not None:
        return f"With {advice.best.name} it {_lowers(advice, advice.best)}: {_in_words(advice, advice.best)}"
    text = "No change that leaves what is learned as it is takes less time."
    saving = [one for one in advice.ordered if advice.verdict(one) == SMALLER and one.alters != LEARNED]
    return text + (f" {capital(saving[0].name)} saves the most memory." if saving else "")


def _lowers(advice: Advice, best: Weighed) -> str:
    """What the fastest of all changes is the fastest by."""
    if advice.given.least_s is not None:
        return "has the lowest bound on its time"
    if best.cost.flops < advice.given.flops:
        return "takes the fewest FLOPs"
    return "moves the fewest bytes"


def _together(advice: Advice) -> str:
    text = "No change alone makes it fit and leaves what is learned as it is."
    together = advice.together
    if together is None:
        return f"{text} Nor do several together."
    if not advice.holds(together.cost):
        text += f" Nor do these together: with {together.name} it needs {size_of(together.cost.needed)}."
        return f"{text} `dpprof fit --along world_size` finds how many GPUs hold it in shards."
    if len(together.changes) == 1:
        return f"Alone, {together.name} makes it fit: {_in_words(advice, together)}"
    return f"{text} Together, {together.name} do: {_in_words(advice, together)}"


def _in_words(advice: Advice, one: Weighed) -> str:
    """What some changes need and take, and what they alter if that is anything."""
    cost, given = one.cost, advice.given
    text = f"it needs {size_of(cost.needed)}"
    if cost.least_s is not None and given.least_s is not None:
        took = compared(cost.least_s, given.least_s, "less time", "more time", "as much time")
        text += f", and a logical step takes at least {cost.least_s * 1e3:,.1f} ms, {took}."
    elif cost.flops != given.flops:
        text += f", with {compared(cost.flops, given.flops, 'fewer FLOPs', 'more FLOPs', 'as many FLOPs')}."
    else:
        moved = compared(cost.moved, given.moved, "fewer bytes", "more bytes", "as many bytes")
        text += f", with as many FLOPs and {moved} moved."
    return text + _ALTERED.get(one.alters, "")


def _listed_as_learned(names: list[str]) -> str:
    verb = "alter" if len(names) > 1 else "alters"
    return f"{capital(joined(names))} would, too, but {verb} what is learned."
