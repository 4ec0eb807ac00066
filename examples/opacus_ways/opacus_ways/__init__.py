"""Opacus's other ways to compute and clip per-sample gradients, as dpprof trainers; imports no torch."""

from dpprof.vocabulary import theory
from dpprof.vocabulary.clipping import LAYER_WISE, OTHER_ALGORITHMS
from dpprof.vocabulary.trainer_info import (
    OF_FLAT_CLIPPING,
    ONE_BACKWARD,
    OPACUS_EACH_BATCH,
    Limit,
    TrainerInfo,
)

FUNCTORCH = TrainerInfo(
    "DPFunctorchTrainer",
    "functorch",
    is_private=True,
    color="#b42d96",
    phases=ONE_BACKWARD,
    categories=OF_FLAT_CLIPPING,
    target="opacus_ways.trainers:DPFunctorchTrainer",
    each_batch=OPACUS_EACH_BATCH,
    unaccounted="",
    is_default=False,
    limits=(Limit("poisson_sampling", False, "vmap takes no empty batch; use flat"),),
)
EW = TrainerInfo(
    "DPExpandedWeightsTrainer",
    "ew",
    is_private=True,
    color="#b469ff",
    phases=ONE_BACKWARD,
    categories=OF_FLAT_CLIPPING,
    target="opacus_ways.expanded_weights:DPExpandedWeightsTrainer",
    each_batch=OPACUS_EACH_BATCH,
    unaccounted="",
    is_default=False,
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
PER_LAYER = TrainerInfo(
    "DPPerLayerClippingTrainer",
    "per_layer",
    is_private=True,
    color="#ff2d69",
    phases=ONE_BACKWARD,
    categories=OF_FLAT_CLIPPING,
    target="opacus_ways.trainers:DPPerLayerClippingTrainer",
    each_batch=OPACUS_EACH_BATCH,
    unaccounted="",
    other_algorithm=OTHER_ALGORITHMS[LAYER_WISE],
    theory=theory.flat,
    is_default=False,
    limits=(
        Limit(
            "precision",
            "fp32",
            "DPPerLayerOptimizer leaves bfloat16 gradients on float32 weights; use bk with "
            "clipping=layer_wise",
        ),
    ),
)
ADAPTIVE = TrainerInfo(
    "DPAdaptiveClippingTrainer",
    "adaptive",
    is_private=True,
    color="#c378a5",
    phases=ONE_BACKWARD,
    categories=OF_FLAT_CLIPPING,
    target="opacus_ways.trainers:DPAdaptiveClippingTrainer",
    each_batch=OPACUS_EACH_BATCH,
    unaccounted="AdaClipDPOptimizer divides the noisy count of unclipped samples by the size of the "
    "drawn batch; accountants, and the theorem that its noise follows, know no such step",
    other_algorithm="C follows the samples' norms",
    theory=theory.flat,
    is_default=False,
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
UNWRAPPED = TrainerInfo(
    "DPNonWrappingTrainer",
    "unwrapped",
    is_private=True,
    color="#b43c4b",
    phases=ONE_BACKWARD,
    categories=OF_FLAT_CLIPPING,
    target="opacus_ways.trainers:DPNonWrappingTrainer",
    each_batch=OPACUS_EACH_BATCH,
    unaccounted="",
    theory=theory.flat,
    is_default=False,
)
WAYS = (FUNCTORCH, EW, PER_LAYER, ADAPTIVE, UNWRAPPED)
