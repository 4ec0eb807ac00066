"""The privacy guarantee of the training whose steps an experiment measured.

Computed after the passes, when nothing is timed any more. Epsilon is that of DP-SGD with Poisson sampling. If
the measured steps are known to differ from that, there is no epsilon but a sentence that says why.
"""

from collections.abc import Iterator

from dpprof.config.budget import weaknesses
from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import AccountingError
from dpprof.privacy.accounting import epsilon_of
from dpprof.privacy.guarantee import PrivateSteps, default_delta
from dpprof.record.figures.results import nonfinite_losses
from dpprof.record.figures.verdicts import FAIL, SPOKEN, verdicts
from dpprof.record.folder import RunFolder
from dpprof.record.record import PrivacyResult, Record
from dpprof.vocabulary.trainers import short_name, trainer_info

_FIXED = (
    "the measured batches have a fixed size: epsilon is what Poisson sampling spends at this rate, and "
    "batches of a fixed size or from a shuffled data set may spend more"
)


def leave_guarantee(config: ExperimentConfig, record: Record, folder: RunFolder) -> None:
    """Compute the guarantee, if the data set's size is known, and save it with the record."""
    record.privacy = guarantee(config, record)
    if record.privacy is not None:
        folder.write_record(record)


def guarantee(config: ExperimentConfig, record: Record) -> PrivacyResult | None:
    """Return the guarantee of a private trainer on a data set of known size, else None.

    All ranks draw one logical batch together, and noise is added to it once.
    """
    size = config.budget.dataset_size
    if not size or config.is_estimate or not trainer_info(config.trainer).is_private:
        return None
    batch = config.logical_batch
    steps = PrivateSteps(
        sample_rate=batch / size,
        steps=config.budget.num_steps(batch),
        delta=config.budget.target_delta or default_delta(size),
    )
    found = PrivacyResult(config.noise_multiplier, steps.sample_rate, steps.steps, steps.delta)
    found.why_none = next(_why_none(config, record), "")
    if found.why_none:
        return found
    try:
        answer = epsilon_of(found.noise_multiplier, steps)
    except AccountingError as error:
        found.why_none = str(error)
        return found
    if answer.epsilon == float("inf"):
        found.why_none = f"the accountant certifies none with noise multiplier {found.noise_multiplier:g}"
        return found
    found.epsilon, found.accountant = answer.epsilon, answer.accountant
    weak = weaknesses(answer.epsilon, found.delta, size)
    found.weakened = [*weak, *_weakened(config), *filter(None, [answer.note])]
    return found


def _why_none(config: ExperimentConfig, record: Record) -> Iterator[str]:
    """Yield the reasons why no accountant's formula applies to the measured steps."""
    if unaccounted := trainer_info(config.trainer).unaccounted:
        yield f"{short_name(config.trainer)}: {unaccounted}"
    if config.noise_multiplier == 0:
        yield "noise_multiplier is 0, and without noise nothing is private"
    if record.nonfinite_losses:
        yield f"{nonfinite_losses(record)}, whose gradients no clipping bounds"
    for name, verdict in verdicts(record).items():
        if verdict.word == FAIL:
            yield f"{SPOKEN[name]} failed ({verdict.reason})"
    yield from record.unbounded


def _weakened(config: ExperimentConfig) -> Iterator[str]:
    if not config.poisson_sampling:
        yield _FIXED
    for limit in trainer_info(config.trainer).limits:
        if limit.setting == "poisson_sampling":
            name = short_name(config.trainer)
            yield f"dpprof does not measure {name} on Poisson-sampled batches: {limit.why}"
