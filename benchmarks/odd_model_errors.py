"""How far off are estimates of models that are no transformer? Estimated against measured peaks on this CPU.

    python benchmarks/odd_model_errors.py [--models lstm,conv_net]

Every model of `odd_models.py` with every trainer: the estimate's peak, the one that the allocator's events
tell, and what the estimate says to be in doubt. Prints a Markdown table; the one kept is
`docs/results/estimate_odd_models.md`. CPU only; takes two minutes.
"""

import argparse
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from dpprof.config.flat import from_flat
from dpprof.measure.experiment import PassFailed, run_experiment
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import Doubt
from dpprof.record.record import Record
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

_STANDARD = {"batch_size": 16, "seq_len": 32}
# Names of the rows, with the factory and the batch and sequence behind each.
CASES: dict[str, tuple[str, dict[str, int]]] = {
    "MLP": ("mlp", _STANDARD),
    "conv net": ("conv_net", _STANDARD),
    "nn.LSTM": ("lstm", _STANDARD),
    "nn.GRU": ("gru", _STANDARD),
    "DPLSTM": ("dp_lstm", _STANDARD),
    "EmbeddingBag": ("embedding_bag", _STANDARD),
    "frozen parts": ("frozen_parts", _STANDARD),
    "dict inputs": ("dict_inputs", _STANDARD),
    "huge parameters": ("huge_parameters", {"batch_size": 2, "seq_len": 32}),
    "growing state": ("growing_state", _STANDARD),
    "conv net, B = 1": ("conv_net", {"batch_size": 1, "seq_len": 1}),
    "nn.LSTM, B = T = 1": ("lstm", {"batch_size": 1, "seq_len": 1}),
    "DPLSTM, B = T = 1": ("dp_lstm", {"batch_size": 1, "seq_len": 1}),
}
HEADER = "| model | trainer | estimated bytes | allocator's bytes | off by | off % | in doubt | covered |"
_RULE = "| --- | --- | ---: | ---: | ---: | ---: | --- | --- |"
# The estimate is of the second step; of the four measured ones the last has the peak of what grows.
_STEPS_LATER = 2
_LONGEST_REASON = 160


@dataclass(frozen=True)
class Row:
    """One model under one trainer: peaks in bytes, or why there are none."""

    model: str
    trainer: str
    estimated: int = 0
    measured: int = 0
    growth: int = 0
    doubts: tuple[Doubt, ...] = ()
    failure: str = ""

    @property
    def is_covered(self) -> bool:
        """Whether the estimate is right to the byte, or what it names as a doubt is as large as its error."""
        sizes = [doubt.num_bytes for doubt in self.doubts if doubt.num_bytes is not None]
        error = self.measured - self.estimated
        return error == 0 or 0 < error <= sum(sizes) + _STEPS_LATER * max(0, self.growth)

    def shown(self) -> str:
        """The row of the table."""
        if self.failure:
            return f"| {self.model} | {self.trainer} | {self.failure} |  |  |  |  |  |"
        off = self.estimated - self.measured
        in_doubt = ", ".join(
            f"{doubt.name}: {'any' if doubt.num_bytes is None else f'{doubt.num_bytes:,}'}"
            for doubt in self.doubts
        )
        in_doubt += f" ({self.growth:,} a step)" if self.growth > 0 else ""
        figures = f"{self.estimated:,} | {self.measured:,} | {off:+,} | {100 * off / self.measured:+.3f}"
        covered = "yes" if self.is_covered else "NO"
        return f"| {self.model} | {self.trainer} | {figures} | {in_doubt} | {covered} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(dict.fromkeys(name for name, _ in CASES.values())))
    warnings.filterwarnings("ignore", "Full backward hook is firing")
    asked = parser.parse_args().models.split(",")
    print(HEADER, _RULE, sep="\n", flush=True)
    rows = []
    for model, (factory, sizes) in CASES.items():
        for trainer in DEFAULT_TRAINERS if factory in asked else ():
            rows.append(compared(model, factory, trainer, sizes))
            print(rows[-1].shown(), flush=True)
    found = [row for row in rows if not row.failure]
    exact = sum(row.estimated == row.measured for row in found)
    print(f"\n{exact} of {len(found)} exact to the byte, {sum(row.is_covered for row in found)} covered")


def compared(model: str, factory: str, trainer: str, sizes: dict[str, int]) -> Row:
    """Estimate and measure one model."""
    short = {"passes": "clean,memory", "warmup_steps": 1, "measured_steps": 1}
    guess = recorded(factory, trainer, {"passes": "estimate", **sizes})
    truth = recorded(factory, trainer, {**short, **sizes})
    if isinstance(truth, str):
        refused = "and refused" if isinstance(guess, str) else "BUT ESTIMATED"
        return Row(model, trainer, failure=f"cannot be trained, {refused}: {truth}")
    if isinstance(guess, str):
        return Row(model, trainer, failure=f"cannot be estimated: {guess}")
    assert guess.ledger is not None
    return Row(
        model,
        trainer,
        guess.memory.peak_allocated or 0,
        truth.memory.peak_allocated or 0,
        guess.ledger.growth,
        tuple(guess.ledger.doubts),
    )


def recorded(factory: str, trainer: str, settings: dict[str, object]) -> Record | str:
    """The record of a run, or why it failed."""
    values = {"trainer": trainer, "workload": f"odd_models:{factory}", "device": "cpu", **settings}
    config = from_flat(values).resolve(cuda_available=False)
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path) / "run")
        folder.create(config)
        try:
            return run_experiment(config, folder, lambda _: None)
        except PassFailed as failed:
            return f"{failed.__cause__!r}"[:_LONGEST_REASON]


if __name__ == "__main__":
    main()
