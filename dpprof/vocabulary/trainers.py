"""Table of trainers, without importing torch or their code.

Another package adds a trainer by an entry point of the group `dpprof.trainers` that names a `TrainerInfo`.
"""

from functools import partial

from dpprof.vocabulary import theory
from dpprof.vocabulary.clipping import NORM_FORMS, PerSampleOptions
from dpprof.vocabulary.parallel import DDP, NONE, PARALLEL
from dpprof.vocabulary.registry import table
from dpprof.vocabulary.trainer_info import (
    OF_ANY_TRAINING,
    OF_FLAT_CLIPPING,
    ONE_BACKWARD,
    OPACUS,
    OPACUS_EACH_BATCH,
    UNLISTED_COLOR,
    Alternative,
    TrainerInfo,
)

ENTRY_POINTS = "dpprof.trainers"
# Baseline of all others: the cost of training without privacy.
STANDARD = "StandardTrainer"
# Stands for the algorithm of a loop that is not dpprof's.
OWN_LOOP = "OwnLoop"
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
_OF_FAST_CLIPPING = (*OF_FLAT_CLIPPING, "gradient_norms")
_OF_OWN_NORMS = (
    *OF_ANY_TRAINING,
    "per_sample_gradients",
    "output_gradients",
    "gradient_norms",
    "gram_matrices",
    "clip_factors",
    "noise",
)
# Noise of `noise_multiplier` * `max_grad_norm` on a clipped sum, which accountants know.
_private = partial(TrainerInfo, is_private=True, unaccounted="", parallel=PARALLEL)
_of_opacus = partial(_private, library=OPACUS, each_batch=OPACUS_EACH_BATCH, is_reentrant=True)
_own = partial(
    _private,
    categories=_OF_OWN_NORMS,
    options=PerSampleOptions,
    alternatives=tuple(Alternative("norm", form, f"{form} norms") for form in NORM_FORMS),
    script="snippet_own",
)
BUILT_IN = (
    TrainerInfo(
        STANDARD,
        "standard",
        is_private=False,
        color="#7f7f7f",
        symbol="circle",
        phases=("zero_grad", "forward", "backward", "optimizer_step"),
        categories=OF_ANY_TRAINING,
        target="dpprof.measure.trainers.standard:StandardTrainer",
        parallel=PARALLEL,
        theory=theory.standard,
    ),
    _of_opacus(
        "DPSGDTrainer",
        "flat",
        color="#d55e00",
        symbol="square",
        phases=ONE_BACKWARD,
        categories=OF_FLAT_CLIPPING,
        target="dpprof.measure.trainers.opacus.dpsgd:DPSGDTrainer",
        parallel=(NONE, DDP),
        script="snippet_per_sample",
        theory=theory.flat,
        times_standard=1.59,
    ),
    _of_opacus(
        "DPGhostClippingTrainer",
        "ghost",
        color="#0072b2",
        symbol="diamond",
        phases=_TWO_BACKWARDS,
        categories=(*_OF_FAST_CLIPPING, "gram_matrices"),
        target="dpprof.measure.trainers.opacus.fast_gradient_clipping:DPGhostClippingTrainer",
        script="snippet_fast",
        theory=theory.ghost,
        times_standard=2.36,
    ),
    _of_opacus(
        "DPFastGradientClippingTrainer",
        "fast",
        color="#009e73",
        symbol="triangle",
        phases=_TWO_BACKWARDS,
        categories=_OF_FAST_CLIPPING,
        target="dpprof.measure.trainers.opacus.fast_gradient_clipping:DPFastGradientClippingTrainer",
        script="snippet_fast",
        theory=theory.fast,
        times_standard=2.23,
    ),
    _own(
        "DPBookKeepingTrainer",
        "bk",
        color="#5a96d2",
        symbol="down",
        phases=ONE_BACKWARD,
        target="dpprof.measure.trainers.per_sample.book_keeping:DPBookKeepingTrainer",
        theory=theory.book_keeping,
        times_standard=1.15,
    ),
    _own(
        "DPMixedGhostTrainer",
        "mixed",
        color="#870fff",
        symbol="star",
        phases=_TWO_BACKWARDS,
        target="dpprof.measure.trainers.per_sample.mixed_ghost:DPMixedGhostTrainer",
        theory=theory.mixed_ghost,
        times_standard=1.53,
    ),
)
_of_entry_points: dict[str, str] = {}
TRAINERS = table(ENTRY_POINTS, TrainerInfo, BUILT_IN, _of_entry_points)
# Trainers that a folder may name, and nobody can ask for.
NOT_OFFERED = frozenset({OWN_LOOP})
# Names of trainers by what a user may give for each; `config/named_trainers.py` adds those at places.
TRAINER_NAMES = {name: name for name in TRAINERS}
_short_names = [(info.short_name, info.name) for info in TRAINERS.values()]
for _other, _name in (*_short_names, *_of_entry_points.items()):
    TRAINER_NAMES.setdefault(_other, _name)  # the first with a name gets it

# Default trainers, and the group names of these and of all.
DEFAULT_TRAINERS = tuple(info.name for info in TRAINERS.values() if info.is_default)
TRAINER_GROUPS = {"all": DEFAULT_TRAINERS, "every": tuple(TRAINERS)}
TRAINERS_HELP = (
    f"Trainers. all: {', '.join(TRAINERS[name].short_name for name in DEFAULT_TRAINERS)}; every: also "
    "those that have to be named. Or package.module:CLASS of your own."
)


def trainer_info(name: str) -> TrainerInfo:
    """Return a trainer's description; an unlisted one counts as private, is grey and keeps its name."""
    is_private = name != OWN_LOOP  # it may be, but its noise is not known
    return TRAINERS.get(name) or TrainerInfo(name, name, is_private, UNLISTED_COLOR, (), (), "")


def trainer_order(name: str) -> tuple[int, str]:
    """Return a sort key: table order, then unlisted trainers by name."""
    return (list(TRAINERS).index(name) if name in TRAINERS else len(TRAINERS), name)


def short_name(name: str) -> str:
    """Return the short name of a trainer, or its full name if another trainer has that short name."""
    short = trainer_info(name).short_name
    return short if TRAINER_NAMES.get(short, name) == name else name
