"""Params, tags, tables and name of an experiment's MLflow run."""

import re
from typing import Any

from dpprof.config.estimating import ESTIMATE
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.config.training import SIZE_FIELDS
from dpprof.record.counters import CounterRow
from dpprof.record.figures.names import metrics, privacy_metrics
from dpprof.record.figures.privacy import privacy_words
from dpprof.record.figures.results import Result, describe, nonfinite_losses
from dpprof.record.figures.verdicts import GRADIENT_CHECK, VERIFY
from dpprof.record.record import FailureKind, OperatorRow, Record
from dpprof.tracking.store import KIND_TAG, NOTE_TAG, RUN_TAG, SHORT_PARAM
from dpprof.vocabulary.trainers import OWN_LOOP, trainer_info
from dpprof.vocabulary.units import mib, ms

_SIZES = ("model_size", *SIZE_FIELDS)
# What is known of a loop that is not dpprof's: its learning rate, for one, is not.
_OF_LOOPS = (SHORT_PARAM, "trainer", "workload", "batch_size", "device", "passes")


def params_of(result: Result) -> dict[str, object]:
    """Return settings, resolved settings, environment and privacy guarantee as params."""
    params: dict[str, object] = to_flat(result.config)
    params[SHORT_PARAM] = trainer_info(result.config.trainer).short_name
    if result.config.trainer == OWN_LOOP:
        of_pass = ("target", "precision") if result.config.is_estimate else ("warmup_steps", "measured_steps")
        params = {name: params[name] for name in (*_OF_LOOPS, *of_pass)}
    if result.config.has_own_sizes:
        params = {name: value for name, value in params.items() if name not in _SIZES}
    params |= {f"resolved_{name}": params[name] for name in ("device", *_SIZES) if name in params}
    if result.record is not None:
        params |= result.record.environment
        if result.record.num_parameters is not None:
            params["num_parameters"] = result.record.num_parameters
        if result.weights_dtype:
            params["resolved_weights_dtype"] = result.weights_dtype
        if result.record.privacy is not None:
            params |= metrics(privacy_metrics(result.record.privacy))
    return params


def tags_of(result: Result) -> dict[str, str]:
    """Return tags for identity, outcome and chart colour."""
    tags = {
        NOTE_TAG: describe(result),
        RUN_TAG: result.name,
        "mlflow.runColor": trainer_info(result.config.trainer).color,
        "dpprof.trainer": result.config.trainer,
        "dpprof.model": result.config.model_title,
        KIND_TAG: ESTIMATE if result.config.is_estimate else "experiment",
    }
    if result.predicted is not None:
        tags["dpprof.measured_for"] = result.predicted.plan
    if result.failure is not None:
        if result.failure.kind != FailureKind.INTERRUPTED:
            tags["dpprof.failure"] = result.failure.kind
        tags["dpprof.failure_reason"] = result.failure.message
    if left_out := result.folder.artifacts().left_out:
        tags["dpprof.left_out"] = ", ".join(left_out)
    return tags | _tags_of_passes(result)


def _tags_of_passes(result: Result) -> dict[str, str]:
    record = result.record
    if record is None or not record.headline_finished:
        return {}
    listed = {
        "failed_pass": [f"{name}: {why}" for name, why in record.failed_passes.items()],
        "skipped_pass": [f"{name}: {why}" for name, why in record.skipped_passes.items()],
        "changed": record.changed,
        "warnings": record.warnings,
    }
    tags = {f"dpprof.{tag}": "; ".join(texts) for tag, texts in listed.items() if texts}
    for check, tag in ((GRADIENT_CHECK, "gradient_check"), (VERIFY, "verified")):
        if verdict := result.verdicts.get(check):
            tags |= {f"dpprof.{tag}": verdict.word, f"dpprof.{tag}_reason": verdict.reason}
    if record.nonfinite_losses:
        tags["dpprof.nonfinite_losses"] = nonfinite_losses(record)
    if record.privacy is not None:
        tags["dpprof.privacy"] = privacy_words(record.privacy)
    return tags


def short_name(name: str, config: ExperimentConfig, *, with_model: bool) -> str:
    """Return the short name of a run: `ghost b4 s512`, then whatever else the full name has.

    `name` is the folder's: `DPGhostClippingTrainer_small_bs4_seq512_bf16_rep2` becomes `ghost b4 s512 small
    bf16 #2` with the model, `ghost b4 s512 bf16 #2` without. A renamed folder keeps its name.
    """
    if not name.startswith(config.run_name):
        return name
    parts = [trainer_info(config.trainer).short_name, f"b{config.batch_size}", f"s{config.seq_len}"]
    if with_model:
        parts.append(config.model_title)
    elif config.train_name:
        parts.append(config.train_name)
    rest = name.removeprefix(config.run_name).split("_")
    return " ".join(parts + [re.sub(r"^rep(?=\d+$)", "#", word) for word in rest if word])


_MOST_ROWS = 50


def tables(record: Record) -> dict[str, dict[str, list[Any]]]:
    """Return the tables of a record by artifact name, as far as it has the data."""
    found = {}
    if record.traced_steps:
        found["operators.json"] = _operators(record.operators[:_MOST_ROWS], record.traced_steps)
    if record.counters is not None:
        found["kernels.json"] = _kernels(record.counters.rows[:_MOST_ROWS])
    return found


def _operators(rows: list[OperatorRow], steps: int) -> dict[str, list[Any]]:
    """Return a table of operators per traced step; the record lists those with the most self time first."""
    columns: dict[str, list[Any]] = {
        "operator": [row.name for row in rows],
        "class": [row.operator_class for row in rows],
        "phase": [row.phase or "" for row in rows],
        "calls_per_step": [row.calls / steps for row in rows],
        "host_self_ms_per_step": [ms(row.self_s) / steps for row in rows],
        "allocated_mib_per_step": [mib(row.allocated) / steps for row in rows],
    }
    if any(row.device_self_s is not None for row in rows):
        columns["device_self_ms_per_step"] = [ms(row.device_self_s or 0.0) / steps for row in rows]
    return columns


def _kernels(rows: list[CounterRow]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "kernel": [row.name for row in rows],
        "class": [row.kernel_class for row in rows],
        "phase": [row.phase or "" for row in rows],
        "launches": [row.launches for row in rows],
        "ms": [ms(row.seconds) for row in rows],
    }
    metrics = dict.fromkeys(metric for row in rows for metric in row.values)
    return columns | {metric: [row.values.get(metric) for row in rows] for metric in metrics}
