"""A plan in words, and as the contents of `plan.json`."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from dpprof.config.budget import weaknesses
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.findings.closeness import FASTEST_ELSEWHERE, all_known, doubt_of
from dpprof.findings.launch_bound import PredictedStep, launch_bound
from dpprof.findings.plan.data import TAIL, PlanData, TrainingOption
from dpprof.findings.sentences import said
from dpprof.findings.verdict.finding import Finding
from dpprof.privacy.guarantee import RDP
from dpprof.record.figures.capacity import device_of, round_batch
from dpprof.record.figures.privacy import rounded_up
from dpprof.record.figures.results import device_name
from dpprof.record.figures.step import MEASURED, PREDICTED, UNKNOWN, TimeRange
from dpprof.vocabulary.formats import joined, listed, number
from dpprof.vocabulary.precision import precision_in_words
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import GIB

_BASES = {
    MEASURED: "from measured steps, scaled by what the ledger says grows with the batch",
    PREDICTED: "predicted from measured times of operators{}: a range",
    UNKNOWN: "not known: no step was measured, and no table of times is given. Name a GPU as target, or take "
    "the table that `dpprof calibrate` measures",
}


def question(plan: PlanData) -> str:
    """Describe the budget, the model and the devices."""
    asked, config = plan.asked, plan.config
    precision = precision_in_words(config.precision, plan.weights_dtype)
    precision += "," if "," in precision else ""
    devices = f"{asked.num_devices} x " if asked.num_devices > 1 else ""
    return (
        f"Epsilon {asked.target_epsilon:g} at delta {plan.delta:g} for {asked.dataset_size:,} samples; "
        f"{config.model_title} with sequences of {config.seq_len:,} in {precision} on "
        f"{devices}{device_name(config)}."
    )


def reason(plan: PlanData) -> str:
    """Explain why the row is recommended, or why none is."""
    one = plan.recommended
    if one is None:
        if plan.options:
            return f"No time is known.{_next_best(plan)}"
        if all(each.failure for each in plan.fitted):
            return "No trainer's step could be estimated."
        return "No trainer's step fits, however small its batch."
    trainers = {option.trainer for option in plan.comparable if option.noise == one.noise}
    text = f"{short_name(one.trainer)} with a logical batch of {one.noise.logical_batch:,}"
    if plan.close:
        text += f": {_too_close(plan.close)}"
    elif len(trainers) > 1:
        fastest = "the fastest" if one.basis == MEASURED else "by its predicted time the fastest"
        text += f": {fastest} of {len(trainers)} trainers at that batch"
    return f"{text}{_why_not_larger(plan, one)}."


def _next_best(plan: PlanData) -> str:
    one = plan.next_best
    if one is None:
        return ""
    trainer, batch = short_name(one.trainer), one.noise.logical_batch
    fastest = f", and {trainer} {FASTEST_ELSEWHERE}" * all_known(each.trainer for each in plan.comparable)
    return (
        f" Next best is {trainer} with a logical batch of {batch:,}: of the batches that make at least "
        f"{plan.enough_steps:,} steps, this one has the least noise in the mean gradient{fastest}. Measure "
        f"it with `dpprof profile --plan FOLDER --trainer {trainer} --logical-batch {batch}`, and the other "
        "trainers likewise: the next plan takes its times from these runs."
    )


def _why_not_larger(plan: PlanData, one: TrainingOption) -> str:
    larger = [o for o in plan.front if o.noise.logical_batch > one.noise.logical_batch]
    if larger and all(o.noise.steps < plan.enough_steps for o in larger):
        return ", and a larger batch makes too few steps"
    if larger:
        return ", and a larger batch costs more than its lower noise is worth"
    if len(plan.noises) > 1:
        return f", and of the {len(plan.noises)} logical batches it has the least noise in the mean gradient"
    return ""


def _too_close(close: Sequence[TrainingOption]) -> str:
    """Explain that it is too close to call, and why the first is recommended."""
    one, *others = close
    text = f"too close to call, as the {one.basis} times of {_names(close)} at that batch are within "
    text += f"{100 * doubt_of(one.basis):.0f} %"
    why = []
    if one.basis != MEASURED and all_known(each.trainer for each in close):
        why.append(FASTEST_ELSEWHERE)
    if not any(other.is_at_least or other.largest > one.largest for other in others):
        why.append("needs no more memory than the others")
    return f"{text}; {short_name(one.trainer)} {joined(why)}" if why else text


def _what_decides(close: Sequence[TrainingOption], config: ExperimentConfig) -> str:
    return (
        f"To decide between {_names(close)}, measure each of them on {device_name(config)}: `dpprof profile "
        f"--plan FOLDER --accumulation-steps 1 --trainer {short_name(close[0].trainer)}`, with this plan's "
        "folder, and so on. The next plan takes its times from these runs."
    )


def _names(close: Sequence[TrainingOption]) -> str:
    return joined([short_name(one.trainer) for one in close])


def summary(plan: PlanData) -> str:
    """Describe the recommended row; empty without one."""
    one = plan.recommended
    if one is None:
        return ""
    text = (
        f"Noise multiplier {rounded_up(one.noise.guarantee.noise_multiplier)}, sample rate "
        f"{one.noise.sample_rate:.4g}, {one.noise.steps:,} steps. In each step a device takes "
        f"{number(one.num_physical)} physical batches on average, at most {one.most_physical:,}, each of up "
        f"to {one.physical_batch:,} samples"
    )
    if plan.peak_bytes is not None:
        text += f", with {number(plan.peak_bytes / GIB)} GiB at the peak"
    text += f". {span(one.hours)} hours"
    if one.num_devices > 1:
        text += f" on {one.num_devices} devices"
    if one.cost is not None:
        text += f", at a cost of {span(one.cost)}"
    return f"{text}."


def weak_privacy(plan: PlanData) -> list[str]:
    """List weaknesses of the privacy that the budget allows."""
    found = weaknesses(plan.asked.target_epsilon, plan.delta, plan.asked.dataset_size)
    return [f"Weak privacy: {weakness}." for weakness in found]


def caveats(plan: PlanData) -> list[str]:
    """List what would change the recommendation, and what to know about it."""
    found = list(_of_recommended(plan, plan.recommended)) if plan.recommended is not None else []
    for noise in plan.noises:
        if noise.guarantee.note:
            found.append(f"At {noise.logical_batch:,}: {noise.guarantee.note}.")
    found += [f"{short_name(name)} is left out: {why}." for name, why in plan.left_out.items()]
    found += [f"{short_name(f.config.trainer)}: {f.failure}" for f in plan.fitted if f.failure]
    if unlike := [name for one in plan.fitted for name in one.unlike]:
        found.append(f"Measured steps of weights of another type do not count: {listed(unlike)}.")
    return found


def _of_recommended(plan: PlanData, one: TrainingOption) -> Iterator[str]:
    asked = plan.asked
    if one.noise.steps < asked.min_steps:
        yield f"No logical batch makes {asked.min_steps:,} steps, as min_steps asks for."
    if plan.close:
        yield _what_decides(plan.close, plan.config)
    yield (
        f"It makes {one.noise.steps:,} steps. If your model needs more of them to learn, take a "
        "smaller logical batch or more epochs: this plan knows privacy and cost, not accuracy."
    )
    if plan.is_largest and asked.is_long(2 * one.noise.logical_batch):
        yield "It is the largest batch weighed: a larger one may be better still."
    elif plan.is_largest:
        yield (
            f"No larger batch was weighed: {2 * one.noise.logical_batch:,} would make fewer than "
            f"{asked.min_steps:,} steps (min_steps)."
        )
    measured = next(f.measured for f in plan.fitted if f.config.trainer == one.trainer)
    if measured is not None and one.largest > (most := measured.told[1]):
        yield (
            f"Measured steps tell of physical batches up to {most:,}, twice the largest of them; the "
            f"device holds {at_least(one.largest, one.is_at_least)}. Measure larger ones to know whether "
            "they are faster."
        )
    others = {short_name(o.trainer) for o in plan.options if o.basis != one.basis}
    if others:
        yield f"Not compared, as nothing was measured with them: {', '.join(sorted(others))}."


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
    accountants = "PRV (Gopi, Lee and Wutschitz 2021)"
    if any(noise.guarantee.accountant == RDP for noise in plan.noises):
        accountants += " or, where PRV cannot answer, RDP"
    waiting = ", which each device draws from its part of the data; each step waits for the largest"
    return [
        f"Noise: Opacus's accountant {accountants}; beside it RDP (Mironov, Talwar and Zhang 2019). They "
        "assume Poisson sampling: each step takes each sample independently with the sample rate. "
        "Neighbouring data sets differ in one sample, added or removed. Shuffled or fixed batches have "
        "another epsilon, and a batch that turns NaN breaks the guarantee.",
        f"Memory: estimated on fake tensors; what fits {device_name(plan.config)} with "
        f"{plan.asked.headroom} of it free.",
        *(f"Time: {_BASES[basis].format(_correction(plan))}." for basis in bases),
        "Physical batches: exact sums over the binomial distribution of a Poisson-sampled batch"
        f"{waiting if plan.asked.num_devices > 1 else ''}. With probability "
        f"{1 - TAIL:g}, no step of the whole training takes more than `at most`.",
    ]


def _correction(plan: PlanData) -> str:
    """Describe how far earlier runs show predictions to be off, if they do."""
    reached = plan.reached
    if reached is None:
        return ""
    low, high = (f"{100 * share:.3g} %" for share in (reached.low, reached.high))
    return f", which were {low} to {high} of the time that {len(reached.names)} earlier runs took there"


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
