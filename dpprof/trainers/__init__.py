"""The optimisation algorithms, by their canonical names. A new trainer is one file and one line here."""

from dpprof.trainers.base import TrainerBase
from dpprof.trainers.dpsgd import DPSGDTrainer
from dpprof.trainers.fast_gradient_clipping import DPFastGradientClippingTrainer
from dpprof.trainers.ghost_clipping import DPGhostClippingTrainer
from dpprof.trainers.standard import StandardTrainer

TRAINER_CLASSES: dict[str, type[TrainerBase]] = {
    "StandardTrainer": StandardTrainer,
    "DPSGDTrainer": DPSGDTrainer,
    "DPGhostClippingTrainer": DPGhostClippingTrainer,
    "DPFastGradientClippingTrainer": DPFastGradientClippingTrainer,
}
