"""LoRA that others trained on an A100, beside estimates: docs/results/lora_of_others.md.

    export PYTHONPATH=benchmarks:benchmarks/gpu:examples/vmap_trainer
    python benchmarks/lora_of_others.py > docs/results/lora_of_others.md

Two sources: DP-SGD of a model with 7B parameters by Opake's authors, who take per-sample gradients by `vmap`,
and LoRA without privacy by litgpt's. About 15 minutes on 2 cores.
"""

import sys
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

from estimated import estimated
from torch import nn
from vmap_trainer import VMAP, VmapTrainer

from dpprof.config.named_trainers import load_named
from dpprof.measure.trainers.standard import StandardTrainer
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.trainers import TRAINERS
from dpprof.vocabulary.units import GIB

QWEN: dict[str, Any] = {
    "workload": "huggingface:qwen2.5-7b",
    "train": "lora",
    "lora_rank": 16,
    "lora_targets": "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj",
    "weights_dtype": "bf16",
    "optimizer": "adafactor",
    "batch_size": 2,
    "seq_len": 512,
    "accumulation_steps": 7,
}
LITGPT: dict[str, Any] = {
    "train": "lora",
    "lora_rank": 8,
    "weights_dtype": "bf16",
    "adapter_dtype": "bf16",
    "optimizer": "adamw",
    "trainer": "standard",
}
PHI = LITGPT | {"workload": "huggingface:phi-1.5", "lora_targets": "q_proj,v_proj", "seq_len": 1044}
STABLELM = LITGPT | {
    "workload": "huggingface:stablelm-3b",
    "lora_targets": "query_key_value",
    "seq_len": 1034,
}


class KeepingTrainer(VmapTrainer):
    """Still has, like Opake's loop, the clipped sums, the noisy sums and the updates of the step before."""

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Take a step, and keep three sets of numbers the size of the gradient."""
        super().step(physical_batches)
        self.kept = [[p.detach().clone() for p in self.parameters] for _ in range(3)]


class DroppingTrainer(StandardTrainer):
    """Drops 5 % of what adapters get, as litgpt's LoRA does by default."""

    def __init__(self, model: nn.Module, *args: Any, **more: Any) -> None:
        for module in model.modules():
            dropouts: Any = getattr(module, "lora_dropout", None)
            if dropouts is not None:
                dropouts["default"] = nn.Dropout(0.05)
        super().__init__(model, *args, **more)


KEEPING = replace(VMAP, name="KeepingTrainer", short_name="keeping", target="lora_of_others:KeepingTrainer")
DROPPING = replace(
    TRAINERS["StandardTrainer"],
    name="DroppingTrainer",
    short_name="dropping",
    target="lora_of_others:DroppingTrainer",
    theory=None,
)


class Published(NamedTuple):
    """A peak that others measured: bytes allocated, and reserved if they say."""

    what: str
    settings: dict[str, Any]
    allocated: float
    reserved: float | None = None


# GiB: github.com/JetBrains-Research/opake at 4cd9dd00, notes/profiles/lv/lv_nopeft.csv, step 0 and step 5.
FIRST, LATER = (
    Published("step 1", QWEN | {"trainer": "vmap_trainer:VMAP"}, 24.9043 * GIB, 25.5215 * GIB),
    Published("step 6", QWEN | {"trainer": "lora_of_others:KEEPING"}, 25.3576 * GIB, 26.2363 * GIB),
)
# GB: github.com/Lightning-AI/litgpt at 26857050, tutorials/resource-tables.md.
OF_PHI = {1: 4.82, 2: 6.76, 4: 10.68}
OF_STABLELM = {1: 9.69, 2: 12.1, 4: 16.92}
TANH = {"model_config": "hidden_act=gelu_pytorch_tanh"}
DROPOUT = {"trainer": "lora_of_others:DROPPING"}


def of_litgpt(
    name: str, settings: dict[str, Any], measured: dict[int, float], *changed: str
) -> list[Published]:
    """Rows of a model, in GB, for each batch."""
    what = ", ".join([name, *changed])
    return [
        Published(f"{what}, batch {b}", settings | {"batch_size": b}, gb * 1e9) for b, gb in measured.items()
    ]


def estimate(settings: dict[str, Any]) -> tuple[int, int]:
    """Return the bytes allocated and reserved at the peak."""
    load_named(settings["trainer"])
    found = estimated(settings | {"target": "A100-40GB"})
    return found["allocated"], found["reserved"]


def row(found: Published) -> list[str]:
    """A line of the table."""
    print(found.what, file=sys.stderr)
    allocated, reserved = estimate(found.settings)
    cells = [found.what, *_beside(found.allocated, allocated)]
    return cells + (_beside(found.reserved, reserved) if found.reserved else ["", "", ""])


def _beside(measured: float, estimated: int) -> list[str]:
    return [f"{measured / GIB:.2f}", f"{estimated / GIB:.2f}", f"{100 * (estimated / measured - 1):+.1f} %"]


def table(rows: list[Published]) -> str:
    """Measured and estimated side by side."""
    headings = ["what", "allocated, GiB", "estimate", "off", "reserved, GiB", "estimate", "off"]
    return markdown_table(headings, [row(found) for found in rows], right=1).rstrip()


PAGE = """\
# LoRA that others trained on an A100

`python benchmarks/lora_of_others.py`: peaks that others measured, beside estimates. torch {torch},
transformers {transformers}, peft {peft}; no GPU. Nothing was fitted to these figures.

## DP-SGD of a model with 7B parameters, by Opake's authors

Qwen2.5-Coder-7B in bf16, LoRA of rank 16 on all seven linear layers in fp32 (40,370,176 numbers),
Adafactor, microbatches of two samples of 512 tokens, on an A100 with 40 GB, torch 2.14. Their loop takes
per-sample gradients by `vmap`, so the estimates are of `examples/vmap_trainer`.

{opake}

**What appears after the first step.** Their later steps hold 0.452 GiB more than the first. Three times
40,370,176 numbers in fp32 are 0.451 GiB: in their functional loop the names `clipped`, `noisy` and
`updates` still refer to the tensors of the step before, while the next one takes its gradients. The
second row is a trainer that keeps three such sets, and changes nothing else. A loop that deletes the
three names needs that much less.

**Opake's own function for adapters.** The rows above are of their runs with adapters as plain modules.
With Opake's function for the adapters of queries, keys and values they measured 24.39 GiB, 0.97 less. It
keeps the input that the three share once, in bf16 (7 MiB), where plain modules keep an fp32 copy for
each (3 x 14 MiB): 35 MiB in each of 28 layers are 0.96 GiB.

**`torch.func.grad` keeps more.** The example calls `torch.func.vjp`. With `torch.func.grad` the estimate
of the first row is 38.0 GiB: torch 2.13 then keeps, until the backward pass ends, what a second
derivative would need.

## LoRA without privacy, by litgpt's authors

bf16 weights and adapters of rank 8 on queries and values, AdamW, samples of 1,044 (phi-1.5) and 1,034
tokens, on an A100 with 40 GB. litgpt has its own models. They differ from those of transformers in two
ways that the table changes one after the other: phi-1.5's GELU is one operator of torch, where
transformers' config names a form of several (`hidden_act=gelu_new`), each of which keeps a tensor; and
adapters drop 5 % of their input.

{litgpt}
"""


def main() -> None:
    """Print the page."""
    litgpt = [
        *of_litgpt("StableLM Alpha 3B", STABLELM, OF_STABLELM),
        *of_litgpt("StableLM Alpha 3B", STABLELM | DROPOUT, OF_STABLELM, "dropout"),
        *of_litgpt("phi-1.5", PHI, OF_PHI),
        *of_litgpt("phi-1.5", PHI | TANH, OF_PHI, "one GELU"),
        *of_litgpt("phi-1.5", PHI | TANH | DROPOUT, OF_PHI, "one GELU, dropout"),
    ]
    versions = {name: version(name) for name in ("torch", "transformers", "peft")}
    print(PAGE.format(**versions, opake=table([FIRST, LATER]), litgpt=table(litgpt)), end="")


if __name__ == "__main__":
    main()
