"""Choice of the parameters that train: values of the setting `train`, and their names in runs."""

import hashlib
import re

from dpprof.vocabulary.precision import FP32

ALL, LORA, BIAS, HEAD = MODES = ("all", "lora", "bias", "head")
LORA_RANK, LORA_TARGETS = 8, "auto"
# Before a pattern of parameters that do not train.
NOT = "!"
_LONGEST_SLUG = 24


def items(text: str) -> list[str]:
    """Return the items of a list with commas, such as endings of module names in `lora_targets`."""
    return [item.strip() for item in text.split(",") if item.strip()]


def choices(train: str) -> tuple[list[str], list[str]]:
    """Return what `train` names to train, and what it excludes by a `!`: modes and patterns.

    Exclusions alone exclude from all.
    """
    excluded = [item[1:].strip() for item in items(train) if item.startswith(NOT)]
    chosen = [item for item in items(train) if not item.startswith(NOT)]
    return chosen or [ALL], excluded


def train_name(train: str, lora_rank: int, lora_targets: str, adapter_dtype: str = FP32) -> str:
    """Return the part of a run's name for `train`: unique for each value, and safe in file names.

    Empty for `all`; `lora8`, `lora8-bf16`, `bias`, `head`; else letters of the pattern and part of its hash.
    """
    if train == ALL:
        return ""
    if train == LORA:
        own = "" if lora_targets == LORA_TARGETS else f"-{_slug(lora_targets)}"
        dtype = "" if adapter_dtype == FP32 else f"-{adapter_dtype}"
        return f"{LORA}{lora_rank}{own}{dtype}"
    return train if train in MODES else _slug(train)


def _slug(text: str) -> str:
    letters = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:_LONGEST_SLUG]
    return f"{letters}-{hashlib.sha256(text.encode()).hexdigest()[:6]}".lstrip("-")
