"""Times the work of a host that issues a step to a GPU.

    python benchmarks/phantom/host_times.py FOLDER > docs/results/host.md

FOLDER has the stand-in for a GPU, or gets it (`stand_in.py`). Its kernels compute nothing, so that a step
takes as long as Python, autograd, the dispatcher and CUDA's host code do. Each phase of some steps is timed
and its work counted; a unit of work costs what explains these times best. Transforms of `torch.func`, which
these steps do without, are timed on their own. Two minutes on 2 idle cores.
"""

import json
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

from dpprof.config.device_times import ANY_GPU, DeviceTimes
from dpprof.config.flat import parse_experiment
from dpprof.config.issue_times import IssueTimes
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.named_trainers import load_named
from dpprof.measure.observe import Observer
from dpprof.measure.passes.ledger import Ledger, LedgerObserver
from dpprof.measure.passes.machine import issue_s
from dpprof.measure.passes.predictor import Predictor
from dpprof.measure.passes.step_clock import StepClock
from dpprof.measure.trainers.training import Training
from dpprof.vocabulary.formats import markdown_table

HERE = Path(__file__).resolve().parent
SIX = ("standard", "flat", "ghost", "fast", "bk", "mixed")
OTHERS = ("explicit:NAIVE", "explicit:REWEIGHT", "decoder:COURSE")
STEPS, WARM = 30, 4
UNITS = tuple(vars(IssueTimes()))
# Shorter phases are mostly the clock's own work.
LEAST_MS = 0.4
# What CUDA takes to launch a kernel, which the stand-in does not do: assumed.
LAUNCH_US = 4.5
# Milliseconds of steps of `small`, 8 x 256, on an H100, which waits for its host (docs/results/h100.md).
ON_H100 = {"standard": 11.3, "flat": 40.2, "ghost": 51.5, "fast": 44.0, "bk": 33.8, "mixed": 45.8}
MODELS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "small": ({"model_size": "small", "batch_size": 8, "seq_len": 256}, SIX),
    "GPT-2, four layers": (
        {"workload": "huggingface:gpt2", "model_config": "n_layer=4", "batch_size": 2, "seq_len": 64},
        SIX,
    ),
    "ResNet-50": ({"workload": "huggingface:resnet-50", "batch_size": 2, "image_size": 64}, SIX),
    "BERT-base": (
        {"workload": "workloads:bert_classifier", "batch_size": 2, "seq_len": 32, "optimizer": "sgd"},
        OTHERS[:2],
    ),
    "ResNet-50, channels last": (
        {
            "workload": "workloads:resnet50",
            "batch_size": 2,
            "workload_options": "image_size=32",
            "channels_last": True,
            "optimizer": "sgd",
        },
        OTHERS[:2],
    ),
    "decoder": (
        {
            "workload": "decoder:decoder",
            "batch_size": 4,
            "seq_len": 128,
            "workload_options": "width=768,hidden=3072,layers=12,heads=12",
        },
        OTHERS[2:],
    ),
}


class Phases(Observer):
    """Times phases by the host's clock: milliseconds of each in each step."""

    def __init__(self) -> None:
        self.ms: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Sum the occurrences of each phase in a step."""
        self._now: Counter[str] = Counter()
        yield
        for name, ms in self._now.items():
            self.ms[name].append(ms)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase."""
        began = time.perf_counter()
        yield
        self._now[name] += 1e3 * (time.perf_counter() - began)  # type: ignore[assignment]


class Counting(StepClock):
    """Counts the host's work by phase."""

    def __init__(self) -> None:
        super().__init__(IssueTimes())
        self.counts: dict[str | None, Counter[str]] = defaultdict(Counter)

    def _work(self, phase: str | None, work: tuple[str, ...], listed: int = 0) -> None:
        self.counts[phase].update(work)
        self.counts[phase]["listed"] += listed


def measured(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the least milliseconds of each phase, and what the host does in it."""
    config = parse_experiment({"device": "cuda"} | settings, MeasuringConfig)
    config = config.resolve(cuda_available=True)
    training = Training(config)
    training.run(WARM, Observer())
    torch.cuda.synchronize()
    training.run(STEPS, phases := Phases())
    any_gpu = DeviceTimes.shipped(ANY_GPU)
    assert any_gpu is not None, "it comes with the package"
    predictor = Predictor(any_gpu)
    clock = predictor.clock = Counting()
    training = Training(config)
    with (ledger := Ledger("cuda", predictor=predictor)):
        training.run(1, Observer())
        training.run(1, LedgerObserver(ledger, training))
    return {
        "ms": {name: min(ms) for name, ms in phases.ms.items()},
        "counts": {name: dict(counts) for name, counts in clock.counts.items() if name is not None},
    }


def of_transforms() -> dict[str, float]:
    """Return what `vmap` takes for a call, and for each operator within it, in microseconds."""
    given, number = torch.randn(2, 16, 16, device="cuda"), 100

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(number):
            total = (x * x).unsqueeze(0).sum()
        return total

    within, alone = (least_us(partial(each, given)) for each in (torch.func.vmap(program), program))
    call = least_us(partial(torch.func.vmap(torch.Tensor.detach), given))
    call -= least_us(partial(torch.Tensor.detach, given))
    return {"transform": call, "level": (within - alone - call) / (3 * number)}


def least_us(program: Callable[[], object]) -> float:
    """Return the least microseconds that a program takes to issue its work."""
    times = []
    for _ in range(100 * STEPS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        program()
        times.append(1e6 * (time.perf_counter() - began))
    return min(times)


def measure_all() -> None:
    """Print the measurements of all steps as JSON: this runs on the stand-in."""
    sys.path.append(str(HERE.parent / "published"))
    load_named(",".join(OTHERS))
    found = [
        {"model": model, "trainer": trainer} | measured(settings | {"trainer": trainer})
        for model, (settings, trainers) in MODELS.items()
        for trainer in trainers
    ]
    issue_us = min(1e6 * issue_s.__wrapped__("cuda") for _ in range(5))
    print(json.dumps({"steps": found, "issue_us": issue_us, "transforms": of_transforms()}))


def main() -> None:
    if sys.argv[1:] == ["--here"]:
        measure_all()
        return
    command = [sys.executable, str(HERE / "stand_in.py"), sys.argv[1], __file__, "--here"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    report(json.loads(output.splitlines()[-1]))


class Fit:
    """Costs of units that explain the phases of some steps best, in microseconds."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        rows = [
            ([each["counts"].get(phase, {}).get(unit, 0) for unit in UNITS], 1e3 * ms)
            for each in steps
            for phase, ms in each["ms"].items()
            if ms > LEAST_MS
        ]
        counts, us = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        # Between least squares of differences and of ratios.
        self.costs, _ = nnls(counts / us[:, None] ** 0.75, us**0.25)
        self.counts, self.us = counts, us

    def errors(self, other: "Fit") -> Any:
        """Return the logarithms of predicted over measured phases of other steps."""
        return np.log(np.maximum(other.counts @ self.costs, 1) / other.us)


def report(found: dict[str, Any]) -> None:
    """Print the page."""
    steps = found["steps"]
    fit = Fit(steps)
    for unit, us in found["transforms"].items():
        fit.costs[UNITS.index(unit)] = us
    apart = []
    for model in MODELS:
        rest, alone = (
            [each for each in steps if (each["model"] == model) == is_it] for is_it in (False, True)
        )
        apart.append(Fit(rest).errors(Fit(alone)))
    errors = np.abs(np.concatenate(apart))
    launched = fit.costs + LAUNCH_US * np.array([unit in ("light", "heavy") for unit in UNITS])
    ratios = {}
    for each in (each for each in steps if each["model"] == "small"):
        counts = sum((Counter(one) for one in each["counts"].values()), Counter())
        counted = sum(cost * counts[unit] for unit, cost in zip(UNITS, launched, strict=True))
        ratios[each["trainer"]] = 1e3 * ON_H100[each["trainer"]] / counted
    slower = statistics.geometric_mean(ratios.values())
    middle = slower**0.5
    print("# What a host takes to issue a step\n")
    print(f"`python benchmarks/phantom/host_times.py FOLDER`, torch {torch.__version__}.\n")
    print(
        f"{len(steps)} steps ran {STEPS} times each on a stand-in for a GPU, whose kernels compute nothing;"
    )
    print("the shortest time of each phase counts. `this host` are the costs that explain these times best;")
    print(f"{LAUNCH_US} us for each kernel's launch, which the stand-in does not do, are in the next column.")
    print("`in between` is halfway (by factors) to an H100's host. dpprof predicts with such times, from")
    print("an earlier run: `IssueTimes`. `transform` is a call of `torch.func.vmap`, `level` what it adds to")
    print("each operator within: both are timed on their own, without a step.\n")
    lines = [
        [unit, f"{cost:.1f}", f"{full:.1f}", f"{full * middle:.1f}", f"{full * slower:.1f}", f"{now:g}"]
        for unit, cost, full, now in zip(UNITS, fit.costs, launched, vars(IssueTimes()).values(), strict=True)
    ]
    columns = ["work, us", "this host", "with launches", "in between", "H100's host", "in `IssueTimes`"]
    print(markdown_table(columns, lines, right=1))
    print("Left out by model, phases of the others predict its phases with a median error of")
    print(f"{100 * (np.exp(np.median(errors)) - 1):.0f} %, and four in five within a factor of")
    print(f"{np.exp(np.quantile(errors, 0.8)):.2f}.\n")
    print("## An H100's host\n")
    print("Steps of `small` on an H100 took as long as their host did. Their time over that of the count,")
    print("with launches, by trainer:\n")
    print(
        markdown_table(["trainer", "factor"], [[t, f"{ratio:.2f}"] for t, ratio in ratios.items()], right=1)
    )
    between = (found["issue_us"] + LAUNCH_US) * middle
    print(f"That is {slower:.2f} on the whole, with the same costs for all six. `issue_s` takes")
    print(f"{found['issue_us']:.1f} us here, and so {between:.1f} us between the two.")


if __name__ == "__main__":
    main()
