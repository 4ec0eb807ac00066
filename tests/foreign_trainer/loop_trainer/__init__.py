"""What dpprof knows of the trainer without its code: no torch here."""

from dataclasses import dataclass

from dpprof.vocabulary.settings import setting
from dpprof.vocabulary.trainer_info import TrainerInfo


@dataclass(frozen=True)
class LoopOptions:
    """The trainer's own settings."""

    free_per_sample: bool = setting(True, "Free the per-sample gradients after clipping.")


LOOP = TrainerInfo(
    "LoopTrainer",
    "dpsgd_loop",
    is_private=True,
    color="#7f3c8d",
    phases=("zero_grad", "forward", "per_sample_backward", "clip", "noise", "optimizer_step"),
    categories=(
        "parameters",
        "buffers",
        "optimizer_state",
        "inputs",
        "outputs",
        "activations",
        "gradients",
        "summed_gradients",
        "flat_gradients",
        "clip_factors",
        "noise",
    ),
    each_batch=("forward", "per_sample_backward", "clip"),
    target="loop_trainer.trainer:LoopTrainer",
    options=LoopOptions,
    unaccounted="",
)
