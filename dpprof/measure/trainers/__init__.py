"""The optimisation algorithms, by their canonical names. A new trainer is one file and one line here."""

from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.dpsgd import DPSGDTrainer
from dpprof.measure.trainers.fast_gradient_clipping import DPFastGradientClippingTrainer
from dpprof.measure.trainers.ghost_clipping import DPGhostClippingTrainer
from dpprof.measure.trainers.standard import StandardTrainer

TRAINER_CLASSES: dict[str, type[TrainerBase]] = {
    "StandardTrainer": StandardTrainer,
    "DPSGDTrainer": DPSGDTrainer,
    "DPGhostClippingTrainer": DPGhostClippingTrainer,
    "DPFastGradientClippingTrainer": DPFastGradientClippingTrainer,
}
