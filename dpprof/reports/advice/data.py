"""What changes to an experiment would do, as plain data: the answer, a row for each, what it rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpprof.config.advice import AdviceConfig
from dpprof.config.changes import ALTERS
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.figures.advice.arithmetic import ByArithmetic
from dpprof.figures.advice.cost import MOST_ESTIMATED, Cost
from dpprof.figures.advice.weighing import NOTHING, SUFFICES, TOO_LARGE, Advice, Weighed
from dpprof.figures.capacity import assumptions, doubt_words
from dpprof.figures.results import device_name
from dpprof.record.ledger import LedgerResult
from dpprof.reports.advice.answer import answer
from dpprof.reports.advice.words import capital, share_of, size_of, time_of
from dpprof.vocabulary.trainers import short_name

_LACKS = (
    "The experiment does not fit. First come the changes that make it fit alone, the one with {least} first; "
    "then those that do not suffice alone, the most bytes saved first. What alters what is learned comes "
    "last."
)
_FITS = (
    "First come the changes that take less time, the one with {least} first; then those that lower the "
    "memory, the most bytes saved first. What alters what is learned comes last."
)
_BY_TIME, _BY_FLOPS = "the lowest bound on its time", "the fewest FLOPs, then the fewest bytes moved,"


@dataclass(frozen=True)
class Row:
    """A change in words; figures that are not known are empty. `share` is what it needs, of the most that is
    drawn.
    """

    name: str
    options: str
    needs: str
    saves: str
    flops: str
    moved: str
    least: str
    least_change: str
    alters: str
    verdict: str
    share: float


@dataclass(frozen=True)
class AdviceData:
    """An advice. `left_out` says why some changes cannot be made. `ledger` is the experiment's own."""

    name: str
    config: ExperimentConfig
    asked: AdviceConfig
    advice: Advice
    arithmetic: Sequence[ByArithmetic]
    left_out: Mapping[str, str]
    ledger: LedgerResult | None

    @property
    def what(self) -> str:
        """The experiment in words."""
        config = self.config
        batch = f"physical batches of {config.batch_size:,}"
        if config.accumulation_steps > 1:
            batch += f", {config.accumulation_steps:,} in a logical one"
        ranks = f", {config.world_size} ranks with {config.parallel}" if config.world_size > 1 else ""
        return (
            f"{config.model_name} with {short_name(config.trainer)}, {batch}, sequences of "
            f"{config.seq_len:,}, {config.precision}{ranks}"
        )

    @property
    def answer(self) -> str:
        """What to do, in a few sentences."""
        held = f"{device_name(self.config)} with {self.asked.headroom} kept free"
        return answer(self.advice, held)

    @property
    def order(self) -> str:
        """How the rows are ordered."""
        least = _BY_FLOPS if self.advice.given.least_s is None else _BY_TIME
        return (_FITS if self.advice.fits else _LACKS).format(least=least)

    @property
    def legend(self) -> str:
        """What the columns say."""
        return (
            "Differences are to the experiment as given. What alters nothing gives the same gradient; bf16 "
            "rounds products; adapters and other kinds of clipping alter what is learned."
        )

    @property
    def rows(self) -> list[Row]:
        """The changes worth making, in order."""
        return [self._row(one, self.advice.verdict(one)) for one in self.advice.ordered]

    @property
    def together(self) -> Row | None:
        """Several changes together, where that was needed."""
        one = self.advice.together
        if one is None:
            return None
        return self._row(one, SUFFICES if self.advice.holds(one.cost) else "does not fit")

    def _row(self, one: Weighed, verdict: str) -> Row:
        cost, given = one.cost, self.advice.given
        return Row(
            name=one.name,
            options=one.options,
            needs=size_of(cost.needed),
            saves=size_of(cost.needed - given.needed, is_change=True),
            flops=share_of(cost.flops, given.flops),
            moved=share_of(cost.moved, given.moved),
            least=time_of(cost),
            least_change=share_of(cost.least_s or 0.0, given.least_s or 0.0),
            alters=ALTERS[one.alters],
            verdict=verdict,
            share=cost.needed / self._most,
        )

    @property
    def _most(self) -> int:
        """The most bytes that are drawn."""
        shown = [one.cost.needed for one in self._made]
        return max(self.advice.given.needed, self.advice.limit or 0, *shown)

    @property
    def limit_share(self) -> float | None:
        """What may be needed, of the most that is drawn."""
        return None if self.advice.limit is None else self.advice.limit / self._most

    @property
    def given(self) -> Row:
        """The experiment as it is."""
        given = self.advice.given
        verdict = "" if self.advice.limit is None else "fits" if self.advice.fits else "does not fit"
        share = given.needed / self._most
        return Row("as given", "", size_of(given.needed), "", "", "", time_of(given), "", "", verdict, share)

    @property
    def arithmetic_rows(self) -> list[tuple[str, str, str, str, str]]:
        """For each change that is not built in: its name, what it would need and save, FLOPs, and how that
        was computed.
        """
        given = self.advice.given
        return [
            (
                one.name,
                size_of(given.needed - one.saved),
                size_of(-one.saved, is_change=True),
                share_of(given.flops + one.flops, given.flops),
                one.how,
            )
            for one in self.arithmetic
        ]

    @property
    def notes(self) -> list[str]:
        """What is not among the rows, and why, in sentences."""
        found = []
        for verdict, words in ((NOTHING, "Saves nothing here"), (TOO_LARGE, "Would not fit")):
            names = [
                f"{one.name} ({size_of(one.cost.needed)})"
                for one in self.advice.others
                if self.advice.verdict(one) == verdict
            ]
            if names:
                found.append(f"{words}: {', '.join(names)}.")
        return [*found, *(f"{capital(name)} is left out: {why}." for name, why in self.left_out.items())]

    @property
    def rests_on(self) -> list[str]:
        """Where the figures come from, in sentences."""
        found = [
            "Every row is an estimate of the whole experiment with the change, on fake tensors: bytes at the "
            "peak of a step, what is in doubt added; FLOPs and bytes moved in a logical step. All rows have "
            "the same logical batch."
        ]
        if self.advice.given.least_s is not None:
            found.append(
                "Least time: bytes over bandwidth or FLOPs over the rate of matrix products, whichever is "
                "longer, phase by phase. Real steps take longer, and not all by as much: many small physical "
                "batches, for one, leave a GPU idle between operators."
            )
        if any("accumulation_steps" in c.settings for one in self._made for c in one.changes):
            found.append(
                f"With more than {MOST_ESTIMATED} physical batches in a logical one, two and three of them "
                "are estimated; each further one costs what the third does."
            )
        if self.ledger is not None:
            found += [f"{capital(text)}." for text in assumptions(self.config, self.ledger)]
            found += [f"{capital(doubt_words(d.text, d.num_bytes))}." for d in self.ledger.doubts]
        return found

    @property
    def folders(self) -> list[str]:
        """Those of all estimates that are shown."""
        costs = [self.advice.given, *(one.cost for one in self._made)]
        return list(dict.fromkeys(str(folder) for cost in costs for folder in cost.folders))

    @property
    def _made(self) -> list[Weighed]:
        together = self.advice.together
        return [*self.advice.alone, *([together] if together else [])]

    def to_data(self) -> dict[str, Any]:
        """What `advice.json` holds."""
        advice = self.advice
        together = advice.together
        return {
            "name": self.name,
            "asked": vars(self.asked),
            "experiment": to_flat(self.config),
            "fits": None if advice.limit is None else advice.fits,
            "limit_bytes": advice.limit,
            "answer": self.answer,
            "order": self.order,
            "given": _cost(advice.given),
            "changes": [self._change(one) for one in (*advice.ordered, *advice.others)],
            "together": None if together is None else self._change(together),
            "by_arithmetic": [vars(one) for one in self.arithmetic],
            "left_out": dict(self.left_out),
            "rests_on": self.rests_on,
        }

    def _change(self, one: Weighed) -> dict[str, Any]:
        settings = {name: value for change in one.changes for name, value in change.settings.items()}
        return {
            "name": one.name,
            "settings": settings,
            "alters": one.alters,
            "fits": None if self.advice.limit is None else self.advice.holds(one.cost),
            "verdict": self.advice.verdict(one),
            **_cost(one.cost),
        }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "needed_bytes": cost.needed,
        "peak_phase": cost.peak_phase,
        "flops": cost.flops,
        "moved_bytes": cost.moved,
        "least_s": cost.least_s,
        "estimates": [str(folder) for folder in cost.folders],
    }
