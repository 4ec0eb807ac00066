"""What a plan found, as plain data: alternatives, front, what is recommended, and what that rests on."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.config.plan import PlanConfig
from dpprof.figures.capacity import device_of
from dpprof.figures.plan.options import TAIL, Fitted, Noise, Option, front, option_of, recommended
from dpprof.figures.plan.prediction import Prediction
from dpprof.figures.plan.reached import Reached
from dpprof.figures.plan.timing import EFFICIENCY, FLOOR, MEASURED, UNKNOWN
from dpprof.figures.results import device_name
from dpprof.privacy.guarantee import RDP
from dpprof.vocabulary.formats import number
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import GIB

_BASES = {
    MEASURED: "from measured steps, scaled by what the ledger says grows with the batch",
    EFFICIENCY: "the least times over {}: a range, not a prediction",
    FLOOR: "at least: bytes and FLOPs over the device's rates. Real steps take longer, often twice as long",
    UNKNOWN: "not known: no step was measured, and no device is given by name",
}


@dataclass(frozen=True)
class PlanData:
    """A plan. `fitted` are the trainers, `options` those of them that fit with each logical batch. `reached`
    is what share of the device's rates steps reach, if known; `peak_bytes` the peak that the allocator should
    have in the recommended row, by the `estimate` in that folder. `advice` says what would make a step fit
    where none does.
    """

    name: str
    asked: PlanConfig
    config: ExperimentConfig
    delta: float
    noises: Sequence[Noise]
    fitted: Sequence[Fitted]
    options: Sequence[Option]
    left_out: Mapping[str, str]
    reached: Reached | None = None
    peak_bytes: int | None = None
    estimate: str = ""
    advice: str = ""

    @property
    def front(self) -> list[Option]:
        """Those than which no other has both less noise and a lower price."""
        return front(self.comparable)

    @property
    def comparable(self) -> list[Option]:
        """Those whose times rest on the best that any rests on: a least time and a measured one do not
        compare.
        """
        found = {option.step.basis for option in self.options}
        best = next((basis for basis in _BASES if basis in found), UNKNOWN)
        return [option for option in self.options if option.step.basis == best]

    @property
    def recommended(self) -> Option | None:
        """The row to begin with."""
        return recommended(self.comparable)

    @property
    def prediction(self) -> Prediction | None:
        """The recommended row as an experiment."""
        one = self.recommended
        if one is None:
            return None
        fitted = next(f for f in self.fitted if f.config.trainer == one.trainer)
        return Prediction.of(one, fitted, self.reached)

    @property
    def reason(self) -> str:
        """Why that row, in sentences."""
        one = self.recommended
        if one is None:
            if not self.options:
                if all(one.failure for one in self.fitted):
                    return "No trainer's step could be estimated."
                return "No trainer's step fits, however small its batch."
            return (
                "No row can be recommended: no time is known. Measure a sweep here, or give a target by name."
            )
        trainers = {option.trainer for option in self.comparable if option.noise == one.noise}
        text = f"{short_name(one.trainer)} with a logical batch of {one.noise.logical_batch:,}"
        if len(trainers) > 1:
            fastest = "the fastest" if one.step.basis == MEASURED else "by its least time the fastest"
            text += f": {fastest} of {len(trainers)} trainers at that batch"
        larger = [o for o in self.front if o.noise.logical_batch > one.noise.logical_batch]
        if larger:
            text += ", and a larger batch costs more than its lower noise is worth"
        elif len(self.noises) > 1:
            text += (
                f", and of the {len(self.noises)} logical batches it has the least noise in the mean gradient"
            )
        return f"{text}."

    @property
    def caveats(self) -> list[str]:
        """What would change it, and what to know, in sentences."""
        found = []
        one = self.recommended
        if one is not None:
            found.append(
                f"It makes {one.noise.steps:,} steps. If your model needs more of them to learn, take a "
                "smaller logical batch or more epochs: this plan knows privacy and cost, not accuracy."
            )
            if one.noise.logical_batch == max(noise.logical_batch for noise in self.noises):
                found.append("It is the largest batch of the list: a larger one may be better still.")
            measured = next(f.measured for f in self.fitted if f.config.trainer == one.trainer)
            if measured is not None and one.largest > (most := measured.told[1]):
                found.append(
                    f"Measured steps tell of physical batches up to {most:,}, twice the largest of them; the "
                    f"device holds {one.largest:,}. Measure larger ones to know whether they are faster."
                )
            others = {o.step.basis for o in self.options} - {one.step.basis}
            if others:
                names = {short_name(o.trainer) for o in self.options if o.step.basis in others}
                found.append(f"Not compared, as nothing was measured with them: {', '.join(sorted(names))}.")
        for noise in self.noises:
            if noise.guarantee.note:
                found.append(f"At {noise.logical_batch:,}: {noise.guarantee.note}.")
        found += [f"{short_name(name)} is left out: {why}." for name, why in self.left_out.items()]
        found += [f"{short_name(f.config.trainer)}: {f.failure}" for f in self.fitted if f.failure]
        return found

    @property
    def rests_on(self) -> list[str]:
        """Where the figures come from, in sentences."""
        bases = dict.fromkeys(option.step.basis for option in self.options)
        device = device_name(self.config)
        accountants = "PRV (Gopi, Lee and Wutschitz 2021)"
        if any(noise.guarantee.accountant == RDP for noise in self.noises):
            accountants += " or, where PRV cannot answer, RDP"
        return [
            f"Noise: Opacus's accountant {accountants}; beside it RDP (Mironov, Talwar and Zhang 2019). They "
            "assume Poisson sampling: each step takes each sample independently with the sample rate. "
            "Neighbouring data sets differ in one sample, added or removed. Shuffled or fixed batches have "
            "another epsilon, and a batch that turns NaN breaks the guarantee.",
            f"Memory: estimated on fake tensors; what fits {device} with {self.asked.headroom} of it free.",
            *(f"Time: {_BASES[basis].format(self._shares())}." for basis in bases),
            self._of_physical_batches,
        ]

    @property
    def _of_physical_batches(self) -> str:
        text = "Physical batches: exact sums over the binomial distribution of a Poisson-sampled batch"
        if self.asked.num_devices > 1:
            text += ", which each device draws from its part of the data; each step waits for the largest"
        return f"{text}. The most is exceeded in a whole training with a chance of {TAIL:g}."

    def _shares(self) -> str:
        """The shares of the device's rates that steps reach, and how that is known."""
        if self.reached is None or not self.reached.names:
            return "the given efficiency"
        low, high = (f"{100 * share:.2g} %" for share in (self.reached.low, self.reached.high))
        shares = low if low == high else f"{low} to {high}"
        runs = "run" if len(self.reached.names) == 1 else "runs"
        return f"the {shares} of its rates that {len(self.reached.names)} earlier {runs} reached there"

    def to_data(self) -> dict[str, Any]:
        """What `plan.json` holds; `recommended` has all that a training needs."""
        one = self.recommended
        return {
            "name": self.name,
            "asked": vars(self.asked) | {"target_delta": self.delta},
            "noises": [dataclasses.asdict(noise) for noise in self.noises],
            "options": [row(option) for option in self.options],
            "front": [self.options.index(option) for option in self.front],
            "recommended": None if one is None else row(one) | self._predicted(),
            "reason": self.reason,
            "caveats": self.caveats,
            "advice": self.advice,
            "rests_on": self.rests_on,
            "experiments": {f.config.trainer: to_flat(f.config) for f in self.fitted},
            "estimates": {f.config.trainer: list(f.folders) for f in self.fitted},
            "efficiency": None if self.reached is None else dataclasses.asdict(self.reached),
            "measured": {f.config.trainer: list(f.measured.names) for f in self.fitted if f.measured},
        }

    def _predicted(self) -> dict[str, Any]:
        """The settings of one logical step of the recommended row, and what it should take."""
        predicted = self.prediction
        assert predicted is not None, "asked for where there is one"
        return {
            "experiment": to_flat(predicted.config),
            "predicted": {
                "plan": self.name,
                "peak_bytes": self.peak_bytes,
                "estimate": self.estimate,
                "step_s_least": predicted.step.least,
                "step_s_most": predicted.step.most,
                "time_basis": predicted.step.basis,
                "target": self.config.estimating.target if device_of(self.config) else "",
            },
        }


def row(option: Option) -> dict[str, Any]:
    """An option as plain values."""
    noise = option.noise
    cost = option.cost
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
        "physical_batch": option.physical_batch,
        "physical_batches": option.num_physical,
        "most_physical_batches": option.most_physical,
        "step_s_least": option.step.least,
        "step_s_most": option.step.most,
        "hours_least": option.hours.least,
        "hours_most": option.hours.most,
        "device_hours_least": option.device_hours.least,
        "device_hours_most": option.device_hours.most,
        "cost_least": None if cost is None else cost.least,
        "cost_most": None if cost is None else cost.most,
        "time_basis": option.step.basis,
    }


def compute(
    name: str,
    asked: PlanConfig,
    noises: Sequence[Noise],
    fitted: Sequence[Fitted],
    left_out: Mapping[str, str],
    reached: Reached | None = None,
) -> PlanData:
    """The plan of these trainers and logical batches."""
    options = [option_of(one, noise, asked, reached) for noise in noises for one in fitted]
    return PlanData(
        name=name,
        asked=asked,
        config=fitted[0].config,
        delta=noises[0].guarantee.delta,
        noises=noises,
        fitted=fitted,
        options=[option for option in options if option is not None],
        left_out=left_out,
        reached=reached,
    )


def span(least: float | None, most: float | None) -> str:
    """A range as text: one number where both ends are the same, `at least` where there is no upper end."""
    if least is None:
        return "not known"
    if most is None:
        return f"{number(least)} or more"
    return number(least) if least == most else f"{number(least)} to {number(most)}"


def gib(num_bytes: int | None) -> str:
    """Bytes in GiB as text."""
    return "" if num_bytes is None else number(num_bytes / GIB)
