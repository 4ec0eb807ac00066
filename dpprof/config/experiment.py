"""What an experiment is, and how the driving process runs it. Plain data; no torch.

A setting is declared once: here, or in `grid.py` if only a sweep has it. Command-line options, the MLproject
file and the README's table are derived from these classes.
"""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from dpprof.config.counter_metrics import metric_names
from dpprof.config.devices import DEVICES
from dpprof.config.model_sizes import MODEL_SIZES
from dpprof.config.poisson import largest_batch
from dpprof.config.settings import refuse, setting
from dpprof.errors import ConfigError
from dpprof.vocabulary.launchers import LAUNCHERS, LOCAL
from dpprof.vocabulary.loops import LOOPS
from dpprof.vocabulary.trainers import STANDARD, TRAINER_NAMES

BUILT_IN_WORKLOAD = "SimpleBigModel"
BUILT_IN_DATA = ("random", "zipf")
PRECISIONS = ("fp32", "bf16")
PASSES = ("clean", "pace", "memory", "ledger", "trace", "ceilings", "gradient_check")
# Instead of the passes that measure: a step on fake tensors.
ESTIMATE = "estimate"
# Settings that only an estimate has, and those that it has no use for.
ESTIMATE_ONLY = ("target", "device_memory_gib", "poisson_tail", "savings")
MEASURE_ONLY = ("warmup_steps", "measured_steps", "passes", "counters", "counter_metrics")
# Under Poisson sampling warm-up takes a full batch, an empty one and a sampled one.
SAMPLED_WARMUP_STEPS = 3
# What a fit searches the largest of.
FIT_ALONG = ("batch_size", "seq_len")
SIZE_FIELDS = ("vocab_size", "hidden_dim", "num_layers", "num_heads")
_SIZE_HELP = "0 takes it from model_size."


@dataclass(frozen=True)
class ExperimentConfig:
    """One experiment: trainer x model x batch size x sequence length x precision x device.

    As given by the user some settings are `auto` or 0; `resolve` replaces them.
    """

    trainer: str = setting(STANDARD, "Algorithm to train with.", choices=TRAINER_NAMES)
    batch_size: int = setting(4, "Samples in one physical batch.", minimum=1)
    seq_len: int = setting(512, "Tokens in one sample.", minimum=1)
    model_size: str = setting(
        "auto",
        "Size of the built-in transformer; auto is 1b on CUDA and tiny on the CPU.",
        choices=("auto", *MODEL_SIZES),
    )
    vocab_size: int = setting(0, f"Vocabulary of the model; {_SIZE_HELP}", minimum=0)
    hidden_dim: int = setting(0, f"Width of the model; {_SIZE_HELP}", minimum=0)
    num_layers: int = setting(0, f"Transformer blocks; {_SIZE_HELP}", minimum=0)
    num_heads: int = setting(0, f"Attention heads; {_SIZE_HELP}", minimum=0)
    attention: str = setting(
        "sdpa",
        "Linear layers with scaled_dot_product_attention, or Opacus's DPMultiheadAttention made causal.",
        choices=("sdpa", "dp_mha"),
    )
    activation_checkpointing: bool = setting(
        False, "Keep only each block's input and compute its activations again in backward (built-in model)."
    )
    precision: str = setting("fp32", "bf16 runs forward under autocast.", choices=PRECISIONS)
    device: str = setting(
        "auto",
        "auto takes CUDA where there is one; an estimate needs none and takes it always.",
        choices=("auto", "cpu", "cuda"),
    )
    data: str = setting(
        "random",
        "Tokens: random (uniform), zipf (natural frequencies) or the path of a UTF-8 text file.",
    )
    workload: str = setting(
        BUILT_IN_WORKLOAD,
        "The built-in SimpleBigModel, or package.module:factory to train something of your own.",
    )
    loop: str = setting(
        "documented",
        "Training loop: documented is the one in PyTorch's or Opacus's tutorial; lean adds every memory "
        "saving that needs no patch to the library.",
        choices=LOOPS,
    )
    optimizer: str = setting("sgd", "Underlying optimizer.", choices=("sgd", "adamw"))
    lr: float = setting(0.01, "Learning rate.", above=0)
    momentum: float = setting(0.0, "Momentum of sgd.", minimum=0)
    noise_multiplier: float = setting(
        1.0, "Noise standard deviation over max_grad_norm (DP trainers).", minimum=0
    )
    max_grad_norm: float = setting(1.0, "Per-sample clipping norm (DP trainers).", above=0)
    accumulation_steps: int = setting(
        1, "Physical batches in one logical batch; figures are then per logical step.", minimum=1
    )
    poisson_sampling: bool = setting(
        False, "Train on Poisson-sampled batches: their sizes vary around batch_size, and some are empty."
    )
    seed: int = setting(0, "Seed of the weights, the data and the noise.", minimum=0)
    warmup_steps: int = setting(3, "Steps before anything is measured, at least one.", minimum=1)
    measured_steps: int = setting(10, "Timed steps of the clean pass.", minimum=1)
    passes: str = setting(
        "clean,memory,ledger,trace", f"Passes to run, comma-separated, clean among them: {', '.join(PASSES)}."
    )
    counters: str = setting(
        "off",
        "Hardware counters of one step, in a second process under Nsight Compute: off; auto where the "
        "machine can; ncu, or the run fails.",
        choices=("off", "auto", "ncu"),
    )
    counter_metrics: str = setting(
        "basic",
        "Metrics to count, comma-separated: basic, full, Nsight Compute's full names "
        "(sm__cycles_active.sum), nvprof's old ones.",
    )
    target: str = setting(
        "none", "GPU to hold an estimate against, for its memory and its rates.", choices=("none", *DEVICES)
    )
    device_memory_gib: float = setting(
        0.0, "Memory of the device to hold an estimate against; 0 takes the target's.", minimum=0
    )
    poisson_tail: float = setting(
        1e-6,
        "Share of steps whose batch may exceed the one estimated, under Poisson sampling.",
        above=0,
        below=1,
    )
    savings: bool = setting(
        True, "Also estimate what each change of the lean loop saves; false is about twice as fast."
    )

    def __post_init__(self) -> None:
        """Check what concerns several settings or needs more than a range. Raises ConfigError."""
        if self.optimizer == "adamw" and self.momentum:
            raise refuse("momentum", self.momentum, "0 with optimizer=adamw, which has no momentum")
        unknown = [name for name in self.pass_names if name not in PASSES]
        if (unknown or "clean" not in self.pass_names) and not self.is_estimate:
            raise refuse("passes", self.passes, f"clean, and with it any of {', '.join(PASSES[1:])}")
        if metric_names(self.counter_metrics) != metric_names("basic") and self.counters == "off":
            raise refuse("counter_metrics", self.counter_metrics, "basic, or with it counters=auto")
        if self.poisson_sampling and self.accumulation_steps > 1:
            raise refuse(
                "accumulation_steps",
                self.accumulation_steps,
                "1 with poisson_sampling=true; a sampled batch that is split needs only the memory of its "
                "physical batches, so measure those without poisson_sampling",
            )
        if self.poisson_sampling and self.warmup_steps < SAMPLED_WARMUP_STEPS:
            raise refuse(
                "warmup_steps",
                self.warmup_steps,
                f"{SAMPLED_WARMUP_STEPS} or more with poisson_sampling=true: a full batch, an empty one and "
                "a sampled one",
            )
        if self.target != "none" and self.device == "cpu":
            raise refuse("target", self.target, "none with device=cpu; give device_memory_gib")
        if self.workload != BUILT_IN_WORKLOAD and self.activation_checkpointing:
            raise refuse(
                "activation_checkpointing", True, "false with a workload of your own, which does it itself"
            )
        if self.workload != BUILT_IN_WORKLOAD and not re.fullmatch(r"[\w.]+:\w+", self.workload):
            raise refuse("workload", self.workload, f"{BUILT_IN_WORKLOAD} or package.module:factory")

    @property
    def is_estimate(self) -> bool:
        """Whether nothing is measured: the step runs on fake tensors."""
        return self.passes.strip() == ESTIMATE

    @property
    def estimated_batch(self) -> int:
        """Samples in the batch of an estimated step: those that few Poisson-sampled batches exceed."""
        return largest_batch(self.batch_size, self.poisson_tail) if self.poisson_sampling else self.batch_size

    @property
    def pass_names(self) -> tuple[str, ...]:
        """The passes asked for, in the order in which they run."""
        asked = {name.strip() for name in self.passes.split(",")}
        return tuple(name for name in PASSES if name in asked) + tuple(sorted(asked - set(PASSES)))

    @property
    def model_name(self) -> str:
        """A short name of what is trained, safe in file names: the size, or the factory's name.

        Sizes given by hand that are not those of `model_size` follow it: `1b-hidden64-layers2`.
        """
        is_built_in = self.workload == BUILT_IN_WORKLOAD
        own = vars(MODEL_SIZES[self.model_size]) if self.model_size in MODEL_SIZES else {}
        changed = [
            f"{name.removeprefix('num_').partition('_')[0]}{given}"
            for name in SIZE_FIELDS
            if (given := getattr(self, name)) and given != own.get(name)
        ]
        return "-".join([self.model_size if is_built_in else self.workload.rpartition(":")[2], *changed])

    @property
    def run_name(self) -> str:
        """`<Trainer>_<model>_bs<B>_seq<T>`: names the run in MLflow and its folder."""
        return f"{self.trainer}_{self.model_name}_bs{self.batch_size}_seq{self.seq_len}"

    def resolve(self, *, cuda_available: bool) -> "ExperimentConfig":
        """Replace every `auto` and 0 by what it stands for on this machine.

        Raises ConfigError if `device=cuda` without CUDA, if the model's sizes do not go together, or if the
        text file cannot be used.
        """
        device = resolve_device(self.device, cuda_available=cuda_available or self.is_estimate)
        model_size = self.model_size
        if model_size == "auto":
            model_size = "1b" if device == "cuda" else "tiny"
        size = MODEL_SIZES[model_size]
        sizes = {name: getattr(self, name) or getattr(size, name) for name in SIZE_FIELDS}
        resolved = dataclasses.replace(self, device=device, model_size=model_size, **sizes)
        if resolved.workload == BUILT_IN_WORKLOAD:
            resolved._check_model()
        return resolved

    def _check_model(self) -> None:
        if self.hidden_dim % self.num_heads:
            raise refuse("hidden_dim", self.hidden_dim, f"a multiple of num_heads, which is {self.num_heads}")
        if self.data not in BUILT_IN_DATA:
            _check_text(self.data, self.seq_len)
            if self.vocab_size < 256:
                raise refuse("vocab_size", self.vocab_size, "at least 256 with a text file (byte tokens)")


def resolve_device(device: str, *, cuda_available: bool) -> str:
    """The device to run on: `auto` becomes cuda or cpu. Raises ConfigError for cuda without CUDA."""
    if device == "cuda" and not cuda_available:
        raise refuse("device", device, "cpu or auto: torch finds no CUDA device on this machine")
    if device == "auto":
        return "cuda" if cuda_available else "cpu"
    return device


def _check_text(path: str, seq_len: int) -> None:
    allowed = f"{', '.join(BUILT_IN_DATA)}, or the path of a UTF-8 text file"
    if not Path(path).is_file():
        raise refuse("data", path, f"{allowed}; there is no such file")
    if Path(path).stat().st_size <= seq_len:
        raise refuse("data", path, f"{allowed} of more bytes than seq_len, which is {seq_len}")
    try:
        Path(path).read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise refuse("data", path, f"{allowed}; this one cannot be read: {error}") from None


@dataclass(frozen=True)
class EstimateConfig:
    """The settings of the estimate entry point that nothing else has."""

    workers: int = setting(2, "Experiments to estimate at a time, each in a process of its own.", minimum=1)


@dataclass(frozen=True)
class FitConfig:
    """The settings of the fit entry point that nothing else has."""

    along: str = setting(
        "batch_size", "What to find the largest of; the other one is taken as given.", choices=FIT_ALONG
    )
    logical_batch: int = setting(
        0,
        "Samples in the logical batch that training needs; tells how many physical steps it takes.",
        minimum=0,
    )
    verify: bool = setting(False, "Measure the answer and the next larger size on this machine's device.")

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        if self.logical_batch and self.along != "batch_size":
            raise refuse("logical_batch", self.logical_batch, "0 with along=seq_len")


@dataclass(frozen=True)
class DriveConfig:
    """How the driving process runs experiments; nothing here changes what is measured."""

    runs_dir: str = setting("runs", "Folder that receives one folder per sweep.")
    timeout_s: float = setting(
        1800.0, "Seconds one experiment may take before it is stopped; its counters as long again.", above=0
    )
    launcher: str = setting(
        LOCAL,
        "; ".join(f"{launcher.name} {launcher.help}" for launcher in LAUNCHERS.values()) + ".",
        choices=tuple(LAUNCHERS),
    )

    def check_writable(self) -> None:
        """Make the runs folder and try to write there. Raises ConfigError."""
        probe = Path(self.runs_dir) / ".dpprof-write-test"
        try:
            probe.parent.mkdir(parents=True, exist_ok=True)
            probe.write_text("")
            probe.unlink()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"runs_dir: got {self.runs_dir!r}, allowed: a folder that can be written ({reason})"
            ) from None
