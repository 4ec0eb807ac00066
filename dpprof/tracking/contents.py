"""What MLflow gets to know of an experiment beside its figures: params and tags."""

from dpprof.config.estimating import ESTIMATE
from dpprof.config.flat import to_flat
from dpprof.config.training import SIZE_FIELDS
from dpprof.figures.names import metrics
from dpprof.figures.privacy import privacy_metrics, privacy_words
from dpprof.figures.results import Result, describe, nonfinite_losses
from dpprof.tracking.store import KIND_TAG, NOTE_TAG, RUN_TAG, SHORT_PARAM
from dpprof.vocabulary.trainers import trainer_info

_SIZES = ("model_size", *SIZE_FIELDS)


def params_of(result: Result) -> dict[str, object]:
    """The settings, what they were resolved to, the environment, and the privacy guarantee."""
    params: dict[str, object] = to_flat(result.config)
    params[SHORT_PARAM] = trainer_info(result.config.trainer).short_name
    if result.config.has_own_sizes:
        params = {name: value for name, value in params.items() if name not in _SIZES}
    params |= {f"resolved_{name}": params[name] for name in ("device", *_SIZES) if name in params}
    if result.record is not None:
        params |= result.record.environment
        if result.record.num_parameters is not None:
            params["num_parameters"] = result.record.num_parameters
        if result.record.privacy is not None:
            params |= metrics(privacy_metrics(result.record.privacy))
    return params


def tags_of(result: Result) -> dict[str, str]:
    """What it is, how it ended, and the colour that it has in MLflow's charts."""
    tags = {
        NOTE_TAG: describe(result),
        RUN_TAG: result.name,
        "mlflow.runColor": trainer_info(result.config.trainer).color,
        "dpprof.trainer": result.config.trainer,
        "dpprof.model": result.config.model_name,
        KIND_TAG: ESTIMATE if result.config.is_estimate else "experiment",
    }
    if result.predicted is not None:
        tags["dpprof.measured_for"] = result.predicted.plan
    if result.failure is not None:
        if result.failure.kind != "interrupted":
            tags["dpprof.failure"] = result.failure.kind
        tags["dpprof.failure_reason"] = result.failure.message
    if left_out := result.folder.artifacts().left_out:
        tags["dpprof.left_out"] = ", ".join(left_out)
    return tags | _tags_of_passes(result)


def _tags_of_passes(result: Result) -> dict[str, str]:
    """Passes that failed or were skipped, checks of the trainer, losses that are not finite, the privacy
    guarantee with what weakens it, what was changed for training, and warnings.
    """
    record, verdict = result.record, result.gradient_verdict
    if record is None or not record.headline_finished:
        return {}
    tags = {}
    for tag, reasons in (("failed_pass", record.failed_passes), ("skipped_pass", record.skipped_passes)):
        if reasons:
            tags[f"dpprof.{tag}"] = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    if verdict is not None:
        tags |= {"dpprof.gradient_check": verdict.word, "dpprof.gradient_check_reason": verdict.reason}
    if result.verify_verdict is not None:
        verdict = result.verify_verdict
        tags |= {"dpprof.verified": verdict.word, "dpprof.verified_reason": verdict.reason}
    if record.nonfinite_losses:
        tags["dpprof.nonfinite_losses"] = nonfinite_losses(record)
    if record.privacy is not None:
        tags["dpprof.privacy"] = privacy_words(record.privacy)
    if record.changed:
        tags["dpprof.changed"] = "; ".join(record.changed)
    if record.warnings:
        tags["dpprof.warnings"] = "; ".join(record.warnings)
    return tags
