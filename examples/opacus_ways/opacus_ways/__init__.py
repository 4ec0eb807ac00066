"""Opacus's other ways to compute and clip per-sample gradients, as dpprof trainers; imports no torch."""

from functools import partial

from dpprof.vocabulary import theory
from dpprof.vocabulary.clipping import LAYER_WISE, OTHER_ALGORITHMS
from dpprof.vocabulary.trainer_info import (
    OF_FLAT_CLIPPING,
    ONE_BACKWARD,
    OPACUS,
    OPACUS_EACH_BATCH,
    Limit,
    TrainerInfo,
)

_way = partial(
    TrainerInfo,
    is_private=True,
    library=OPACUS,
    phases=ONE_BACKWARD,
    categories=OF_FLAT_CLIPPING,
    each_batch=OPACUS_EACH_BATCH,
    unaccounted="",
    is_default=False,
)
FUNCTORCH = _way(
    "DPFunctorchTrainer",
    "functorch",
    color="#b42d96",
    symbol="x",
    target="opacus_ways.trainers:DPFunctorchTrainer",
    limits=(Limit("poisson_sampling", False, "vmap takes no empty batch; use flat"),),
)
EW = _way(
    "DPExpandedWeightsTrainer",
    "ew",
    color="#b469ff",
    symbol="left",
    target="opacus_ways.expanded_weights:DPExpandedWeightsTrainer",
    limits=(
        Limit("precision", "fp32", "expanded weights do not follow autocast; use flat"),
        Limit("poisson_sampling", False, "expanded weights take no empty batch; use flat"),
        Limit(
            "activation_checkpointing",
            False,
            "what backward computes again has no expanded weights; use flat",
        ),
    ),
)
PER_LAYER = _way(
    "DPPerLayerClippingTrainer",
    "per_layer",
    color="#ff2d69",
    symbol="right",
    target="opacus_ways.trainers:DPPerLayerClippingTrainer",
    other_algorithm=OTHER_ALGORITHMS[LAYER_WISE],
    theory=theory.flat,
    limits=(
        Limit(
            "precision",
            "fp32",
            "DPPerLayerOptimizer leaves bfloat16 gradients on float32 weights; use bk with "
            "clipping=layer_wise",
        ),
    ),
)
ADAPTIVE = _way(
    "DPAdaptiveClippingTrainer",
    "adaptive",
    color="#c378a5",
    symbol="hourglass",
    target="opacus_ways.trainers:DPAdaptiveClippingTrainer",
    unaccounted="AdaClipDPOptimizer divides the noisy count of unclipped samples by the size of the "
    "drawn batch; accountants, and the theorem that its noise follows, know no such step",
    other_algorithm="C follows the samples' norms",
    theory=theory.flat,
    limits=(
        Limit("precision", "fp32", "AdaClipDPOptimizer multiplies float32 by bfloat16; use flat"),
        Limit("poisson_sampling", False, "AdaClipDPOptimizer takes no empty batch; use flat"),
        Limit(
            "accumulation_steps",
            1,
            "AdaClipDPOptimizer counts the unclipped samples of the last physical batch alone; use a "
            "larger batch_size, or flat",
        ),
    ),
)
UNWRAPPED = _way(
    "DPNonWrappingTrainer",
    "unwrapped",
    color="#b43c4b",
    symbol="bow",
    target="opacus_ways.trainers:DPNonWrappingTrainer",
    theory=theory.flat,
)
WAYS = (FUNCTORCH, EW, PER_LAYER, ADAPTIVE, UNWRAPPED)
