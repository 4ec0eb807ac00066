"""The ledger pass: two steps under the ledger, after warm-up."""

from dpprof.config.devices import named
from dpprof.measure.passes.estimate_ledger import CudaLedger
from dpprof.measure.passes.ledger import Ledger, keep_ledger, warmup_steps
from dpprof.measure.passes.subject import Subject

_OBSERVED_STEPS = 2


def run(subject: Subject) -> None:
    """Record the step with the higher peak.

    On a listed GPU, with what its kernels and the allocator take beside the tensors.
    """
    config = subject.config
    device = named(subject.record.environment.get("gpu", ""))
    is_listed = device is not None and config.device == "cuda"
    ledger = CudaLedger("cuda", device) if is_listed else Ledger(config.device)
    kept = keep_ledger(subject.build, ledger, _OBSERVED_STEPS, warmup_steps=warmup_steps(config))
    subject.record.ledger = kept.result
    subject.folder.write_ledger(kept.result, kept.account.timeline())
