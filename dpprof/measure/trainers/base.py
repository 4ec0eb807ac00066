"""What every trainer does alike: observed phases, forward and loss, and what is held after a step.

A trainer keeps in attributes what a training loop keeps in variables, the model's output and the loss, and
binds them anew where that loop does: so both hold the same bytes at any moment.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map

from dpprof.measure.observe import Observer
from dpprof.measure.workloads.sampling import num_samples
from dpprof.vocabulary.loops import DOCUMENTED, LEAN, OUTPUTS
from dpprof.vocabulary.phases import PHASE_LABEL, STEP_LABEL


class TrainerBase(ABC):
    """One optimisation algorithm over one model.

    Args:
        model: moved to `device` and put in training mode.
        optimizer_cls: the underlying `torch.optim.Optimizer` class.
        optimizer_params: its keyword arguments.
        device: where the model trains.
        loss: `loss(outputs, targets)` gives one loss per sample, shape (B,).
        batch_size: samples in one physical batch; under Poisson sampling those expected.
        accumulation_steps: physical batches in one step. Gradients average over the logical batch.
        precision: `fp32`, or `bf16` to run forward under autocast.
        noise_multiplier, max_grad_norm: as in Opacus; without effect where nothing is private.
        poisson_sampling: whether batches may have any number of samples, none among them.
        loop: `documented`, or `lean` to make every saving that the trainer has (`loops.SAVINGS`).
    """

    is_private: bool = True
    all_savings: tuple[str, ...] = (OUTPUTS,)

    def __init__(
        self,
        model: nn.Module,
        optimizer_cls: type[torch.optim.Optimizer],
        optimizer_params: dict[str, Any],
        device: str | torch.device,
        *,
        loss: Callable[[Any, Any], Tensor],
        batch_size: int,
        accumulation_steps: int = 1,
        precision: str = "fp32",
        noise_multiplier: float = 1.0,
        max_grad_norm: float = 1.0,
        loop: str = DOCUMENTED,
        poisson_sampling: bool = False,
    ) -> None:
        self.device = torch.device(device)
        # The parameters of a fake model cannot be moved, not even to where they are.
        elsewhere = any(t.device.type != self.device.type for t in (*model.parameters(), *model.buffers()))
        self.model = (model.to(self.device) if elsewhere else model).train()
        self.loss = loss
        self.batch_size = self.num_samples = batch_size
        self.accumulation_steps = accumulation_steps
        self.precision = precision
        self.noise_multiplier = noise_multiplier
        self.max_grad_norm = max_grad_norm
        self.poisson_sampling = poisson_sampling
        self.observer = Observer()
        self._outputs: Any = None
        self._loss: Tensor | None = None
        self.save(self.all_savings if loop == LEAN else ())
        self.forward_model = self._wrap_model()
        self.optimizer = self._wrap_optimizer(optimizer_cls(self.parameters, **optimizer_params))

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The model's trainable parameters."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def _wrap_model(self) -> nn.Module:
        return self.model

    def _wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> Any:
        return optimizer

    @property
    def savings(self) -> tuple[str, ...]:
        """The savings that the loop leaves unmade."""
        return tuple(saving for saving in self.all_savings if saving not in self._made)

    def save(self, savings: Iterable[str]) -> None:
        """Make these savings, and no others, from the next step on."""
        self._made = frozenset(savings)
        if OUTPUTS in self._made:
            self._outputs = None

    @abstractmethod
    def _step(self, physical_batches: tuple[Any, ...]) -> None:
        """One training step in phases; `profile_step` has checked the number of batches."""

    def profile_step(self, *physical_batches: Any) -> None:
        """Do one full training step in named phases, on `accumulation_steps` physical batches.

        Afterwards `p.grad` holds what the optimizer used. Nothing here waits for the device.
        """
        if len(physical_batches) != self.accumulation_steps:
            raise ValueError(
                f"a step takes {self.accumulation_steps} physical batches, got {len(physical_batches)}"
            )
        if self.observer.follows_tensors:
            self.observer.book("inputs", _named_leaves(physical_batches))
        with self.observer.step(), record_function(STEP_LABEL):
            self._step(physical_batches)

    def run_profiling(self, batches: Iterable[Any], observer: Observer) -> None:
        """Train on physical batches until they run out, under the observer.

        A step's batches are fetched and moved to the device before the step begins.
        """
        source = iter(batches)
        self.observer = observer
        try:
            with observer, self._announcing() if observer.follows_tensors else nullcontext():
                while logical := tuple(islice(source, self.accumulation_steps)):
                    self.profile_step(*(_moved(batch, self.device) for batch in logical))
        finally:
            self.observer = Observer()

    def held_tensors(self) -> dict[str, list[tuple[str, Tensor]]]:
        """The tensors that the trainer holds now, by category; only categories that hold any.

        Each comes with the name of its parameter; optimizer state as `<parameter>.<key>`.
        """
        named = dict(self.model.named_parameters())
        name_of = {parameter: name for name, parameter in named.items()}
        held: dict[str, list[tuple[str, Tensor]]] = {
            "parameters": list(named.items()),
            "buffers": list(self.model.named_buffers()),
            "outputs": self._kept_by_the_loop(),
            "gradients": _attributes(named, "grad"),
            "per_sample_gradients": _attributes(named, "grad_sample"),
            "gradient_norms": _attributes(named, "_norm_sample"),
            "summed_gradients": _attributes(named, "summed_grad"),
            "optimizer_state": [
                (f"{name_of[parameter]}.{key}", value)
                for parameter, state in self.optimizer.state.items()
                for key, value in state.items()
                if isinstance(value, Tensor)
            ],
        }
        return {category: tensors for category, tensors in held.items() if tensors}

    def _kept_by_the_loop(self) -> list[tuple[str, Tensor]]:
        outputs = [(f"output{path}", tensor) for path, tensor in _named_leaves(self._outputs)]
        return outputs if self._loss is None else [*outputs, ("loss", self._loss)]

    def drop_gradients(self) -> None:
        """Let go of all gradients and norms, and of the last output and loss, as the next step would."""
        self._outputs = self._loss = None
        self.optimizer.zero_grad(set_to_none=True)
        for parameter in self.parameters:
            if hasattr(parameter, "_norm_sample"):
                del parameter._norm_sample

    @contextmanager
    def _announcing(self) -> Iterator[None]:
        """Announces to the observer what only lives inside library functions; a subclass knows of such."""
        yield

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        with self.observer.phase(name), record_function(PHASE_LABEL + name):
            yield

    def _losses(self, batch: Any) -> Tensor:
        """Forward and loss of one physical batch: one loss per sample, shape (B,).

        Raises ValueError if the loss is not per sample.
        """
        inputs, targets = batch
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            if OUTPUTS in self._made:
                losses = self.loss(call(self.forward_model, inputs), targets)
            else:
                self._outputs = call(self.forward_model, inputs)
                losses = self.loss(self._outputs, targets)
        self.num_samples = num_samples(batch) if self.poisson_sampling else self.batch_size
        if losses.shape != (self.num_samples,):
            raise ValueError(
                f"the workload's loss must give one value per sample, shape ({self.num_samples},), "
                f"it gave shape {tuple(losses.shape)}"
            )
        self.observer.losses(losses)
        return losses


def _attributes(named: dict[str, nn.Parameter], attribute: str) -> list[tuple[str, Tensor]]:
    """The tensors under an attribute that each parameter may hold: none, a tensor, or a list of them."""
    found = ((name, getattr(parameter, attribute, None)) for name, parameter in named.items())
    listed = ((name, value if isinstance(value, list) else [value]) for name, value in found)
    return [(name, tensor) for name, values in listed for tensor in values if tensor is not None]


def _named_leaves(tree: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a batch or an output, however nested, each under the way to it, e.g. `[0][1]`."""
    leaves, _ = tree_flatten_with_path(tree)
    return [(keystr(path), leaf) for path, leaf in leaves if isinstance(leaf, Tensor)]


def call(model: nn.Module, inputs: Any) -> Any:
    """Call a model with a batch's inputs: a dict by name, a tuple by place, anything else as one argument."""
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(inputs)


def _moved(batch: Any, device: torch.device) -> Any:
    return tree_map(lambda t: t.to(device, non_blocking=True) if isinstance(t, Tensor) else t, batch)
