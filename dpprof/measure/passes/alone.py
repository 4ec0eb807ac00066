"""The alone pass: the steps of one rank as if the others were there.

The same training on a process group whose collectives send nothing and wait for nobody
(`measure/silent_group.py`). What a step of the clean pass takes longer is communication that no computation
hides.
"""

import gc

import torch

from dpprof.measure.observe import Observer, Subject
from dpprof.measure.passes.clean import Stopwatch


def run(subject: Subject) -> None:
    """Time `measured_steps` steps after `warmup_steps`."""
    config = subject.config
    on_cuda = config.device == "cuda"
    training = subject.build(is_timed=True)
    training.run(config.measuring.warmup_steps, Observer())
    gc.collect()
    if on_cuda:
        torch.cuda.synchronize()
    stopwatch = Stopwatch(on_cuda=on_cuda)
    training.run(config.measuring.measured_steps, stopwatch)
    if on_cuda:
        torch.cuda.synchronize()
    subject.record.alone_step_s, _ = stopwatch.results()
