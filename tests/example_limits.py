"""A trainer of another package, without its code: it cannot do much, and trains another algorithm."""

from dpprof.vocabulary.clipping import LAYER_WISE, OTHER_ALGORITHMS
from dpprof.vocabulary.trainer_info import OF_FLAT_CLIPPING, ONE_BACKWARD, Limit, TrainerInfo

LIMITED = TrainerInfo(
    "LimitedTrainer",
    "limited",
    is_private=True,
    color="#123456",
    phases=ONE_BACKWARD,
    categories=OF_FLAT_CLIPPING,
    target="example_package.trainer:LimitedTrainer",
    unaccounted="",
    is_default=False,
    other_algorithm=OTHER_ALGORITHMS[LAYER_WISE],
    limits=(
        Limit("precision", "fp32", "it does not follow autocast; use flat"),
        Limit("poisson_sampling", False, "it takes no empty batch; use flat"),
        Limit("accumulation_steps", 1, "it cannot add up batches; use flat"),
        Limit("activation_checkpointing", False, "it does not see what backward computes again; use flat"),
    ),
)
