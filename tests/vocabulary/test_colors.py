"""On a page one colour means one thing, and what lies side by side can be told apart, colour-blind or not."""

import itertools
import math

import numpy as np
import pytest

from dpprof.vocabulary.categories import CATEGORIES
from dpprof.vocabulary.colors import (
    CATEGORY_COLORS,
    CLASS_COLORS,
    PHASE_COLORS,
    UNITEMISED_COLOR,
    ink,
    luminance,
    trainer_color,
)
from dpprof.vocabulary.operator_classes import OPERATOR_CLASSES
from dpprof.vocabulary.phases import PHASES
from dpprof.vocabulary.trainer_info import UNLISTED_COLOR
from dpprof.vocabulary.trainers import BUILT_IN

TRAINER_COLORS = {info.name: info.color for info in BUILT_IN}
PAGES = {
    "comparison": [TRAINER_COLORS, CATEGORY_COLORS, PHASE_COLORS, {"not itemised": UNITEMISED_COLOR}],
    "timeline": [TRAINER_COLORS, CATEGORY_COLORS, CLASS_COLORS],
    "roofline": [TRAINER_COLORS, PHASE_COLORS],
}
# Distances in OKLab (B. Ottosson, "A perceptual color space for image processing", 2020): 0.02 is just seen.
APART, SIDE_BY_SIDE = 0.05, 0.08
TO_LMS = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
TO_LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]
# G. Machado et al., "A physiologically-based model for simulation of color vision deficiency", 2009.
SEEN_BY = {
    "everyone": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopes": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopes": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
}


def linear(color: str) -> list[float]:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def distance(one: str, other: str, reader: str = "everyone") -> float:
    """How far two colours lie apart, as a reader sees them."""
    seen = [np.clip(np.array(SEEN_BY[reader]) @ linear(color), 0, 1) for color in (one, other)]
    first, second = (np.array(TO_LAB) @ np.cbrt(np.array(TO_LMS) @ rgb) for rgb in seen)
    return math.dist(first, second)


def test_the_distance_is_the_published_one() -> None:
    assert distance("#ffffff", "#000000") == pytest.approx(1, abs=1e-4)
    assert distance("#ff0000", "#000000") == pytest.approx(math.hypot(0.628, 0.225, 0.126), abs=1e-3)
    assert distance("#d55e00", "#7f7f00", "protanopes") < distance("#d55e00", "#7f7f00") / 2


@pytest.mark.parametrize("page", PAGES)
def test_no_colour_means_two_things_on_a_page(page: str) -> None:
    named = [(name, color) for group in PAGES[page] for name, color in group.items()]
    for one, other in itertools.combinations([*named, ("unlisted", UNLISTED_COLOR)], 2):
        assert distance(one[1], other[1]) >= APART, (one, other)


@pytest.mark.parametrize("reader", SEEN_BY)
def test_neighbours_differ_for_every_reader(reader: str) -> None:
    for group in (TRAINER_COLORS, CATEGORY_COLORS, PHASE_COLORS):
        for one, other in itertools.pairwise(group):
            assert distance(group[one], group[other], reader) >= SIDE_BY_SIDE, (one, other)


def contrast(color: str, other: str) -> float:
    """That of WCAG 2.2."""
    low, high = sorted((luminance(color), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("ground", "text"), [("#ffffff", "#000000"), ("#15171b", "#ffffff")])
def test_trainers_stand_out_from_light_and_dark_pages(ground: str, text: str) -> None:
    assert ink(ground) == text
    assert min(contrast(color, ground) for color in TRAINER_COLORS.values()) >= 3, "WCAG 2.2, 1.4.11"


def test_text_on_a_colour_can_be_read() -> None:
    colors = [color for groups in PAGES.values() for group in groups for color in group.values()]
    assert min(contrast(color, ink(color)) for color in colors) >= 4.5


def test_every_name_has_a_colour_and_what_no_table_lists_is_grey() -> None:
    assert list(CATEGORY_COLORS) == [*CATEGORIES, "untracked"]
    assert set(CLASS_COLORS) == set(OPERATOR_CLASSES)
    assert list(PHASE_COLORS) == [*PHASES, "between phases"]
    assert trainer_color("anything else") == UNLISTED_COLOR
    for colors in (CATEGORY_COLORS, CLASS_COLORS, PHASE_COLORS):
        assert colors["anything else"] == UNLISTED_COLOR
        assert "anything else" not in colors
