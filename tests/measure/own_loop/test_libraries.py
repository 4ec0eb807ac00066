"""The loops of libraries beside dpprof's own trainers of the same step, to the byte."""

import gc
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from example_config import experiment
from example_loops import made_private
from example_runs import known, measured
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import dpprof
from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.workloads.workload import Workload, build_workload
from dpprof.record.record import Record

STEPS = 3 + 3 + 4 + 6  # warm-up, clean, ledger, trace
# What Hugging Face's trainer keeps beyond the one loss: four of them in float32, and a count in int64.
NUMBERS = 4 * 4 + 8


def config_of(trainer: str, **settings: Any) -> ExperimentConfig:
    quick = {"model_size": "tiny", "batch_size": 8, "seq_len": 32, "device": "cpu", "measured_steps": 3}
    passes = "clean,memory,ledger"
    return experiment(**quick | {"trainer": trainer, "passes": passes} | settings).resolve(
        cuda_available=False
    )


def built(config: ExperimentConfig) -> tuple[Workload, list[Tensor]]:
    """The workload without its batches, and the inputs and the targets of all steps."""
    workload = build_workload(config)
    batches = list(islice(workload.batches, STEPS * config.accumulation_steps))
    return workload._replace(batches=()), [torch.cat(parts) for parts in zip(*batches, strict=True)]


def peaks(record: Record) -> dict[str, int]:
    """The allocator's peak of each phase, and of the step by allocator and by ledger."""
    allocator, ledger = known(record.memory.peak_allocated), known(record.ledger).peak
    return {**record.memory.phase_peak, "allocator": allocator, "ledger": ledger}


def num_bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def compare(record: Record, own: Record, more: dict[str, int], *, by_category: bool = True) -> None:
    """Hold a loop's peaks against those of dpprof's trainer, than which it takes so many bytes more."""
    found, expected = peaks(record), peaks(own)
    assert found.keys() == expected.keys()
    for name, num_bytes in more.items():
        assert found[name] == expected[name] + num_bytes, name
    categories, of_own = ({**known(each.ledger).at_peak} for each in (record, own))
    # What neither data nor numbers are part of.
    names = ("parameters", "gradients", "per_sample_gradients", "summed_gradients")
    for name in names if by_category else ():
        assert categories.get(name, 0) == of_own.get(name, 0), name


def test_batch_memory_manager(tmp_path: Path) -> None:
    """It loads one physical batch at a time, where dpprof's trainer holds both of the step's."""
    config = config_of("DPSGDTrainer", batch_size=4, accumulation_steps=2)
    workload, data = built(config)
    model, optimizer, loader = made_private(workload.model.train(), data, config.logical_batch, lr=config.lr)
    with (
        dpprof.profile(runs_dir=tmp_path, measured_steps=3, by_optimizer=True) as prof,
        BatchMemoryManager(data_loader=loader, max_physical_batch_size=4, optimizer=optimizer) as physical,
    ):
        for x, y in physical:
            optimizer.zero_grad()
            out = model(x)
            loss = workload.loss(out, y).mean()
            loss.backward()
            optimizer.step()
    batch = num_bytes(data) // (STEPS * config.accumulation_steps)
    record = known(prof.result.record)
    compare(record, measured(tmp_path, config), dict.fromkeys(peaks(record), num_bytes(data) - batch))
    assert record.samples_per_step == config.logical_batch


def test_lightning(tmp_path: Path) -> None:
    """It zeroes gradients after forward, and keeps two copies of the loss."""
    lightning = pytest.importorskip("lightning")
    config = config_of("StandardTrainer", loop="lean")
    workload, data = built(config)

    class Module(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = workload.model

        def training_step(self, batch: list[Tensor], batch_number: int) -> Tensor:
            x, y = batch
            return workload.loss(self.model(x), y).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=config.lr)

    quiet = dict.fromkeys(
        ["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False
    )
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", **quiet)
    with dpprof.profile(runs_dir=tmp_path, measured_steps=3, by_optimizer=True) as prof:
        trainer.fit(Module(), DataLoader(TensorDataset(*data), batch_size=config.batch_size))
    gradients = num_bytes(list(workload.model.parameters()))
    more = dict.fromkeys(["backward", "optimizer_step", "allocator", "ledger"], num_bytes(data) + 2 * 4)
    more |= {"forward": num_bytes(data) + gradients}
    compare(known(prof.result.record), measured(tmp_path, config), more)


def hugging_face_config(path: Path) -> ExperimentConfig:
    folder = path / "gpt2"
    folder.mkdir()
    sizes = {"vocab_size": 200, "n_positions": 32, "n_embd": 64, "n_layer": 2, "n_head": 4}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    workload = f"huggingface:{folder / 'config.json'}"
    return config_of("StandardTrainer", workload=workload, batch_size=4, loop="lean", task="causal-lm")


def set_aside_constants() -> None:
    """Hide the tensors that peft makes when the first of the trainers imports it."""
    pytest.importorskip("peft")
    gc.freeze()


def arguments_of(config: ExperimentConfig) -> dict[str, Any]:
    how: dict[str, Any] = {"per_device_train_batch_size": config.batch_size, "learning_rate": config.lr}
    how |= {"max_grad_norm": 0.0, "num_train_epochs": 1, "optim": "sgd", "use_cpu": True, "report_to": "none"}
    return how | {"logging_strategy": "no", "save_strategy": "no", "disable_tqdm": True}


def loss_of(workload: Workload) -> Callable[..., Tensor]:
    def loss(outputs: Any, labels: Tensor, num_items_in_batch: object = None) -> Tensor:
        return workload.loss(outputs, labels).mean()

    return loss


def test_hugging_face_trainer(tmp_path: Path) -> None:
    """It holds the next batch, too."""
    transformers = pytest.importorskip("transformers")
    set_aside_constants()
    config = hugging_face_config(tmp_path)
    workload, data = built(config)
    trainer = transformers.Trainer(
        workload.model,
        transformers.TrainingArguments(str(tmp_path / "out"), **arguments_of(config)),
        train_dataset=[{"input_ids": x, "labels": y} for x, y in zip(*data, strict=True)],
        compute_loss_func=loss_of(workload),
    )
    with dpprof.profile(runs_dir=tmp_path, measured_steps=3, by_optimizer=True) as prof:
        trainer.train()
    more = num_bytes(data) + num_bytes(data) // STEPS + NUMBERS
    own, names = measured(tmp_path, config), ["backward", "allocator", "ledger"]
    compare(known(prof.result.record), own, dict.fromkeys(names, more))


def test_trl_sft(tmp_path: Path) -> None:
    """It holds the next batch, too, and masks; its forward computes metrics and cannot be compared."""
    datasets, trl = pytest.importorskip("datasets"), pytest.importorskip("trl")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    set_aside_constants()
    config = hugging_face_config(tmp_path)
    workload, data = built(config)
    ids = data[0]
    del data
    words = Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    how = arguments_of(config) | {"bf16": False, "gradient_checkpointing": False}
    trainer = trl.SFTTrainer(
        workload.model,
        trl.SFTConfig(str(tmp_path / "out"), **how),
        train_dataset=datasets.Dataset.from_dict({"input_ids": ids.tolist()}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="a", eos_token="a"),
        compute_loss_func=loss_of(workload),
    )
    batch = ids.nbytes // STEPS
    del ids
    with dpprof.profile(runs_dir=tmp_path, measured_steps=3, by_optimizer=True) as prof:
        trainer.train()
    mask, next_batch = batch, 3 * batch
    more = {"backward": mask + next_batch + NUMBERS}
    compare(known(prof.result.record), measured(tmp_path, config), more, by_category=False)
