"""Training settings, which two experiments share if they train the same thing.

A setting is declared once: command-line options and docs/parameters.md are derived from the
configuration classes; `options.py` says which command takes which.
"""

import dataclasses
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dpprof.errors import ConfigError, DpprofError, refuse
from dpprof.json_files import read_json
from dpprof.vocabulary.huggingface import CAUSAL_LM, CLASSIFICATION, CONFIG_FILE, FAMILIES, NAMED_HELP, Family
from dpprof.vocabulary.loops import LOOPS
from dpprof.vocabulary.parallel import FSDP2, NONE, PARALLEL
from dpprof.vocabulary.precision import BF16, FP32, TF32
from dpprof.vocabulary.settings import assignments, fields, parse, setting
from dpprof.vocabulary.trainable import (
    ALL,
    LORA,
    LORA_RANK,
    LORA_TARGETS,
    MODES,
    NOT,
    choices,
    items,
    train_name,
)
from dpprof.vocabulary.trainers import NOT_OFFERED, STANDARD, TRAINER_NAMES, short_name, trainer_info
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD, HUGGING_FACE, WORKLOADS, listed

BUILT_IN_DATA = ("random", "zipf")
AUTO = "auto"
PRECISIONS = (FP32, TF32, BF16)
OPTIMIZERS = SGD, ADAMW, ADAFACTOR, ADAMW_8BIT = ("sgd", "adamw", "adafactor", "adamw8bit")
SIZE_FIELDS = ("vocab_size", "hidden_dim", "num_layers", "num_heads")
# File names have at most 255 bytes; names of runs and sweeps get suffixes.
LONGEST_NAME = 200
# A factory's name that does not tell its model.
_SAYS_NOTHING = re.compile(r"((make|build|create|get)_?)?(factory|model|workload)")
_LISTED = [f"{info.name}:NAME" if info.named else info.name for info in WORKLOADS.values()]
_SIZE_HELP = "0 takes it from model_size."


# Sizes by name, in this order; the number of parameters also depends on `seq_len` (learned positions).
_SIZES = {
    "tiny": (1_000, 64, 2, 4),
    # At batch 4, sequence 32 the trainers' peaks have the ratios of 1b at batch 4, sequence 512.
    "mini": (1_000, 128, 4, 4),
    "small": (8_000, 256, 4, 8),
    "medium": (16_000, 512, 8, 8),
    "1b": (32_000, 2_048, 24, 32),
    "7b": (32_000, 4_096, 32, 32),
}
MODEL_SIZES = {name: dict(zip(SIZE_FIELDS, sizes, strict=True)) for name, sizes in _SIZES.items()}


@dataclass(frozen=True)
class TrainingConfig:
    """Training settings as the user gives them; `resolve` replaces `auto` and 0."""

    trainer: str = setting(
        STANDARD,
        "Algorithm to train with, or package.module:CLASS of your own.",
        choices=TRAINER_NAMES,
        unlisted=NOT_OFFERED,
    )
    batch_size: int = setting(4, "Samples in one physical batch.", minimum=1)
    seq_len: int = setting(512, "Tokens in one sample.", minimum=1)
    model_size: str = setting(
        "auto",
        "Size of the built-in transformer; auto is 1b on CUDA and mini on the CPU.",
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
        False,
        "Keep only each block's input and compute its activations again in backward (built-in and Hugging "
        "Face models).",
    )
    channels_last: bool = setting(
        False, "Store images and the weights of convolutions as torch.channels_last does."
    )
    precision: str = setting(
        FP32,
        "bf16 runs forward under autocast; tf32 lets a GPU multiply fp32 in TF32 "
        "(torch.set_float32_matmul_precision).",
        choices=PRECISIONS,
    )
    weights_dtype: str = setting(
        AUTO,
        "Type of the weights of a Hugging Face model; auto is the one that its config names, else fp32.",
        choices=(AUTO, FP32, BF16),
    )
    device: str = setting(
        "auto",
        "auto is CUDA if available, else the CPU; for an estimate always CUDA.",
        choices=("auto", "cpu", "cuda"),
    )
    data: str = setting(
        "random", "Tokens: random (uniform), zipf (natural frequencies) or the path of a UTF-8 text file."
    )
    workload: str = setting(
        BUILT_IN_WORKLOAD,
        f"The built-in {', '.join(_LISTED)}, or package.module:factory to train something of your own.",
    )
    workload_options: str = setting(
        "", "Options of a workload of your own, which its factory reads: name=value,name=value."
    )
    model_name: str = setting(
        "",
        "Name of a model of your own in titles and in the names of runs; by default its factory's, or its "
        "module's if the factory is called factory, model or the like.",
    )
    train: str = setting(
        ALL,
        "Parameters that train: all (as the workload made them), lora (adapters alone), or a list of bias, "
        "head (the last layer), patterns of parameter names such as blocks.0.*, and exclusions: "
        "all,!*position_embeddings*.",
    )
    lora_rank: int = setting(LORA_RANK, "Rank of the adapters with train=lora.", minimum=1)
    lora_targets: str = setting(
        LORA_TARGETS,
        "Modules that get adapters with train=lora: endings of their names, separated by commas. auto takes "
        "peft's choice for a model that it knows, else all nn.Linear but the last.",
    )
    adapter_dtype: str = setting(
        FP32,
        "Type of the adapters with train=lora: peft makes them in fp32 whatever the weights are, unless "
        "autocast_adapter_dtype=False, which is bf16 here, for weights in bf16.",
        choices=(FP32, BF16),
    )
    loop: str = setting(
        "documented",
        "Training loop: documented is the one in PyTorch's or Opacus's tutorial; lean adds every memory "
        "saving that needs no patch to the library.",
        choices=LOOPS,
    )
    parallel: str = setting(
        NONE,
        "How several ranks share the training: ddp keeps a whole model on each, fsdp2 shards parameters, "
        "gradients and optimizer state.",
        choices=PARALLEL,
    )
    world_size: int = setting(
        1, "Ranks, one for each GPU; batch_size is that of one rank.", minimum=1, below=2**20
    )
    optimizer: str = setting(
        SGD,
        "Underlying optimizer, of torch.optim; adamw8bit, of bitsandbytes, in estimates alone.",
        choices=OPTIMIZERS,
    )
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
    seed: int = setting(0, "Seed of the weights, the data and the noise.", minimum=0, below=2**63)

    def __post_init__(self) -> None:
        """Check settings against each other and beyond their ranges. Raises ConfigError."""
        if self.optimizer != SGD and self.momentum:
            only = f"0 with optimizer={self.optimizer}, which has no such setting"
            raise refuse("momentum", self.momentum, only)
        if self.poisson_sampling and self.accumulation_steps > 1:
            raise refuse(
                "accumulation_steps",
                self.accumulation_steps,
                "1 with poisson_sampling=true; a sampled batch that is split needs only the memory of its "
                "physical batches, so measure those without poisson_sampling",
            )
        if self.activation_checkpointing and listed(self.workload) not in (BUILT_IN_WORKLOAD, HUGGING_FACE):
            of_these = f"false with any workload but {BUILT_IN_WORKLOAD} and {HUGGING_FACE}:NAME"
            raise refuse("activation_checkpointing", True, of_these)
        if self.model_name and self.workload == BUILT_IN_WORKLOAD:
            raise refuse("model_name", self.model_name, f"with any workload but {BUILT_IN_WORKLOAD}")
        if not re.fullmatch(r"[\w.-]*", self.model_name):
            raise refuse("model_name", self.model_name, "letters, digits, '_', '-' and '.'")
        if self.named_options and listed(self.workload) in WORKLOADS:
            raise refuse("workload_options", self.workload_options, "only with a workload of your own")
        if self.weights_dtype != AUTO and listed(self.workload) != HUGGING_FACE:
            raise refuse(
                "weights_dtype", self.weights_dtype, f"{AUTO} with any workload but huggingface:NAME"
            )
        self._check_train()
        self._check_parallel()
        for limit in trainer_info(self.trainer).limits:
            if (given := getattr(self, limit.setting)) != limit.only:
                only = str(limit.only).lower()
                raise refuse(limit.setting, given, f"{only} with {short_name(self.trainer)}: {limit.why}")
        if listed(self.workload) == self.workload and not re.fullmatch(r"[\w.]+:\w+|\w+", self.workload):
            raise self._refused_workload()

    def _check_train(self) -> None:
        if not items(self.train) or NOT in items(self.train):
            raise refuse("train", self.train, f"{', '.join(MODES)} or patterns of parameter names")
        if self.train != LORA and any(LORA in each for each in choices(self.train)):
            raise refuse("train", self.train, "lora alone: nothing else trains beside adapters")
        defaults = {"lora_rank": LORA_RANK, "lora_targets": LORA_TARGETS, "adapter_dtype": FP32}
        for name, default in defaults.items():
            if self.train != LORA and (given := getattr(self, name)) != default:
                raise refuse(name, given, f"{default} unless train=lora")
        if self.train == LORA and not items(self.lora_targets):
            raise refuse("lora_targets", self.lora_targets, "auto, or endings of the names of modules")

    def _check_parallel(self) -> None:
        if self.world_size > 1 and self.parallel == NONE:
            raise refuse(
                "world_size", self.world_size, "1 with parallel=none; parallel=ddp or fsdp2 takes more"
            )
        ways = trainer_info(self.trainer).parallel
        if self.parallel not in ways:
            raise refuse("parallel", self.parallel, f"{' or '.join(ways)} with {short_name(self.trainer)}")
        if self.parallel != NONE and self.poisson_sampling:
            raise refuse("parallel", self.parallel, "none with poisson_sampling=true")
        if self.parallel == FSDP2 and self.optimizer == ADAFACTOR:
            raise refuse("optimizer", ADAFACTOR, "another with fsdp2: torch's cannot step sharded parameters")

    def _refused_workload(self) -> ConfigError:
        return refuse("workload", self.workload, f"{', '.join(_LISTED)} or package.module:factory")

    @property
    def named_options(self) -> dict[str, Any]:
        """Options of the user's own workload, values as JSON where possible."""
        return assignments("workload_options", self.workload_options)

    @property
    def trainer_title(self) -> str:
        """Name of the trainer, safe in names of files and metrics: `module.Class` of a place."""
        return self.trainer.replace(":", ".")

    @property
    def model_title(self) -> str:
        """Short name of the training, safe in file names: the size or the model's name, then what differs.

        Sizes that differ from `model_size` follow: `1b-hidden64-layers2`; so does partial training:
        `1b-lora8`.
        """
        if self.workload == BUILT_IN_WORKLOAD:
            name = self.model_size
        elif self.model_name:
            name = self.model_name
        elif listed(self.workload) == HUGGING_FACE:
            name = re.sub(r"[^\w.-]", "-", short_model_name(self.of_listed))
            name = name if self.weights_dtype == AUTO else f"{name}-{self.weights_dtype}"
        else:
            module, _, name = self.workload.rpartition(":")
            name = module.rpartition(".")[2] if module and _SAYS_NOTHING.fullmatch(name) else name
        return self.titled(name)

    def titled(self, name: str) -> str:
        """Append to a model's name the sizes that were changed, and the parameters that train."""
        own = MODEL_SIZES.get(self.model_size, {})
        changed = [
            f"{size.removeprefix('num_').partition('_')[0]}{given}"
            for size in SIZE_FIELDS
            if (given := getattr(self, size)) and given != own.get(size)
        ]
        layout = "channels-last" if self.channels_last else ""
        return "-".join(filter(None, [name, *changed, layout, self.train_name]))

    @property
    def of_listed(self) -> str:
        """Part of a listed workload's name after the colon: `gpt2` of `huggingface:gpt2`."""
        return self.workload.partition(":")[2]

    @property
    def has_own_sizes(self) -> bool:
        """True if the workload's name alone determines the model's size."""
        info = WORKLOADS.get(listed(self.workload))
        return info is not None and info.own_sizes

    @property
    def train_name(self) -> str:
        """Short name of the parameters that train, safe in file names; empty for all."""
        return train_name(self.train, self.lora_rank, self.lora_targets, self.adapter_dtype)

    @property
    def run_name(self) -> str:
        """Name of run and folder: `<Trainer>_<model>_bs<B>_seq<T>`, with several ranks `_<parallel>x<N>`."""
        name = f"{self.trainer_title}_{self.model_title}_bs{self.batch_size}_seq{self.seq_len}"
        return name if self.parallel == NONE else f"{name}_{self.parallel}x{self.world_size}"

    def resolve(self, *, cuda_available: bool) -> Self:
        """Replace every `auto` and 0 by its value on this machine.

        Raises ConfigError if trainer, workload or peft are not available, if `device=cuda` without CUDA, if
        the model's sizes do not fit together, or if the text file cannot be used.
        """
        parse(fields(TrainingConfig)["trainer"], self.trainer)
        name = listed(self.workload)
        if ":" not in self.workload and (name not in WORKLOADS or WORKLOADS[name].named):
            raise self._refused_workload()
        if name == HUGGING_FACE:
            family_of(self.of_listed)
        if self.train == LORA and importlib.util.find_spec("peft") is None:
            raise ConfigError("train: lora needs the package peft: pip install 'dpprof[models]'")
        device = resolve_device(self.device, cuda_available=cuda_available)
        if device == "cpu" and self.precision == TF32:
            raise refuse("precision", TF32, f"{FP32} and {BF16} on the CPU: {TF32} needs CUDA")
        resolved = dataclasses.replace(self, device=device, **self._sizes(device))
        if resolved.workload == BUILT_IN_WORKLOAD:
            resolved._check_model()
        if len(resolved.run_name.encode()) > LONGEST_NAME:
            raise refuse("workload", self.workload, "a shorter name: the folder of the run is named after it")
        return resolved

    def _sizes(self, device: str) -> dict[str, Any]:
        """Resolve the model's sizes. Raises ConfigError for those that the workload does not have."""
        if self.has_own_sizes:
            for name, default in (*((name, 0) for name in SIZE_FIELDS), ("attention", "sdpa")):
                if (given := getattr(self, name)) != default:
                    raise refuse(name, given, f"{default} with {self.workload}, whose model is what it names")
            return {"model_size": "auto"}
        model_size = self.model_size
        if model_size == "auto":
            model_size = "1b" if device == "cuda" else "mini"
        sizes = {name: getattr(self, name) or size for name, size in MODEL_SIZES[model_size].items()}
        return {"model_size": model_size} | sizes

    def _check_model(self) -> None:
        if self.hidden_dim % self.num_heads:
            raise refuse("hidden_dim", self.hidden_dim, f"a multiple of num_heads, which is {self.num_heads}")
        if self.data in BUILT_IN_DATA:
            return
        allowed = f"{', '.join(BUILT_IN_DATA)}, or the path of a UTF-8 text file"
        if not os.path.isfile(self.data):  # also false if the name is too long
            raise refuse("data", self.data, f"{allowed}; there is no such file")
        if Path(self.data).stat().st_size <= self.seq_len:
            raise refuse("data", self.data, f"{allowed} of more bytes than seq_len, which is {self.seq_len}")
        try:
            Path(self.data).read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError) as error:
            raise refuse("data", self.data, f"{allowed}; this one cannot be read: {error}") from None
        if self.vocab_size < 256:
            raise refuse("vocab_size", self.vocab_size, "at least 256 with a text file (byte tokens)")


def resolve_device(device: str, *, cuda_available: bool) -> str:
    """Return cuda or cpu for `auto`. Raises ConfigError for cuda without CUDA."""
    if device == "cuda" and not cuda_available:
        raise refuse("device", device, "cpu or auto: torch finds no CUDA device on this machine")
    if device == "auto":
        return "cuda" if cuda_available else "cpu"
    return device


def family_of(name: str) -> Family:
    """Return a listed family, or that of a config file or folder. Raises ConfigError if it cannot be used."""
    if name in FAMILIES:
        return FAMILIES[name]
    path = config_file(name)
    try:
        config = read_json(path)
        model_type, architectures = config["model_type"], config.get("architectures") or [""]
    except DpprofError as error:
        raise ConfigError(f"workload: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"workload: {path} is no config of transformers with a model_type: {error}"
        ) from None
    is_lm = str(architectures[0]).endswith(("ForCausalLM", "LMHeadModel"))
    return Family(str(model_type), CAUSAL_LM if is_lm else CLASSIFICATION)


def config_file(name: str) -> Path:
    """Return the config file of a path. Raises ConfigError if there is none."""
    path = Path(name)
    path = path / CONFIG_FILE if path.is_dir() else path
    if not path.is_file():
        raise refuse("workload", f"huggingface:{name}", f"huggingface:NAME with NAME {NAMED_HELP}")
    return path


def short_model_name(name: str) -> str:
    """Return the model's part of a run's name: the family, or the folder or file of a path."""
    if name in FAMILIES:
        return name
    path = Path(name)
    return path.resolve().parent.name if path.name == CONFIG_FILE else path.stem
