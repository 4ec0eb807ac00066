"""Base class of all trainers: phases, forward and loss, and the tensors held after a step.

Attributes replace a training loop's variables (output, loss) and are rebound at the same moments, so that
both hold the same bytes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function
from torch.utils._pytree import tree_leaves

from dpprof.config.devices import balance_of
from dpprof.errors import WorkloadError
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.nested import attributes, call, moved, named_leaves
from dpprof.measure.trainers.parallel import parallel_of
from dpprof.measure.trainers.products import products_in
from dpprof.measure.trainers.watched_step import Trap, WatchedStep
from dpprof.measure.workloads.sampling import num_samples
from dpprof.vocabulary.loops import DOCUMENTED, LEAN, OUTPUTS
from dpprof.vocabulary.norm_forms import NormCost
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.phases import STEP_LABEL, label_of

# docs/troubleshooting.md quotes these sentences, with the names in capitals.
SENTENCES = {
    "loss": "the workload's loss must give one value per sample, shape ({batch_size},); it gave {found}: "
    'compute it with reduction="none", and average over all but the samples',
    "batch": "the size of the workload's batches is {length}, but batch_size is {batch_size}: make them of "
    "config.batch_size samples, or set poisson_sampling=true if they are sampled so",
    "empty": "the step with an empty batch failed ({error}), and Poisson sampling gives such batches: let "
    "the model and its loss take no samples too, as view(B, T * D) does and view(B, -1) does not",
}
# Tensors by category, each with the name of its parameter or another label.
Held = dict[str, list[tuple[str, Tensor]]]


class TrainerBase(ABC):
    """One optimisation algorithm over one model.

    A subclass implements `step`, one training step divided into phases by `with self.phase("forward"):`.
    `vocabulary.phases` defines the usual phases; an algorithm may add its own. `self.compute_losses(batch)`
    does forward and loss; `self.last_loss` is the loss that backward starts from. The step leaves in `p.grad`
    the gradient that `self.optimizer` used. With Poisson sampling a batch may be empty.

    It may override:

    - `wrap_model`, `wrap_optimizer`: the library's wrappers around the model and the optimizer.
    - `held_tensors`, `drop_gradients`: tensors kept between steps besides parameters, gradients and optimizer
      state, by category (of `vocabulary.categories` or its own).
    - `label_transient_tensors`: patches that label tensors inside a library's functions. `step` labels its
      own by `self.observer.label("noise", [(name, tensor)])` or `with self.observer.label_new("noise"):`.
    - `all_savings`: the `vocabulary.loops.SAVINGS` of its lean loop; `self.saves(name)` tells if made.
    - `clip_factor`, or `clip_factors` where parameters differ: a sample's factor, if not Abadi et al.'s.
    - `noise_deviation`: the noise, if not noise_multiplier * max_grad_norm.
    - `explain`, `foresee`, `warnings`: messages about models that its library does not train as expected;
      `unbounded`: those of them that leave no guarantee.
    - `on_fake_tensors`: stand-ins for what its library cannot do without data.

    `vocabulary.trainers.TrainerInfo` lists phases and categories; `tests/measure/trainers` tests listed
    trainers.

    Args:
        model: moved to `device` and put in training mode.
        optimizer_cls: the underlying `torch.optim.Optimizer` class.
        optimizer_params: its keyword arguments.
        device: where the model trains.
        loss: `loss(outputs, targets)` gives one loss per sample, shape (B,).
        batch_size: samples in a physical batch of this rank; the expected number with Poisson sampling.
        accumulation_steps: physical batches in one step. Gradients average over the logical batch.
        precision: `fp32`; `tf32` to multiply fp32 so; or `bf16` to run forward under autocast.
        noise_multiplier: standard deviation of the noise over `max_grad_norm`; for private trainers.
        max_grad_norm: L2 norm that each sample's gradient is clipped to; for private trainers.
        poisson_sampling: True if batches vary in size, and may be empty.
        loop: `documented`, or `lean` to make every saving that the trainer has.
        options: the trainer's own settings, an instance of `TrainerInfo.options`; None if it has none.
        parallel: one of `TrainerInfo.parallel`; gradients average over the logical batches of all ranks.
    """

    all_savings: tuple[str, ...] = (OUTPUTS,)
    # Parallel ways in which rank 0 does more than the other ranks.
    rank_0_differs: frozenset[str] = frozenset()

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
        options: Any = None,
        parallel: str = NONE,
    ) -> None:
        self.device = torch.device(device)
        # For an estimate, these two describe the target device.
        self.device_type = self.device.type
        gpu = torch.cuda.get_device_name() if self.device_type == "cuda" else ""
        self.balance = balance_of(self.device_type, gpu)
        self.parallel = parallel_of(parallel, self.device)
        # Parameters of a fake model cannot be moved, not even to their own device.
        elsewhere = any(t.device.type != self.device.type for t in (*model.parameters(), *model.buffers()))
        self.model = (model.to(self.device) if elsewhere else model).train()
        self.loss = loss
        self.batch_size = self.num_samples = batch_size
        self.accumulation_steps = accumulation_steps
        self.precision = precision
        self.noise_multiplier = noise_multiplier
        self.max_grad_norm = max_grad_norm
        self.poisson_sampling = poisson_sampling
        self.options = options
        self.observer = Observer()
        self._outputs: Any = None
        self.last_loss: Tensor | None = None
        self.save(self.all_savings if loop == LEAN else ())
        self.forward_model = self.wrap_model()
        self.optimizer = self.wrap_optimizer(optimizer_cls(self.parameters, **optimizer_params))

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Trainable parameters of the model."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def wrap_model(self) -> nn.Module:
        """Wrap the model for the forward, with the library's wrapper if it has one."""
        return self.model

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> Any:
        """Wrap the optimizer with the library's wrapper, if it has one."""
        return optimizer

    @property
    def savings(self) -> tuple[str, ...]:
        """Savings that the loop does not make."""
        return tuple(saving for saving in self.all_savings if not self.saves(saving))

    def save(self, savings: Iterable[str]) -> None:
        """Make these savings, and no others, from the next step on."""
        self._savings_made = frozenset(savings)
        if self.saves(OUTPUTS):
            self._outputs = None

    def saves(self, saving: str) -> bool:
        """Tell whether the loop makes a saving."""
        return saving in self._savings_made

    @abstractmethod
    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Do one training step in phases; `profile_step` has checked the number of batches."""

    def profile_step(self, *physical_batches: Any) -> None:
        """Do one training step on `accumulation_steps` physical batches, without waiting for the device."""
        if len(physical_batches) != self.accumulation_steps:
            raise ValueError(
                f"a step takes {self.accumulation_steps} physical batches, got {len(physical_batches)}"
            )
        if self.observer.follows_tensors:
            self.observer.label("inputs", named_leaves(physical_batches))
        with products_in(self.precision), self.observer.step(), record_function(STEP_LABEL):
            self.step(physical_batches)

    def run_profiling(self, batches: Iterable[Any], observer: Observer) -> None:
        """Train on physical batches until they run out, each step's on the device before it begins."""
        source = iter(batches)
        self.observer = observer
        labelled = self.label_transient_tensors() if observer.follows_tensors else nullcontext()
        try:
            with labelled, self.parallel.labelling(observer):
                while logical := tuple(islice(source, self.accumulation_steps)):
                    self.profile_step(*(moved(batch, self.device) for batch in logical))
        finally:
            self.observer = Observer()

    def held_tensors(self) -> Held:
        """Return the tensors held now, as `held_by`."""
        outputs = [(f"output{path}", tensor) for path, tensor in named_leaves(self._outputs)]
        if self.last_loss is not None:
            outputs.append(("loss", self.last_loss))
        return held_by(self.model, [self.optimizer], outputs)

    def drop_gradients(self) -> None:
        """Release all gradients, the last output and the loss, as the next step would."""
        self._outputs = self.last_loss = None
        self.optimizer.zero_grad(set_to_none=True)

    def label_transient_tensors(self) -> AbstractContextManager[None]:
        """Label tensors inside a library's functions, for an observer that follows tensors.

        Timed steps run the library as it is.
        """
        return nullcontext()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Mark one phase of a step; phases may recur in a step, but not nest."""
        with self.observer.phase(name), record_function(label_of(name)):
            yield

    def unhooked(self) -> AbstractContextManager[Any]:
        """Call the model without the library's hooks."""
        return nullcontext()

    def compute_outputs(self, inputs: Any) -> Any:
        """Run the model on a batch's inputs."""
        return call(self.forward_model, inputs)

    def compute_losses(self, batch: Any) -> Tensor:
        """Do forward and loss of one physical batch: one loss per sample, shape (B,).

        Raises WorkloadError if the loss is not per sample.
        """
        inputs, targets = batch
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            if self.saves(OUTPUTS):
                losses = self.loss(self.compute_outputs(inputs), targets)
            else:
                self._outputs = self.compute_outputs(inputs)
                losses = self.loss(self._outputs, targets)
        self.num_samples = num_samples(batch) if self.poisson_sampling else self.batch_size
        _check_losses(losses, batch, self.num_samples)
        self.observer.losses(losses)
        return losses

    @staticmethod
    def noise_deviation(noise_multiplier: float, max_grad_norm: float, batch_size: int) -> float:
        """Standard deviation of the noise on each coordinate of the sum of clipped gradients.

        `batch_size` is that of physical batches.
        """
        return noise_multiplier * max_grad_norm

    @staticmethod
    def clip_factor(norm: Tensor, max_grad_norm: float) -> Tensor:
        """Factor for a gradient of this L2 norm: 1 / max(1, norm / C) (Abadi et al. 2016)."""
        return 1 / (norm / max_grad_norm).clamp(min=1.0)

    @classmethod
    def clip_factors(cls, norms: Tensor, max_grad_norm: float, options: Any) -> Tensor:
        """Factors for one sample's gradients from their norms, both of shape (P,); by default all alike."""
        return cls.clip_factor(torch.linalg.vector_norm(norms), max_grad_norm).expand_as(norms)

    @classmethod
    def explain(cls, error: Exception, model: nn.Module, batch_size: int) -> str | None:
        """Explain an error of this trainer's library in one sentence, with module at fault and remedy.

        None unless the cause is proven. `batch_size` is the failing batch's.
        """
        return None

    @classmethod
    def foresee(cls, step: WatchedStep) -> list[Trap]:
        """Return the traps of this trainer's library in a model, from a step watched without the library.

        If training fails where that step does not, the first trap is reported.
        """
        return []

    def norm_costs(self) -> dict[str, NormCost]:
        """Return the form of each weight's norm in the last step, by parameter, if there is a choice."""
        return {}

    def warnings(self) -> list[str]:
        """Return warnings about a model that trains, but not as one would expect."""
        return []

    def unbounded(self) -> list[str]:
        """Return those warnings that leave no guarantee: a sample changes more than clipping bounds."""
        return []

    @classmethod
    def on_fake_tensors(cls) -> AbstractContextManager[Any]:
        """Replace, while training on fake tensors, what the library cannot do without data."""
        return nullcontext()


def held_by(model: nn.Module, optimizers: Iterable[Any], outputs: Iterable[tuple[str, Tensor]] = ()) -> Held:
    """Return the tensors held now, by category; only categories with any.

    Each has the name of its parameter; optimizer state is `<parameter>.<key>`.
    """
    name_of: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    held: Held = {
        "parameters": list(model.named_parameters()),
        "buffers": list(model.named_buffers()),
        "outputs": list(outputs),
        "gradients": attributes(model, "grad"),
        "optimizer_state": [
            (f"{name_of.get(parameter, '')}.{key}", value)
            for optimizer in optimizers
            for parameter, state in optimizer.state.items()
            for key, value in state.items()
            if isinstance(value, Tensor)
        ],
    }
    return {category: tensors for category, tensors in held.items() if tensors}


def _check_losses(losses: object, batch: Any, batch_size: int) -> None:
    found = f"a {type(losses).__name__}"
    if isinstance(losses, Tensor):
        if losses.shape == (batch_size,):
            return
        found = f"shape {tuple(losses.shape)}"
        lengths = {t.shape[:1] for t in tree_leaves(batch) if isinstance(t, Tensor)}
        if losses.dim() == 1 and lengths == {losses.shape}:
            raise WorkloadError(SENTENCES["batch"].format(length=len(losses), batch_size=batch_size))
    raise WorkloadError(SENTENCES["loss"].format(batch_size=batch_size, found=found))
