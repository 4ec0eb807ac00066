"""Trainers that a user names by where they are, without installing a package: `package.module:ATTRIBUTE`.

Only this module imports their code. It is called where a user's own options are parsed, and by the measuring
process, which runs what its folder names. Whatever is read from folders, stores, plans and exports
only looks names up. Such a trainer's name is `module:CLASS`, so it cannot be taken for another one.
"""

import os
import re
import sys
from dataclasses import replace
from typing import Any

from dpprof.errors import describe_error, refuse
from dpprof.vocabulary.registry import load
from dpprof.vocabulary.trainer_info import OF_FLAT_CLIPPING, ONE_BACKWARD, UNLISTED_COLOR, TrainerInfo
from dpprof.vocabulary.trainers import TRAINER_NAMES, TRAINERS

TARGET = r"\w+(\.\w+)*:\w+"


def load_named(names: object) -> None:
    """Import the trainers that a list of names has as `module:CLASS`, and add them to the table of trainers.

    Raises ConfigError if one cannot be had.
    """
    for name in str(names).split(","):
        target = name.strip()
        if target not in TRAINER_NAMES and re.fullmatch(TARGET, target):
            _add(target)


def _add(target: str) -> None:
    info = _info_at(target)
    if TRAINERS.get(info.name) == info:  # an installed package has it too
        TRAINER_NAMES[target] = info.name
        return
    TRAINERS[target] = replace(info, name=target)
    TRAINER_NAMES[target] = target
    TRAINER_NAMES.setdefault(info.short_name, target)


def _info_at(target: str) -> TrainerInfo:
    """Return the description at a target, or that of DP-SGD with one backward pass for a class there."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = load(target)
    except SystemExit:
        raise refuse("trainer", target, "a module that can be imported; this one calls sys.exit") from None
    except Exception as error:
        raise refuse(
            "trainer", target, f"package.module:CLASS, or :INFO of it ({describe_error(error)})"
        ) from None
    if isinstance(found, TrainerInfo):
        return found
    if not isinstance(found, type) or not callable(getattr(found, "step", None)):
        raise refuse("trainer", target, "the name of a class derived from TrainerBase, or of a TrainerInfo")
    return TrainerInfo(
        target, found.__name__, True, UNLISTED_COLOR, ONE_BACKWARD, OF_FLAT_CLIPPING, target, is_default=False
    )
