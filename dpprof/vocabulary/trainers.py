"""The table of trainers, free of torch: all that is known of a trainer without its code.

Another package adds a trainer by an entry point of the group `dpprof.trainers` that names a `TrainerInfo`.
"""

from dpprof.vocabulary import theory
from dpprof.vocabulary.clipping import PerSampleOptions
from dpprof.vocabulary.opacus_ways import OPACUS_WAYS
from dpprof.vocabulary.parallel import DDP, NONE, PARALLEL
from dpprof.vocabulary.registry import table
from dpprof.vocabulary.trainer_info import (
    OF_ANY_TRAINING,
    OF_FLAT_CLIPPING,
    ONE_BACKWARD,
    OPACUS_EACH_BATCH,
)
from dpprof.vocabulary.trainer_info import TrainerInfo as TrainerInfo

ENTRY_POINTS = "dpprof.trainers"
# The trainer that every other one is held against: what training costs without privacy.
STANDARD = "StandardTrainer"
# The colour of whatever the tables do not list.
UNLISTED_COLOR = "#b3b3b3"
# Norms first, then the clipped sum.
_TWO_BACKWARDS = (
    "zero_grad",
    "forward",
    "backward_norms",
    "clip",
    "backward_weighted",
    "noise",
    "optimizer_step",
)

BUILT_IN = (
    TrainerInfo(
        STANDARD,
        "standard",
        is_private=False,
        color="#7f7f7f",
        phases=("zero_grad", "forward", "backward", "optimizer_step"),
        categories=OF_ANY_TRAINING,
        target="dpprof.measure.trainers.standard:StandardTrainer",
        parallel=PARALLEL,
        theory=theory.standard,
    ),
    TrainerInfo(
        "DPSGDTrainer",
        "flat",
        is_private=True,
        color="#d55e00",
        phases=ONE_BACKWARD,
        categories=OF_FLAT_CLIPPING,
        target="dpprof.measure.trainers.opacus.dpsgd:DPSGDTrainer",
        each_batch=OPACUS_EACH_BATCH,
        unaccounted="",
        parallel=(NONE, DDP),
        theory=theory.flat,
        former_names=("dpsgd",),
    ),
    TrainerInfo(
        "DPGhostClippingTrainer",
        "ghost",
        is_private=True,
        color="#0072b2",
        phases=_TWO_BACKWARDS,
        categories=(
            *OF_ANY_TRAINING,
            "summed_gradients",
            "per_sample_gradients",
            "gradient_norms",
            "gram_matrices",
            "clip_factors",
            "noise",
        ),
        target="dpprof.measure.trainers.opacus.ghost_clipping:DPGhostClippingTrainer",
        each_batch=OPACUS_EACH_BATCH,
        unaccounted="",
        parallel=PARALLEL,
        theory=theory.ghost,
        former_names=("dpsgd_ghost",),
    ),
    TrainerInfo(
        "DPFastGradientClippingTrainer",
        "fast",
        is_private=True,
        color="#009e73",
        phases=_TWO_BACKWARDS,
        categories=(
            *OF_ANY_TRAINING,
            "summed_gradients",
            "per_sample_gradients",
            "gradient_norms",
            "clip_factors",
            "noise",
        ),
        target="dpprof.measure.trainers.opacus.fast_gradient_clipping:DPFastGradientClippingTrainer",
        each_batch=OPACUS_EACH_BATCH,
        unaccounted="",
        parallel=PARALLEL,
        theory=theory.fast,
        former_names=("dpsgd_fast",),
    ),
    TrainerInfo(
        "DPBookKeepingTrainer",
        "bk",
        is_private=True,
        color="#5a96d2",
        phases=ONE_BACKWARD,
        categories=(
            *OF_ANY_TRAINING,
            "per_sample_gradients",
            "output_gradients",
            "gradient_norms",
            "gram_matrices",
            "clip_factors",
            "noise",
        ),
        target="dpprof.measure.trainers.per_sample.book_keeping:DPBookKeepingTrainer",
        unaccounted="",
        parallel=PARALLEL,
        theory=theory.book_keeping,
        options=PerSampleOptions,
    ),
    TrainerInfo(
        "DPMixedGhostTrainer",
        "mixed",
        is_private=True,
        color="#870fff",
        phases=_TWO_BACKWARDS,
        categories=(
            *OF_ANY_TRAINING,
            "per_sample_gradients",
            "output_gradients",
            "gradient_norms",
            "gram_matrices",
            "clip_factors",
            "noise",
        ),
        target="dpprof.measure.trainers.per_sample.mixed_ghost:DPMixedGhostTrainer",
        unaccounted="",
        parallel=PARALLEL,
        theory=theory.mixed_ghost,
        options=PerSampleOptions,
    ),
    *OPACUS_WAYS,
)
TRAINERS = table(ENTRY_POINTS, TrainerInfo, BUILT_IN)
# What may be given for a trainer, and the name that it stands for.
TRAINER_NAMES = {name: name for name in TRAINERS}
for _info in TRAINERS.values():
    TRAINER_NAMES.setdefault(_info.short_name, _info.name)  # of two with one short name, the first has it
# Those of them that earlier versions listed.
FORMER_TRAINER_NAMES = frozenset(name for info in TRAINERS.values() for name in info.former_names)
for _info in TRAINERS.values():
    for _name in _info.former_names:
        TRAINER_NAMES.setdefault(_name, _info.name)


# The trainers that are meant where none is named, and the words for these and for all that there are.
DEFAULT_TRAINERS = tuple(info.name for info in TRAINERS.values() if info.is_default)
TRAINER_GROUPS = {"all": DEFAULT_TRAINERS, "every": tuple(TRAINERS)}
TRAINERS_HELP = (
    f"Trainers. all: {', '.join(TRAINERS[name].short_name for name in DEFAULT_TRAINERS)}; every: also "
    f"{', '.join(info.short_name for info in TRAINERS.values() if not info.is_default)}."
)


def trainers_named(text: str) -> list[str]:
    """The items of a list of trainers, with the members of a group in its place."""
    return [name for item in text.split(",") for name in TRAINER_GROUPS.get(item.strip(), (item,))]


def trainer_info(name: str) -> TrainerInfo:
    """What is known of a trainer. One that is not in the table, as in a folder that another machine left,
    counts as private and has a grey and its own name.
    """
    return TRAINERS.get(name) or TrainerInfo(name, name, True, UNLISTED_COLOR, (), (), "")


def trainer_order(name: str) -> tuple[int, str]:
    """What sorts trainers as the table lists them, those that are not in it last, by name."""
    return (list(TRAINERS).index(name) if name in TRAINERS else len(TRAINERS), name)


def short_name(name: str) -> str:
    """What a trainer is called where room is short: its own name if another has its short one."""
    short = trainer_info(name).short_name
    return short if TRAINER_NAMES.get(short, name) == name else name
