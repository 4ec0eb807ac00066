"""Trainers that a user names by where they are, without installing a package: `package.module:ATTRIBUTE`."""

import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from dpprof.errors import describe_error, refuse
from dpprof.vocabulary.registry import load
from dpprof.vocabulary.trainer_info import OF_FLAT_CLIPPING, ONE_BACKWARD, UNLISTED_COLOR, TrainerInfo

# Tells the processes that this one starts where its named trainers are: their names with their places, JSON.
_PLACES = "DPPROF_TRAINERS"


class TrainerNames(dict[str, str]):
    """Names of trainers by what a user may give for each. A place is added to them when it is asked for."""

    def __init__(self, names: Mapping[str, str], trainers: dict[str, TrainerInfo]) -> None:
        super().__init__(names)
        self._trainers = trainers

    def __contains__(self, text: object) -> bool:
        """Tell if there is such a trainer. Raises ConfigError if a place has none."""
        if not super().__contains__(text) and isinstance(text, str):
            places = json.loads(os.environ.get(_PLACES, "{}"))
            place = places.get(text, text)
            if re.fullmatch(r"\w+(\.\w+)*:\w+", place):
                info = _info_at(place)
                if self._trainers.setdefault(info.name, info) != info:
                    raise refuse("trainer", place, f"a class of another name, as {info.name} is taken")
                for name in (info.name, info.short_name, place):
                    self.setdefault(name, info.name)
                os.environ[_PLACES] = json.dumps(places | {info.name: place})
        return super().__contains__(text)


def _info_at(place: str) -> TrainerInfo:
    """Return the description at a place, or that of DP-SGD with one backward pass for a class there."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = load(place)
    except Exception as error:
        raise refuse(
            "trainer", place, f"package.module:CLASS, or :INFO of it ({describe_error(error)})"
        ) from None
    if isinstance(found, TrainerInfo):
        return found
    if not isinstance(found, type) or not callable(getattr(found, "step", None)):
        raise refuse("trainer", place, "the place of a class derived from TrainerBase, or of a TrainerInfo")
    name = found.__name__
    return TrainerInfo(
        name, name, True, UNLISTED_COLOR, ONE_BACKWARD, OF_FLAT_CLIPPING, place, is_default=False
    )
