"""Times that a host takes to issue the work of a training step to a GPU.

`benchmarks/phantom/host_times.py` counted this work in the phases of 23 steps and timed them through torch's
CUDA path without a GPU. Its host and that of an H100, which took 1.7 times as long, set the scale: these
are the times of a host between the two (`docs/results/host.md`).
"""

from dataclasses import dataclass

from dpprof.config.devices import DEVICES

# How long processors take, relative to one of 2023 (Sapphire Rapids, Zen 4): by the instructions per clock
# that their makers state (Sunny Cove 18 % over Skylake, Golden Cove 19 % over that, Zen 3 19 % over Zen 2).
PROCESSORS = {"2017": 1.4, "2020": 1.1, "2023": 1.0}
# What `issue_s` finds on a host with these times (`docs/results/host.md`).
ISSUE_US = 27.5


@dataclass(frozen=True)
class IssueTimes:
    """Microseconds of host work.

    `light` issues an elementwise operator or a copy, `heavy` any other, and `convolution` is what one takes
    on top, as cuDNN chooses a kernel. `node` is a step of autograd, `view` makes a view or allocates a
    tensor, `listed` comes for each tensor in a list, `module` for a call of a module, and `hook` for one of a
    hook. `transform` is a call of `torch.func.vmap` or `grad`, and `level` what each of these that is active
    adds to an operator or a view.
    """

    light: float = 11.9
    heavy: float = 28.4
    convolution: float = 109.1
    node: float = 10.4
    view: float = 5.1
    listed: float = 4.5
    module: float = 16.1
    hook: float = 47.0
    transform: float = 65.5
    level: float = 2.7

    @classmethod
    def of(cls, gpu: str, issue_us: float = 0.0) -> "IssueTimes":
        """Return the times of a GPU's host, by what `dpprof calibrate` measured or its usual processor."""
        device = DEVICES.get(gpu)
        factor = issue_us / ISSUE_US if issue_us else PROCESSORS[device.host if device else "2023"]
        return cls(**{name: factor * us for name, us in vars(cls()).items()})
