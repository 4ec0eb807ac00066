"""What `run.py` measures on a GPU, and `estimates.py` estimates, the most worth first."""

from dataclasses import dataclass, field
from typing import Any

FIRST_TRAINERS = ("standard", "flat", "bk", "ghost")
TRAINERS = (*FIRST_TRAINERS, "fast", "mixed")
GPT2 = {"workload": "huggingface:gpt2"}
MODELS: dict[str, dict[str, Any]] = {
    "small": {"model_size": "small", "batch_size": 8, "seq_len": 256},
    "medium": {"model_size": "medium", "batch_size": 8, "seq_len": 512, "optimizer": "adamw"},
    "1b": {"model_size": "1b", "batch_size": 2, "seq_len": 512},
    "gpt2": GPT2 | {"batch_size": 4, "seq_len": 512},
    "gpt2-lora": GPT2 | {"batch_size": 4, "seq_len": 512, "train": "lora"},
    "vit-base": {"workload": "huggingface:vit-base", "batch_size": 8, "seq_len": 1},
    "resnet-50": {"workload": "huggingface:resnet-50", "batch_size": 8, "seq_len": 1},
}
# For a rehearsal on a CPU: seconds instead of minutes.
TINY_GPT2 = GPT2 | {
    "model_config": "n_layer=1,n_embd=32,n_head=2,vocab_size=128",
    "batch_size": 2,
    "seq_len": 16,
}
TINY_MODELS: dict[str, dict[str, Any]] = {
    "tiny": {"model_size": "tiny", "batch_size": 2, "seq_len": 16},
    "tiny-gpt2-lora": TINY_GPT2 | {"train": "lora"},
}
# Shares of the estimated smallest device with which steps are tried.
SHARES = (0.98, 0.99, 1.0, 1.01, 1.02)


@dataclass(frozen=True)
class Experiment:
    """A named experiment. With a `share`, only that much of its smallest device's memory may be taken."""

    trainer: str
    model: str
    precision: str
    settings: dict[str, Any] = field(hash=False)
    share: float | None = None

    @property
    def name(self) -> str:
        """Trainer, model, precision and share, by which its results are found."""
        return self.of_all if self.share is None else f"{self.of_all} at {self.share:.2f}"

    @property
    def of_all(self) -> str:
        """Name of the same experiment with all of the memory, by which its estimate is found."""
        return f"{self.trainer} {self.model} {self.precision}"

    @property
    def values(self) -> dict[str, Any]:
        """All settings, as an experiment is parsed from."""
        return {"trainer": self.trainer, "precision": self.precision, **self.settings}


@dataclass(frozen=True)
class Plan:
    """All experiments of a run on one kind of device, by what is measured of them."""

    device: str
    memory: tuple[Experiment, ...]
    times: tuple[Experiment, ...]
    full: tuple[Experiment, ...]


def plan_for(device: str) -> Plan:
    """Return the experiments for `cuda`, or those of a rehearsal on the `cpu`."""
    if device == "cpu":
        tiny = {
            model: _of(model, TINY_MODELS, ("fp32",), ("standard", "flat", "bk")) for model in TINY_MODELS
        }
        first = tiny["tiny"]
        return Plan("cpu", (*first, *tiny["tiny-gpt2-lora"][:2]), tuple(first[:2]), (first[2],))
    of_times = ("small", "1b", "gpt2", "gpt2-lora")
    times = [
        each
        for trainers in (FIRST_TRAINERS, TRAINERS[len(FIRST_TRAINERS) :])
        for model in of_times
        for each in _of(model, MODELS, ("fp32",), trainers)
    ]
    memory = [each for model in MODELS if model != "1b" for each in _of(model, MODELS, ("fp32", "bf16"))]
    tried = _of("small", MODELS, ("fp32", "bf16"), ("flat", "ghost"))
    shares = [
        Experiment(e.trainer, e.model, e.precision, e.settings, share) for e in tried for share in SHARES
    ]
    full = _of("small", MODELS, ("fp32",), ("ghost", "bk"))
    return Plan("cuda", (*memory, *shares), tuple(times), tuple(full))


def _of(
    model: str,
    models: dict[str, dict[str, Any]],
    precisions: tuple[str, ...],
    trainers: tuple[str, ...] = TRAINERS,
) -> list[Experiment]:
    return [Experiment(t, model, p, models[model]) for p in precisions for t in trainers]
