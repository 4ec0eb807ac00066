"""Compute the noise for a privacy budget and the budget spent with a given noise."""

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from dpprof.errors import AccountingError, refuse
from dpprof.privacy.guarantee import PRV, RDP, Guarantee, PrivateSteps
from dpprof.privacy.prv import affordable_error, check_plausible, prv_epsilon, rounding_share
from dpprof.privacy.rdp import rdp_epsilon, rdp_floor, rdp_noise
from dpprof.privacy.search import MOST_NOISE, PRECISION, least_noise

# PRV's error relative to epsilon: while searching, the most accepted, the most without a note.
_SEARCHING, _MOST, _UNNOTED = 0.05, 0.1, 0.01
# Largest share of delta for rounding errors without a note: it costs hardly 1 % of epsilon.
_UNNOTED_ROUNDING = 0.1
# Least share of epsilon that the least noise spends: with more noise epsilon falls up to ten times as fast.
_TIGHT = 1 - 10 * PRECISION


def noise_for(epsilon: float, steps: PrivateSteps, earlier: Iterable[Guarantee] = ()) -> Guarantee:
    """Return the least noise multiplier, to 0.1 %, that keeps the steps within epsilon.

    Uses PRV (Gopi et al. 2021). Where PRV cannot answer RDP does, and the note says why. One of `earlier`
    answers saves the search, if PRV confirms it. Raises AccountingError if neither can answer.
    """
    _check("epsilon", epsilon)
    try:
        return _confirmed(epsilon, steps, earlier) or _noise_by_prv(epsilon, steps)
    except AccountingError as why:
        try:
            return replace(noise_by_rdp(epsilon, steps), note=_in_its_place(why))
        except AccountingError as neither:
            raise AccountingError(f"{why}; and {neither}") from None


def noise_by_rdp(epsilon: float, steps: PrivateSteps) -> Guarantee:
    """Return the least noise by RDP (Mironov et al. 2019). Raises AccountingError if none is enough.

    It needs 4 to 10 % more noise than PRV, up to three times as much at very small sample rates.
    """
    found = rdp_noise(epsilon, steps)
    return steps.guarantee(RDP, found.noise, found.epsilon)


def epsilon_of(noise_multiplier: float, steps: PrivateSteps) -> Guarantee:
    """Return the epsilon that the steps spend with this noise, by PRV or RDP as in `noise_for`.

    RDP's answer is infinite without enough noise. Raises AccountingError for noise beyond floating point.
    """
    _check("noise_multiplier", noise_multiplier)
    by_rdp = steps.guarantee(RDP, noise_multiplier, rdp_epsilon(noise_multiplier, steps))
    try:
        # In two rounds, since the allowed error depends on epsilon.
        error = affordable_error(noise_multiplier, steps, _SEARCHING * by_rdp.epsilon)
        coarse = prv_epsilon(noise_multiplier, steps, error) - error
        fine = _fine_error(noise_multiplier, steps, max(coarse, PRECISION * by_rdp.epsilon))
        return _checked(noise_multiplier, prv_epsilon(noise_multiplier, steps, fine), steps, fine)
    except AccountingError as why:
        return replace(by_rdp, note=_in_its_place(why))


def _check(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise refuse(name, value, "a number above 0")


def _in_its_place(why: AccountingError) -> str:
    return f"{why}. RDP answers in its place: a looser bound"


def _confirmed(epsilon: float, steps: PrivateSteps, earlier: Iterable[Guarantee]) -> Guarantee | None:
    """Return an earlier answer that PRV gives again: nothing rests on the file that kept it."""
    for one in earlier:
        is_close = _TIGHT * epsilon <= one.epsilon <= epsilon
        if steps.are_of(one) and is_close and 0 < one.noise_multiplier <= MOST_NOISE:
            with suppress(AccountingError):
                error = _fine_error(one.noise_multiplier, steps, epsilon)
                if prv_epsilon(one.noise_multiplier, steps, error) == one.epsilon:
                    return _checked(one.noise_multiplier, one.epsilon, steps, error)
    return None


def _noise_by_prv(epsilon: float, steps: PrivateSteps) -> Guarantee:
    """Search on short grids, whose estimates are far better than their bounds; confirm on a long one."""

    def foreseen(noise: float) -> float:
        fine = _fine_error(noise, steps, epsilon)
        coarse = affordable_error(noise, steps, _SEARCHING * epsilon)
        return prv_epsilon(noise, steps, coarse) - coarse + fine

    def confirmed(noise: float) -> float:
        return prv_epsilon(noise, steps, _fine_error(noise, steps, epsilon))

    # Noise that is enough for RDP is enough for PRV: grids are short from the start.
    start = rdp_noise(max(epsilon, 1.2 * rdp_floor(steps.delta)), steps)
    near = least_noise(foreseen, epsilon, start.noise)
    found = least_noise(confirmed, epsilon, near.noise, steepness=near.steepness)
    return _checked(found.noise, found.epsilon, steps, _fine_error(found.noise, steps, epsilon))


def _fine_error(noise: float, steps: PrivateSteps, epsilon: float) -> float:
    error = affordable_error(noise, steps, PRECISION * epsilon)
    if error > _MOST * epsilon:
        raise AccountingError(
            f"PRV cannot tell epsilon {epsilon:.3g} of {steps.steps:,} steps: "
            f"the longest grid that it may use has an error of {error:.2g}"
        )
    return error


def _checked(noise: float, reached: float, steps: PrivateSteps, error: float) -> Guarantee:
    check_plausible(reached, error, noise, steps)
    share, notes = rounding_share(steps), []
    if error > _UNNOTED * reached:
        notes.append(f"PRV's grid is coarse: the true epsilon may be up to {2 * error:.2g} less")
    if share > _UNNOTED_ROUNDING:
        notes.append(f"PRV keeps {100 * share:.0f} % of delta for rounding errors")
    return steps.guarantee(PRV, noise, reached, "; ".join(notes))
