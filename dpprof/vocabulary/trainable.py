"""Choice of the parameters that train: values of the setting `train`, and their names in runs."""

import hashlib
import re

ALL, LORA, BIAS, HEAD = MODES = ("all", "lora", "bias", "head")
LORA_RANK, LORA_TARGETS = 8, "auto"
_LONGEST_SLUG = 24


def endings(targets: str) -> list[str]:
    """Return the endings of module names in `lora_targets`."""
    return [ending.strip() for ending in targets.split(",") if ending.strip()]


def train_name(train: str, lora_rank: int, lora_targets: str) -> str:
    """Return the part of a run's name for `train`: unique for each value, and safe in file names.

    Empty for `all`; `lora8`, `bias`, `head`; else letters of the pattern and part of its hash.
    """
    if train == ALL:
        return ""
    if train == LORA:
        own = "" if lora_targets == LORA_TARGETS else f"-{_slug(lora_targets)}"
        return f"{LORA}{lora_rank}{own}"
    return train if train in MODES else _slug(train)


def _slug(text: str) -> str:
    letters = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:_LONGEST_SLUG]
    return f"{letters}-{hashlib.sha256(text.encode()).hexdigest()[:6]}".lstrip("-")
