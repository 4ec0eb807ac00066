"""Two and three real ranks compute what one process computes on the whole batch, and add noise once."""

import json
import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from covering import sampled

from dpprof.vocabulary.messages import REFUSED_ELSEWHERE
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.trainers import TRAINERS

WAYS = [f"{info.short_name}-{way}" for info in TRAINERS.values() for way in info.parallel if way != NONE]
OWN = [way for way in WAYS if way.startswith(("bk", "mixed"))]
REFUSED = [
    *(f"nan-{way}" for way in OWN),
    "nan-bk-ddp,accumulation_steps=2",
    "nan-mixed-fsdp2,accumulation_steps=2",
    "nan-bk-fsdp2,clipping=layer_wise",
]
CLIPPINGS = ("layer_wise", "automatic")
SAMPLE = [
    *(f"{way}{',accumulation_steps=2' if i % 2 else ''}" for i, way in enumerate(WAYS)),
    *(f"{way},clipping={CLIPPINGS[i % 2]}" for i, way in enumerate(OWN)),
    "bk-fsdp2,clipping=layer_wise,accumulation_steps=2",
    "bk-fsdp2,optimizer=adamw",
    "mixed-ddp,activation_checkpointing=true",
    "mixed-fsdp2,activation_checkpointing=true",
]
OTHERS = [
    *(f"{way}{',accumulation_steps=2' * (1 - i % 2)}" for i, way in enumerate(WAYS)),
    *(f"{way},clipping={CLIPPINGS[1 - i % 2]}" for i, way in enumerate(OWN)),
]
OF_THREE = ["flat-ddp", "ghost-fsdp2", "bk-ddp", "bk-fsdp2", "mixed-ddp", "mixed-fsdp2"]


@cache
def found(world_size: int, *cases: str) -> dict[str, dict[str, Any]]:
    """What the ranks found, by case."""
    script = Path(__file__).with_name("gloo_ranks.py")
    with TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, script, str(rank), str(world_size), f"{folder}/store", *cases],
                stdout=subprocess.PIPE,
                env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
                text=True,
            )
            for rank in range(world_size)
        ]
        said = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world_size
    lines = [json.loads(line) for line in said[0].splitlines() if line.startswith("{")]
    return {line["case"]: line for line in lines}


@pytest.mark.parametrize("case", REFUSED)
def test_what_one_rank_refuses_ends_the_step_of_all(case: str) -> None:
    other, refusing = found(2, *REFUSED, *SAMPLE)[case]["said"]
    assert "samples are NaN" in refusing
    assert other == REFUSED_ELSEWHERE


@pytest.mark.parametrize(
    ("world_size", "case"),
    [
        *((2, case) for case in SAMPLE),
        *((3, case) for case in OF_THREE),
        *sampled([(2, case) for case in OTHERS], ()),
    ],
)
def test_ranks_compute_the_whole_batch_and_add_noise_once(world_size: int, case: str) -> None:
    run_together = OF_THREE if world_size == 3 else OTHERS if case in OTHERS else [*REFUSED, *SAMPLE]
    of_case = found(world_size, *run_together)[case]
    assert of_case["error"] < 1e-10
    assert of_case["ranks_agree"]
    if not case.startswith("standard"):
        # Five standard errors of a deviation: one false alarm in a million and a half.
        assert abs(of_case["noise"] - 1) < 5 / math.sqrt(2 * of_case["numbers"])
