"""Workloads that plant a fault in how ranks train together."""

import math
from typing import Any

import torch
import torch.distributed as dist
from opacus.grad_sample import GradSampleModuleFastGradientClippingFSDP
from opacus.optimizers import DistributedDPOptimizer, DPOptimizer

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.workloads.transformer import simple_big_model


def noise_on_every_rank(config: ExperimentConfig) -> Any:
    """Each rank adds the whole noise."""
    DistributedDPOptimizer.add_noise = DPOptimizer.add_noise
    return simple_big_model(config)


def norms_over_ranks(config: ExperimentConfig) -> Any:
    """Squared norms are summed over the ranks, as if each had a part of every sample's."""
    own = GradSampleModuleFastGradientClippingFSDP.get_norm_sample

    def summed(self: Any) -> Any:
        norms = own(self)
        norms.mul_(math.sqrt(dist.get_world_size()))
        self.per_sample_gradient_norms = norms
        return norms

    if own.__name__ != "summed":
        GradSampleModuleFastGradientClippingFSDP.get_norm_sample = summed
    return simple_big_model(config)


def same_noise_on_every_rank(config: ExperimentConfig) -> Any:
    """Every rank draws the same numbers for its share."""
    random: Any = torch
    random.manual_seed = lambda seed: None
    return simple_big_model(config)
