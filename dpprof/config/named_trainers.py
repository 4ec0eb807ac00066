"""Trainers that a user names by where they are, without installing a package: `package.module:ATTRIBUTE`.

This is the only place that imports their code. It is called where a user's own options are parsed, and by the
measuring process, which runs what its folder names. Whatever is read from folders, stores, plans and exports
only looks names up. Such a trainer's name is its place, so it cannot be taken for another one.
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

PLACE = r"\w+(\.\w+)*:\w+"


def load_named(names: object) -> None:
    """Import the trainers at the places in a list of names, and add them to the table of trainers.

    Raises ConfigError if a place has none.
    """
    for name in str(names).split(","):
        place = name.strip()
        if place not in TRAINER_NAMES and re.fullmatch(PLACE, place):
            _add(place)


def _add(place: str) -> None:
    info = _info_at(place)
    if TRAINERS.get(info.name) == info:  # an installed package has it too
        TRAINER_NAMES[place] = info.name
        return
    TRAINERS[place] = replace(info, name=place)
    TRAINER_NAMES[place] = place
    TRAINER_NAMES.setdefault(info.short_name, place)


def _info_at(place: str) -> TrainerInfo:
    """Return the description at a place, or that of DP-SGD with one backward pass for a class there."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = load(place)
    except SystemExit:
        raise refuse("trainer", place, "a module that can be imported; this one calls sys.exit") from None
    except Exception as error:
        raise refuse(
            "trainer", place, f"package.module:CLASS, or :INFO of it ({describe_error(error)})"
        ) from None
    if isinstance(found, TrainerInfo):
        return found
    if not isinstance(found, type) or not callable(getattr(found, "step", None)):
        raise refuse("trainer", place, "the place of a class derived from TrainerBase, or of a TrainerInfo")
    return TrainerInfo(
        place, found.__name__, True, UNLISTED_COLOR, ONE_BACKWARD, OF_FLAT_CLIPPING, place, is_default=False
    )
