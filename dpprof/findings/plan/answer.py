"""A plan in words, and as the contents of `plan.json`."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from dpprof.config.budget import weaknesses
from dpprof.config.flat import to_flat
from dpprof.findings.closeness import all_known, doubt_of
from dpprof.findings.launch_bound import PredictedStep, launch_bound
from dpprof.findings.plan.data import TAIL, PlanData, TrainingOption
from dpprof.findings.sentences import said, say
from dpprof.findings.verdict.finding import Finding
from dpprof.privacy.guarantee import RDP
from dpprof.record.figures.capacity import device_of, round_batch
from dpprof.record.figures.privacy import rounded_up
from dpprof.record.figures.results import device_name
from dpprof.record.figures.step import MEASURED, PREDICTED, UNKNOWN, TimeRange
from dpprof.vocabulary.formats import listed, number
from dpprof.vocabulary.precision import precision_in_words
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import GIB

_ON_TIME = {
    MEASURED: "plan.on_time_measured",
    PREDICTED: "plan.on_time_predicted",
    UNKNOWN: "plan.on_time_unknown",
}


def question(plan: PlanData) -> str:
    """Describe the budget, the model and the devices."""
    asked, config = plan.asked, plan.config
    precision = precision_in_words(config.precision, plan.weights_dtype)
    return say(
        "plan.question",
        epsilon=asked.target_epsilon,
        delta=plan.delta,
        samples=asked.dataset_size,
        model=config.model_title,
        seq_len=config.seq_len,
        precision=f"{precision}," if "," in precision else precision,
        devices=f"{asked.num_devices} x " * (asked.num_devices > 1) + device_name(config),
    )


def reason(plan: PlanData) -> str:
    """Explain why the row is recommended, or why none is."""
    one = plan.recommended
    if one is not None:
        batch = one.noise.logical_batch
        larger = _why_not_larger(plan, one)
        return say("plan.first", trainer=one.trainer, batch=batch, why=_why(plan, one), larger=larger)
    if plan.options:
        return " ".join([say("plan.no_time"), *_next_best(plan)])
    return say("plan.no_estimate" if all(each.failure for each in plan.fitted) else "plan.none_fits")


def _why(plan: PlanData, one: TrainingOption) -> str:
    """Say that it is the fastest at its batch, or too close to call; empty for a single trainer."""
    if plan.close:
        return _too_close(plan.close)
    trainers = {option.trainer for option in plan.comparable if option.noise == one.noise}
    kind = "plan.fastest_measured" if one.basis == MEASURED else "plan.fastest_predicted"
    return say(kind, number=len(trainers)) if len(trainers) > 1 else ""


def _next_best(plan: PlanData) -> Iterator[str]:
    one = plan.next_best
    if one is not None:
        is_known = all_known(each.trainer for each in plan.comparable)
        fastest = say("plan.next_fastest", trainer=one.trainer) if is_known else ""
        values = {"batch": one.noise.logical_batch, "steps": plan.enough_steps, "fastest": fastest}
        yield say("plan.next", trainer=one.trainer, **values)


def _why_not_larger(plan: PlanData, one: TrainingOption) -> str:
    larger = [o for o in plan.front if o.noise.logical_batch > one.noise.logical_batch]
    if larger:
        are_short = all(o.noise.steps < plan.enough_steps for o in larger)
        return say("plan.too_few_steps" if are_short else "plan.not_worth_it")
    return say("plan.least_noise", number=len(plan.noises)) if len(plan.noises) > 1 else ""


def _too_close(close: Sequence[TrainingOption]) -> str:
    """Explain that it is too close to call, and why the first is recommended."""
    one, *others = close
    decides = []
    if one.basis != MEASURED and all_known(each.trainer for each in close):
        decides.append(said("plan.fastest_elsewhere"))
    if not any(other.is_at_least or other.largest > one.largest for other in others):
        decides.append(said("plan.least_memory"))
    return say(
        "plan.close_decided" if decides else "plan.close",
        basis=one.basis,
        trainers=[each.trainer for each in close],
        pct=100 * doubt_of(one.basis),
        trainer=one.trainer,
        decides=decides,
    )


def summary(plan: PlanData) -> str:
    """Describe the recommended row; empty without one."""
    one = plan.recommended
    if one is None:
        return ""
    peak = plan.peak_bytes
    return say(
        "plan.recommended",
        noise=rounded_up(one.noise.guarantee.noise_multiplier),
        rate=one.noise.sample_rate,
        steps=one.noise.steps,
        physical=one.num_physical,
        most=one.most_physical,
        samples=one.physical_batch,
        peak="" if peak is None else said("plan.peak", gib=peak / GIB),
        hours=span(one.hours),
        devices=said("plan.devices", number=one.num_devices) if one.num_devices > 1 else "",
        cost="" if one.cost is None else said("plan.cost", cost=span(one.cost)),
    )


def weak_privacy(plan: PlanData) -> list[str]:
    """List weaknesses of the privacy that the budget allows."""
    found = weaknesses(plan.asked.target_epsilon, plan.delta, plan.asked.dataset_size)
    return [say("plan.weak", weakness=weakness) for weakness in found]


def caveats(plan: PlanData) -> list[str]:
    """List what would change the recommendation, and what to know about it."""
    found = list(_of_recommended(plan, plan.recommended)) if plan.recommended is not None else []
    for noise in plan.noises:
        if noise.guarantee.note:
            found.append(say("plan.note", batch=noise.logical_batch, note=noise.guarantee.note))
    found += [say("plan.left_out", trainer=name, why=why) for name, why in plan.left_out.items()]
    found += [say("plan.failed", trainer=f.config.trainer, why=f.failure) for f in plan.fitted if f.failure]
    if unlike := [name for one in plan.fitted for name in one.unlike]:
        found.append(say("plan.unlike", names=listed(unlike)))
    return found


def _of_recommended(plan: PlanData, one: TrainingOption) -> Iterator[str]:
    asked = plan.asked
    if one.noise.steps < asked.min_steps:
        yield say("plan.short", steps=asked.min_steps)
    if plan.close:
        trainers = [each.trainer for each in plan.close]
        yield say("plan.decide", trainers=trainers, device=device_name(plan.config), trainer=trainers[0])
    yield say("plan.steps", steps=one.noise.steps)
    twice = 2 * one.noise.logical_batch
    if plan.is_largest and asked.is_long(twice):
        yield say("plan.largest")
    elif plan.is_largest:
        yield say("plan.no_larger", batch=twice, steps=asked.min_steps)
    measured = next(f.measured for f in plan.fitted if f.config.trainer == one.trainer)
    if measured is not None and one.largest > (most := measured.told[1]):
        yield say("plan.measured_up_to", most=most, holds=at_least(one.largest, one.is_at_least))
    others = {short_name(o.trainer) for o in plan.options if o.basis != one.basis}
    if others:
        yield say("plan.unmeasured", names=", ".join(sorted(others)))


def waits(plan: PlanData) -> Finding | None:
    """Say that the row to begin with is launch-bound; None if it is not, or nothing is predicted."""
    one = plan.recommended or plan.next_best
    if one is None or plan.step is None:
        return None
    larger = None
    if one.physical_batch < round_batch(one.largest) and one.basis != MEASURED:
        holds = at_least(one.largest, one.is_at_least)
        larger = said("help.larger_logical_batch", holds=holds, given=one.physical_batch)
    config, _ = plan.prediction(one)
    return launch_bound([PredictedStep(config, plan.step)], larger)


def rests_on(plan: PlanData) -> list[str]:
    """List what the figures are based on."""
    bases = dict.fromkeys(option.basis for option in plan.options)
    is_rdp = any(noise.guarantee.accountant == RDP for noise in plan.noises)
    waiting = say("plan.waiting") if plan.asked.num_devices > 1 else ""
    return [
        say("plan.on_noise", or_rdp=" or, where PRV cannot answer, RDP" if is_rdp else ""),
        say("plan.on_memory", device=device_name(plan.config), headroom=plan.asked.headroom),
        *(say(_ON_TIME[basis], correction=_correction(plan)) for basis in bases),
        say("plan.on_batches", waiting=waiting, share=1 - TAIL),
    ]


def _correction(plan: PlanData) -> str:
    """Describe how far earlier runs show predictions to be off, if they do."""
    reached = plan.reached
    if reached is None:
        return ""
    low, high, runs = 100 * reached.low, 100 * reached.high, len(reached.names)
    return say("plan.on_time_corrected", low=low, high=high, runs=runs)


def span(time: TimeRange | None) -> str:
    """Format a range: one number if both ends are equal."""
    if time is None:
        return "not known"
    return number(time.least) if time.least == time.most else f"{number(time.least)} to {number(time.most)}"


def at_least(size: int, is_at_least: bool) -> str:
    """Format a size that fits, where larger ones may fit too."""
    return f"{size:,}{' or more' if is_at_least else ''}"


def to_data(plan: PlanData) -> dict[str, Any]:
    """Return the contents of `plan.json`, which `KeptPlan` reads."""
    return {
        "name": plan.name,
        "asked": vars(plan.asked) | {"target_delta": plan.delta},
        "noises": [dataclasses.asdict(noise) for noise in plan.noises],
        "options": [_row(plan, option) for option in plan.options],
        "front": [plan.options.index(option) for option in plan.front],
        "recommended": plan.recommended and _first(plan, plan.recommended),
        "next_best": plan.next_best and _first(plan, plan.next_best),
        "reason": reason(plan),
        "caveats": [*weak_privacy(plan), *caveats(plan)],
        "launch_bound": (found := waits(plan)) and [found.text, *map(str, found.points)],
        "advice": plan.advice,
        "rests_on": rests_on(plan),
        "experiments": {f.config.trainer: to_flat(f.config) for f in plan.fitted},
        "estimates": {f.config.trainer: list(f.folders) for f in plan.fitted},
        "reached": plan.reached and dataclasses.asdict(plan.reached),
        "measured": {f.config.trainer: list(f.measured.names) for f in plan.fitted if f.measured},
    }


def _first(plan: PlanData, option: TrainingOption) -> dict[str, Any]:
    """Return the row to begin with, whose peak was estimated."""
    row = _row(plan, option)
    row["predicted"] |= {"peak_bytes": plan.peak_bytes, "estimate": plan.estimate}
    return row


def _row(plan: PlanData, option: TrainingOption) -> dict[str, Any]:
    noise = option.noise
    _, step = plan.prediction(option)
    times = {"step_s": option.step, "hours": option.hours, "device_hours": option.device_hours}
    times |= {"cost": option.cost}
    return {
        "trainer": option.trainer,
        "logical_batch": noise.logical_batch,
        "sample_rate": noise.sample_rate,
        "steps": noise.steps,
        "noise_multiplier": noise.guarantee.noise_multiplier,
        "noise_multiplier_rdp": noise.by_rdp.noise_multiplier if noise.by_rdp else None,
        "noise_over_batch": noise.over_batch,
        "epsilon": noise.guarantee.epsilon,
        "delta": noise.guarantee.delta,
        "largest_physical_batch": option.largest,
        "is_at_least": option.is_at_least,
        "physical_batch": option.physical_batch,
        "physical_batches": option.num_physical,
        "most_physical_batches": option.most_physical,
        **{
            f"{name}_{end}": time and getattr(time, end)
            for name, time in times.items()
            for end in ("least", "most")
        },
        "time_basis": option.basis,
        "predicted": {
            "plan": plan.name,
            "step_s_least": step.time and step.time.least,
            "step_s_most": step.time and step.time.most,
            "time_basis": step.time_basis,
            "target": plan.config.estimating.target if device_of(plan.config) else "",
        },
    }
