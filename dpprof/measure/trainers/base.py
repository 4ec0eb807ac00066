"""What every trainer does alike: observed phases, forward and loss, and what is held after a step.

A trainer keeps in attributes what a training loop keeps in variables, the model's output and the loss, and
binds them anew where that loop does: so both hold the same bytes at any moment.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from dpprof.measure.observe import Observer
from dpprof.measure.trainers.nested import attributes, call, moved, named_leaves
from dpprof.measure.trainers.parallel import parallel_of
from dpprof.measure.trainers.seen import Trap, WatchedStep
from dpprof.measure.workloads.sampling import num_samples
from dpprof.vocabulary.loops import DOCUMENTED, LEAN, OUTPUTS
from dpprof.vocabulary.norm_forms import NormCost
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.phases import PHASE_LABEL, STEP_LABEL

# The tensors of each category, each with the name of its parameter or whatever tells what it is.
Held = dict[str, list[tuple[str, Tensor]]]


class TrainerBase(ABC):
    """One optimisation algorithm over one model.

    A subclass writes `step`: all of one training step, divided into phases by `with self.phase("forward"):`.
    Phases that `vocabulary.phases` lists have the meaning given there; what else the algorithm does gets a
    phase of its own. `self.compute_losses(batch)` is forward and loss; the loss that backward starts from is
    bound to `self.last_loss`, as the loop binds its variable. The step leaves in `p.grad` the gradient that
    `self.optimizer` has used. With Poisson sampling a batch may have no sample; `self.batch_size` is then the
    expected one.

    It may override:

    - `wrap_model`, `wrap_optimizer`: what the library puts around the model and the optimizer.
    - `held_tensors`, `drop_gradients`: what it keeps between steps beyond parameters, gradients and
      optimizer state, by category (of `vocabulary.categories` or its own).
    - `label_transient_tensors`: patches that label tensors which only live inside a library's functions.
      Tensors that `step` itself makes are labelled there: `self.observer.label("noise", [(name, tensor)])`,
      or `with self.observer.label_new("noise"):` around what makes them.
    - `all_savings`: the names of `vocabulary.loops.SAVINGS` that its lean loop makes; `self.saves(name)`
      tells whether this step makes one.
    - `clip_factor`, or `clip_factors` where parameters differ: how it scales a sample's gradient, if not as
      Abadi et al. do.
    - `noise_deviation`: how much noise it adds, if not noise_multiplier * max_grad_norm.
    - `explain`, `foresee`, `warnings`: what to say of models that its library cannot train, or not as one
      would expect.
    - `on_fake_tensors`: stand-ins for what its library cannot do without data.

    Its `vocabulary.trainers.TrainerInfo` lists the phases and categories. `tests/measure/trainers` holds
    every listed trainer to this.

    Args:
        model: moved to `device` and put in training mode.
        optimizer_cls: the underlying `torch.optim.Optimizer` class.
        optimizer_params: its keyword arguments.
        device: where the model trains.
        loss: `loss(outputs, targets)` gives one loss per sample, shape (B,).
        batch_size: samples in one physical batch; under Poisson sampling those expected.
        accumulation_steps: physical batches in one step. Gradients average over the logical batch.
        precision: `fp32`, or `bf16` to run forward under autocast.
        noise_multiplier: standard deviation of the noise over `max_grad_norm`; without effect where nothing
            is private, as is the next one.
        max_grad_norm: the L2 norm that each sample's gradient is clipped to.
        poisson_sampling: whether batches may have any number of samples, none among them.
        loop: `documented`, or `lean` to make every saving that the trainer has.
        options: the trainer's own settings, an instance of `TrainerInfo.options`; None if it has none.
        parallel: how it shares the training with the other ranks of torch's default process group; those of
            `TrainerInfo.parallel` may be asked for. `batch_size` is this rank's, and gradients average over
            the logical batches of all.
    """

    all_savings: tuple[str, ...] = (OUTPUTS,)
    # The ways in which rank 0 has more to do than the other ranks.
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
        self.device_type = self.device.type  # an estimate's is that of the device it stands for
        self.parallel = parallel_of(parallel, self.device)
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
        self.options = options
        self.observer = Observer()
        self._outputs: Any = None
        self.last_loss: Tensor | None = None
        self.save(self.all_savings if loop == LEAN else ())
        self.forward_model = self.wrap_model()
        self.optimizer = self.wrap_optimizer(optimizer_cls(self.parameters, **optimizer_params))

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The model's trainable parameters."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def wrap_model(self) -> nn.Module:
        """The module that forward calls: the model itself, or what a library puts around it."""
        return self.model

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> Any:
        """The optimizer, or what a library puts around it."""
        return optimizer

    @property
    def savings(self) -> tuple[str, ...]:
        """The savings that the loop leaves unmade."""
        return tuple(saving for saving in self.all_savings if not self.saves(saving))

    def save(self, savings: Iterable[str]) -> None:
        """Make these savings, and no others, from the next step on."""
        self._savings_made = frozenset(savings)
        if self.saves(OUTPUTS):
            self._outputs = None

    def saves(self, saving: str) -> bool:
        """Whether the loop makes a saving."""
        return saving in self._savings_made

    @abstractmethod
    def step(self, physical_batches: tuple[Any, ...]) -> None:
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
            self.observer.label("inputs", named_leaves(physical_batches))
        with self.observer.step(), record_function(STEP_LABEL):
            self.step(physical_batches)

    def run_profiling(self, batches: Iterable[Any], observer: Observer) -> None:
        """Train on physical batches until they run out, under the observer.

        A step's batches are fetched and moved to the device before the step begins.
        """
        source = iter(batches)
        self.observer = observer
        labelled = self.label_transient_tensors() if observer.follows_tensors else nullcontext()
        try:
            with observer, labelled, self.parallel.labelling(observer):
                while logical := tuple(islice(source, self.accumulation_steps)):
                    self.profile_step(*(moved(batch, self.device) for batch in logical))
        finally:
            self.observer = Observer()

    def held_tensors(self) -> Held:
        """The tensors that the trainer holds now, by category; only categories that hold any.

        Each comes with the name of its parameter; optimizer state as `<parameter>.<key>`. A subclass adds
        what else it holds.
        """
        name_of = {parameter: name for name, parameter in self.model.named_parameters()}
        held: Held = {
            "parameters": list(self.model.named_parameters()),
            "buffers": list(self.model.named_buffers()),
            "outputs": self._kept_by_the_loop(),
            "gradients": attributes(self.model, "grad"),
            "optimizer_state": [
                (f"{name_of[parameter]}.{key}", value)
                for parameter, state in self.optimizer.state.items()
                for key, value in state.items()
                if isinstance(value, Tensor)
            ],
        }
        return {category: tensors for category, tensors in held.items() if tensors}

    def _kept_by_the_loop(self) -> list[tuple[str, Tensor]]:
        outputs = [(f"output{path}", tensor) for path, tensor in named_leaves(self._outputs)]
        return outputs if self.last_loss is None else [*outputs, ("loss", self.last_loss)]

    def drop_gradients(self) -> None:
        """Let go of all gradients, and of the last output and loss, as the next step would."""
        self._outputs = self.last_loss = None
        self.optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def label_transient_tensors(self) -> Iterator[None]:
        """Surrounds the steps of an observer that follows tensors: labels those that only live inside a
        library's functions. Timed steps run the library as it is.
        """
        yield

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Surrounds one phase of a step; a phase may occur several times in a step, not within another."""
        with self.observer.phase(name), record_function(PHASE_LABEL + name):
            yield

    def compute_outputs(self, inputs: Any) -> Any:
        """What the model gives for a batch's inputs."""
        return call(self.forward_model, inputs)

    def compute_losses(self, batch: Any) -> Tensor:
        """Forward and loss of one physical batch: one loss per sample, shape (B,).

        Raises ValueError if the loss is not per sample.
        """
        inputs, targets = batch
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            if self.saves(OUTPUTS):
                losses = self.loss(self.compute_outputs(inputs), targets)
            else:
                self._outputs = self.compute_outputs(inputs)
                losses = self.loss(self._outputs, targets)
        self.num_samples = num_samples(batch) if self.poisson_sampling else self.batch_size
        if losses.shape != (self.num_samples,):
            raise ValueError(
                f"the workload's loss must give one value per sample, shape ({self.num_samples},), "
                f"it gave shape {tuple(losses.shape)}"
            )
        self.observer.losses(losses)
        return losses

    @staticmethod
    def noise_deviation(noise_multiplier: float, max_grad_norm: float, batch_size: int) -> float:
        """Standard deviation of the noise on each coordinate of the sum of clipped gradients, with physical
        batches of so many samples.
        """
        return noise_multiplier * max_grad_norm

    @staticmethod
    def clip_factor(norm: Tensor, max_grad_norm: float) -> Tensor:
        """What a gradient of this L2 norm is multiplied by: 1 / max(1, norm / C) (Abadi et al. 2016)."""
        return 1 / (norm / max_grad_norm).clamp(min=1.0)

    @classmethod
    def clip_factors(cls, norms: Tensor, max_grad_norm: float, options: Any) -> Tensor:
        """What the parameters' gradients of one sample are multiplied by, shape (P,), from their norms, shape
        (P,), under the trainer's own settings: by default all alike, by `clip_factor`.
        """
        return cls.clip_factor(torch.linalg.vector_norm(norms), max_grad_norm).expand_as(norms)

    @classmethod
    def explain(cls, error: Exception, model: nn.Module, batch_size: int) -> str | None:
        """One sentence on an error that this trainer's library raised over a model, with the module at fault
        and the remedy; None where the cause is not proven. The batch had so many samples.
        """
        return None

    @classmethod
    def foresee(cls, step: WatchedStep) -> list[Trap]:
        """The traps that this trainer's library will meet in a model, from a step that was watched without
        it: what `explain` says of the first one, said of all.
        """
        return []

    def norm_costs(self) -> dict[str, NormCost]:
        """The form of each weight's norm in the last step, by parameter, if the algorithm chooses one."""
        return {}

    def warnings(self) -> list[str]:
        """What to tell beside the figures of a model that trains, but not as one would expect."""
        return []

    @classmethod
    def on_fake_tensors(cls) -> AbstractContextManager[Any]:
        """Surrounds training on fake tensors, which have no data: puts stand-ins in place for what the
        library cannot do with them.
        """
        return nullcontext()
