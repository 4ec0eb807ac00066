"""One rank of several on gloo, as a test starts it: trains a step each way and says what came out.

    python tests/measure/ranks/gloo_ranks.py RANK WORLD_SIZE RENDEZVOUS_FILE CASE...

A case is `TRAINER-WAY` with settings after it: `flat-ddp`, `bk-fsdp2,clipping=layer_wise`. Rank 0 prints a
line of JSON for each: the relative error of the gradient in float64 against a naive loop over the whole
batch, with noise off, and with it on the deviation of the noise over the one that is right. With `nan-`
before it the last rank's losses are NaN, and the line has what each rank says.
"""

import dataclasses
import itertools
import json
import statistics
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.build import build_trainer, clip_rule
from dpprof.measure.trainers.reference import (
    clipped_mean,
    global_norm,
    gradients_of,
    naive_per_sample_gradients,
    relative_error,
)
from dpprof.measure.workloads.workload import build_workload
from dpprof.vocabulary.trainers import STANDARD

BATCH_SIZE, NOISE = 3, 2.0


def config_of(case: str, world_size: int) -> ExperimentConfig:
    """The experiment that a case names."""
    named, *settings = case.split(",")
    trainer, _, way = named.partition("-")
    values: dict[str, Any] = dict(setting.split("=") for setting in settings)
    values |= {"trainer": trainer, "parallel": way, "world_size": world_size, "device": "cpu"}
    sizes = {"model_size": "tiny", "vocab_size": 50, "batch_size": BATCH_SIZE, "seq_len": 8, "target": "none"}
    return parse_experiment(sizes | values, EstimatingConfig).resolve(cuda_available=False)


def trained(config: ExperimentConfig, batches: list[Any], seed: int) -> list[Tensor]:
    """The whole gradient that the optimizer used, in float64."""
    workload = build_workload(config)
    workload.model.double()
    trainer: TrainerBase = build_trainer(config, workload)
    torch.manual_seed(seed)
    trainer.profile_step(*batches)
    return [gradient.detach().clone() for gradient in gradients_of(trainer.parameters)]


def result(case: str) -> dict[str, object]:
    """What a case shows."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    config = config_of(case, world_size)
    count = config.accumulation_steps
    alone = dataclasses.replace(
        config,
        parallel="none",
        world_size=1,
        batch_size=BATCH_SIZE * world_size * count,
        accumulation_steps=1,
    )
    workload = build_workload(alone)
    workload.model.double()
    batch = next(iter(workload.batches))
    per_sample = naive_per_sample_gradients(workload.model, workload.loss, batch, alone.batch_size)
    bound = (
        None
        if config.trainer == STANDARD
        else statistics.median(float(global_norm(one)) for one in per_sample)
    )
    reference = clipped_mean(per_sample, bound, clip_rule(config))
    first = rank * BATCH_SIZE * count
    mine = [
        tree_map(lambda t, i=i: t[first + i * BATCH_SIZE : first + (i + 1) * BATCH_SIZE], batch)
        for i in range(count)
    ]
    quiet = dataclasses.replace(config, noise_multiplier=0.0, max_grad_norm=bound or 1.0)
    gradients = trained(quiet, mine, rank)
    noisy = trained(dataclasses.replace(quiet, noise_multiplier=NOISE), mine, 100 + rank)
    noise = torch.cat([(a - b).flatten() for a, b in zip(noisy, gradients, strict=True)])
    right = NOISE * quiet.max_grad_norm / (BATCH_SIZE * count * world_size)
    same = [torch.empty_like(noise) for _ in range(world_size)]
    dist.all_gather(same, noise)
    return {
        "case": case,
        "error": relative_error(gradients, reference),
        "noise": float(noise.std() / right),
        "numbers": len(noise),
        "ranks_agree": all(torch.equal(noise, other) for other in same),
    }


def refusals(case: str) -> dict[str, object]:
    """What each rank says where the last one's losses are NaN."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    config = config_of(case.removeprefix("nan-"), world_size)
    workload = build_workload(config)
    factor = float("nan") if rank == world_size - 1 else 1.0
    loss = workload.loss
    workload = workload._replace(loss=lambda outputs, targets: loss(outputs, targets) * factor)
    trainer = build_trainer(config, workload)
    said = ""
    try:
        trainer.profile_step(*itertools.islice(workload.batches, config.accumulation_steps))
    except ValueError as error:
        said = str(error)
    of_all: list[Any] = [None] * world_size
    dist.all_gather_object(of_all, said)
    return {"case": case, "said": of_all}


def main() -> None:
    """Entry."""
    warnings.filterwarnings("ignore")
    rank, world_size, meeting, *cases = sys.argv[1:]
    address = f"file://{meeting}"
    dist.init_process_group("gloo", init_method=address, rank=int(rank), world_size=int(world_size))
    for case in cases:
        try:
            found = refusals(case) if case.startswith("nan-") else result(case)
        except ValueError as error:
            found = {"case": case, "refused": str(error)}
        if rank == "0":
            print(json.dumps(found), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
