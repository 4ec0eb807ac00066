"""Verifies a trainer: that it computes the gradient of DP-SGD, adds the right noise, bounds what one sample
changes, and trains what it should.

`figures/verify_verdict.py` judges what is found; `vocabulary/verify_checks.py` lists the checks.
"""

import gc
import traceback
from collections.abc import Callable, Iterator
from functools import partial

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import describe_error
from dpprof.figures.gradient_verdict import FAIL, TOLERANCES
from dpprof.measure.gradient_check import Case, Undecidable, Wrong, switch_dropout_off
from dpprof.measure.observe import Subject
from dpprof.measure.verifying import gradients, noise, sensitivity, weights
from dpprof.measure.verifying.setting import Setting
from dpprof.record.verify import VerifyCheck, VerifyResult
from dpprof.vocabulary.out_of_memory import is_oom
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.trainers import trainer_info

# The share of the samples that are clipped, at least.
_CLIPPED = 0.75


def run(subject: Subject) -> None:
    """Verify the experiment's trainer and put the result into the record."""
    gc.collect()
    gc.freeze()  # each copy of the model collects garbage, which takes long with all that is imported
    subject.record.verify = verify(subject.config)


def verify(config: ExperimentConfig) -> VerifyResult:
    """All checks that apply to the experiment's trainer, on its workload."""
    for limit in trainer_info(config.trainer).limits:
        if limit.setting == "accumulation_steps":
            return VerifyResult(doubt=f"verifying accumulates physical batches, but {limit.why}")
    case = Case(config, max(2, config.accumulation_steps))
    found = VerifyResult(dropout_off=switch_dropout_off(case.workload.model))
    try:
        setting = _prepared(case, config)
    except Undecidable as why:
        found.doubt = str(why)
        return found
    except Wrong as what:
        found.checks.append(VerifyCheck("gradient_float64", FAIL, str(what)))
        return found
    found.max_grad_norm = setting.max_grad_norm
    add = partial(_add, found, config.parallel)
    add("gradient_float64", lambda: gradients.checks(setting))
    if case.is_private:
        add("noise_deviation", lambda: _of_noise(setting, found))
        if config.parallel == NONE:  # each rank clips its own samples, as one alone does
            add("sensitivity_ordinary", lambda: sensitivity.checks(setting))
    add("weights_moved", lambda: weights.checks(setting))
    return found


def _prepared(case: Case, config: ExperimentConfig) -> Setting:
    """Raises Undecidable or Wrong where there is no one right gradient."""
    computed_in = case.probe()
    per_sample = case.per_sample_gradients(TOLERANCES[computed_in])
    way = "bfloat16" if config.precision == "bf16" else "float32"
    multiplier = config.noise_multiplier or 1.0
    max_grad_norm = case.norm_that_clips(per_sample, share=_CLIPPED)
    return Setting(case, per_sample, max_grad_norm, way, computed_in, multiplier)


def _of_noise(setting: Setting, found: VerifyResult) -> Iterator[VerifyCheck]:
    for checks, deviation, num_tests in noise.checks(setting):
        yield from checks
        found.num_noise_tests += num_tests
        worse = found.noise_deviation is None or abs(deviation - 1) > abs(found.noise_deviation - 1)
        found.noise_deviation = deviation if worse else found.noise_deviation


def _add(found: VerifyResult, parallel: str, first: str, checks: Callable[[], Iterator[VerifyCheck]]) -> None:
    """Add the checks. A trainer that raises an error fails the check after the last one that was done. One of
    several ranks raises it: the others are still at that check, and would wait there.
    """
    if parallel != NONE:
        found.checks += checks()
        return
    try:
        found.checks += checks()
    except Undecidable as why:
        found.doubt = found.doubt or str(why)
    except Exception as error:
        if is_oom(error):
            raise
        traceback.print_exc()
        found.checks.append(VerifyCheck(first, FAIL, f"the step failed: {describe_error(error)[:300]}"))
