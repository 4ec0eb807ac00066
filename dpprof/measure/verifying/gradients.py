"""Noise off: the gradient that a step leaves, against the naive loop's."""

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from dpprof.measure.gradient_check import WAYS
from dpprof.measure.trainers.reference import global_norm, relative_error
from dpprof.measure.verifying.faults import what_is_wrong
from dpprof.measure.verifying.setting import ACCUMULATED, Setting, held_against
from dpprof.record.verify import VerifyCheck


def checks(setting: Setting) -> Iterator[VerifyCheck]:
    """In float64 and as the run computes: of one physical batch, of several, and of a second step."""
    case = setting.case
    for way in ("float64", setting.way):
        batches = case.moved(WAYS[way][1])
        name = f"gradient_{way.replace('bfloat16', 'bf16')}"
        workload = case.copied(WAYS[way][1])
        still = {"accumulation_steps": 1, "lr": 0.0}
        trainer = case.trainer(way, workload, setting.max_grad_norm, **still)
        gradients = case.gradients(trainer, way, batches[:1])
        yield _compared(setting, name, way, gradients, setting.samples(0, 1))
        if way == "float64":
            gradients = case.gradients(trainer, way, batches[1:2])
            yield _compared(setting, "gradient_next_step", way, gradients, setting.samples(1, 1))
            if case.is_private:
                yield _unclipped(setting)
        trainer = case.trainer(way, case.copied(WAYS[way][1]), setting.max_grad_norm)
        gradients = case.gradients(trainer, way, batches)
        yield _compared(setting, name + ACCUMULATED, way, gradients, setting.per_sample)


def _unclipped(setting: Setting) -> VerifyCheck:
    """Of a batch none of whose samples has a norm that needs clipping."""
    case, way = setting.case, "float64"
    largest = max(float(global_norm(sample)) for sample in setting.samples(0, 1))
    above = replace(setting, max_grad_norm=2 * largest)
    trainer = case.trainer(way, case.copied(WAYS[way][1]), above.max_grad_norm, accumulation_steps=1)
    gradients = case.gradients(trainer, way, case.moved(WAYS[way][1])[:1])
    return _compared(above, "gradient_unclipped", way, gradients, setting.samples(0, 1))


def _compared(
    setting: Setting, name: str, way: str, gradients: list[Tensor], samples: list[list[Tensor]]
) -> VerifyCheck:
    right = setting.clipped_mean(samples)
    gradients = [gradient.double() for gradient in gradients]
    error, allowed = relative_error(gradients, right), setting.tolerance(way)
    wrong = "" if error <= allowed else what_is_wrong(setting, gradients, right, samples, allowed)
    return held_against(name, error, allowed, f"off by {error:.1e}", f"{wrong} (off by {error:.1e})")
