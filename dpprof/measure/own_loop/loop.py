"""Measures the steps of a loop, stage after stage, and then leaves it alone.

First some steps are only counted, then steps are timed with nothing but marks of their phases. The ledger,
with the allocator's events, and the trace are each kept for steps of their own.
"""

import inspect
import itertools
import os
import re
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

import psutil
import torch
from torch import nn
from torch.optim import Optimizer
from torch.profiler import record_function

from dpprof.config.drive import DriveConfig
from dpprof.config.estimating import ESTIMATE, EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.training import LONGEST_NAME
from dpprof.errors import DpprofError, describe_error, refuse
from dpprof.measure.environment import describe_environment
from dpprof.measure.guard import Guard, LoopGuard
from dpprof.measure.observe import Observer
from dpprof.measure.own_loop.followed import Followed
from dpprof.measure.own_loop.forks import exit_without_threads, keep_for_good, tell_forks
from dpprof.measure.own_loop.ledger import num_compiled
from dpprof.measure.own_loop.marks import Marks
from dpprof.measure.own_loop.passes import LoopPasses, Stage
from dpprof.measure.own_loop.profilers import PROFILED, Profilers
from dpprof.measure.own_loop.target import OnTarget
from dpprof.measure.passes.weights import parameter_groups
from dpprof.record.folder import RunFolder
from dpprof.record.record import PassOutcome, PassStatus, Record
from dpprof.vocabulary.formats import counted, listed
from dpprof.vocabulary.phases import STEP_LABEL
from dpprof.vocabulary.trainers import OWN_LOOP

COMPILED = "compiled code ({graphs}): the ledger sees what it returns, and not what it makes in between"
OTHERS = "several models were called: {model} is taken for the model, and what {others} holds counts as other"
ELSEWHERE = "{steps} ran in other threads than the first one, and are not measured"
# The variables of torchrun's that tell a process which of the ranks it is.
_RANK = "RANK"
_OF_RANKS = (_RANK, "WORLD_SIZE")
_UNNAMED = "unnamed"  # a phase whose name is empty
_FORKED = "a fork of the loop's process"
_LEFT = "the script ended while the thread of the loop went on"
_STOPPED = "the loop ended after {done} of {steps} steps of this pass"


class LoopEnded(BaseException):
    """Ends a loop whose measurement is complete, or a pass that did not get all its steps.

    No error, so that a loop that goes on after errors ends, too.
    """


class _PassFailed(Exception):
    """Ends a pass in which a hook failed."""


class LoopMeasurement:
    """Measures a loop's steps into a run folder.

    Args:
        model: its calls are the forward phase; by default every outermost module that is called. The model
            is then the one that owns most of the optimizers' parameters.
        optimizer: whose state is told apart; by default those whose `step` is called.
        name: of the run; letters, digits and underscores.
        runs_dir: where the run's folder is made.
        warmup_steps: steps before anything is measured.
        measured_steps: timed steps; estimated ones with a target.
        end: end the loop by an exception when everything is measured; `with` swallows it.
        mlflow: log the run at the end, as a "nested" run of the active one, or into the "active" run.
        by_optimizer: take the end of an optimizer's `step` for that of a training step, of the first
            optimizer that steps; nobody calls `step` then.
        on_target: instead of measuring, estimate the steps on its GPU; the loop must run within its
            `running()`, from the model's creation on.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        *,
        name: str = "loop",
        runs_dir: str | Path = "runs",
        warmup_steps: int = 3,
        measured_steps: int = 10,
        end: bool = False,
        mlflow: Literal["nested", "active"] | None = None,
        by_optimizer: bool = False,
        on_target: OnTarget | None = None,
    ) -> None:
        if not re.fullmatch(r"\w+", name):
            raise refuse("name", name, "letters, digits and underscores")
        if len(name.encode()) > LONGEST_NAME:
            raise refuse("name", name, f"a name of at most {LONGEST_NAME} bytes")
        if mlflow not in (None, "nested", "active"):
            raise refuse("mlflow", mlflow, "nested, active or None")
        for option, value in (("warmup_steps", warmup_steps), ("measured_steps", measured_steps)):
            if value < 1:
                raise refuse(option, value, "1 or more")
        DriveConfig(runs_dir=str(runs_dir)).check_writable()
        self._followed = Followed(model, [optimizer] if optimizer is not None else [])
        # Absolute, as the loop may change the directory.
        self._name, self._runs_dir, self._end = name, Path(runs_dir).absolute(), end
        self._by_optimizer, self._mlflow = by_optimizer, mlflow
        self._how: MeasuringConfig | EstimatingConfig
        self._how = MeasuringConfig(warmup_steps, measured_steps, "clean,ledger,trace")
        self._on_target, self._num_steps = on_target, (warmup_steps, measured_steps)
        if on_target is not None:
            self._how, self._end = EstimatingConfig(on_target.target, savings=False), True
        # An estimate is all that a loop on a target runs for: it ends with what fails.
        self._guard = LoopGuard() if on_target is None else Guard()
        self._marks = Marks(self._followed, self._optimizer_stepped, self._thread_ends, self._guard)
        self._run = self._stage_after_stage()
        self._profilers = Profilers(self._is_at_work, self._other_profiler_begins, self._guard)
        self._stage: Stage | None = None
        # Steps of this stage so far; samples of its last step, and of each that is timed.
        self._done, self._samples, self._step_samples = 0, 0, list[int]()
        self._thread = threading.get_ident()
        self.folder: RunFolder | None = None
        self.is_complete = self._is_stopping = False
        self.failure = ""  # why nothing more could be measured

    # The loop's side.

    def start(self) -> None:
        """Begin with the warm-up."""
        tell_forks(self._leave_to_parent)
        self._marks.install()
        self._marks.keep(self._profilers.followed())
        next(self._run)

    def step(self) -> None:
        """Tell that a training step is over. Does nothing once everything is measured."""
        if self._stage is None:
            return
        if self._is_of_another_thread():
            self._marks.steps_elsewhere += 1
            return
        self._go_on()
        if self._stage is None and self._end:
            raise LoopEnded

    def _go_on(self) -> None:
        """Observe the next step, or end the pass in which something failed."""
        with self._surviving():
            self._samples = self._marks.end_step()
            error, self._guard.error = self._guard.error, None
            # The warm-up measures nothing: it goes on, so that the steps after it are warm.
            if error is not None and self._stage is not None and self._stage.name:
                self._run.throw(_PassFailed(error))
            else:
                next(self._run, None)

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Measure nothing more if something fails in here, and let the loop go on."""
        try:
            yield
        except StopIteration:
            pass
        except Exception as error:
            if self._on_target is not None:
                raise
            self.failure = describe_error(error)
            self._stage = None
            self._run.close()
            self._marks.remove()

    def stop(self, why: str = "", error: BaseException | None = None) -> None:
        """End the measurement where it is; a pass that lacks steps is left out, and says so.

        Args:
            why: what makes further measurement impossible.
            error: what ended the loop.
        """
        if self._stage is not None and self._is_of_another_thread():
            # Left as it is: torch crashes where another thread ends its profiler.
            with self._surviving():
                self._record.passes[self._stage.name] = PassOutcome(PassStatus.SKIPPED, _LEFT)
                self._finish()
        elif self._stage is not None:
            self._is_stopping, self.failure = True, self._guard.error or why
            said = why or (describe_error(error) if isinstance(error, Exception) else "")
            with self._surviving():
                self._marks.end_step()
                failed = self._guard.error is not None
                with suppress(LoopEnded, StopIteration):
                    self._run.throw(_PassFailed(self._guard.error) if failed else LoopEnded(said))
                self._finish()

    def _leave_to_parent(self) -> None:
        """Do nothing more in a fork. What is open stays so: torch crashes if a fork ends a profiler."""
        self._stage, self._end, self._guard.error = None, False, _FORKED
        keep_for_good(self._run)
        if self.folder is not None:
            exit_without_threads()
        self.folder = None

    def _is_of_another_thread(self) -> bool:
        """Tell if the stage under way, whose profilers belong to a thread, was begun in another one."""
        return bool(self._stage and self._stage.name) and self._thread != threading.get_ident()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Mark a phase by hand."""
        if self._stage is None or self._marks.is_outside_loop():
            yield
            return
        name = str(name) or _UNNAMED
        begun = self._guard.hook(self._marks.begin_phase)(name)
        try:
            yield
        finally:
            if begun:
                self._guard.hook(self._marks.end_phase)(name)

    def _all_stages(self) -> Iterator[Stage]:
        warmup_steps, measured_steps = self._num_steps
        if (on := self._on_target) is not None:
            yield Stage("", warmup_steps, lambda: on.warming(self._followed))
            folder, record = self._begin_record()
            about = self._followed, folder, record, self._step_samples
            yield Stage(ESTIMATE, measured_steps, lambda: on.estimating(*about))
            return
        yield Stage("", warmup_steps, lambda: nullcontext(Observer()))
        folder, record = self._begin_record()
        passes = LoopPasses(self._followed, folder, record, self.config, self._guard, self._profilers)
        yield from passes.stages(measured_steps)

    # What the marks tell.

    def _optimizer_stepped(self, optimizer: Optimizer | None) -> None:
        """End the training step, if nobody else tells so."""
        if self._by_optimizer and optimizer is next(iter(self._followed.optimizers), None):
            self.step()

    def _thread_ends(self) -> None:
        """Stop when the loop's thread ends: a profiler that outlives it crashes."""
        if self._stage is not None and self._stage.name and not self._is_of_another_thread():
            self.stop()

    def _is_at_work(self) -> bool:
        """Tell if dpprof runs now, not the loop."""
        return inspect.getgeneratorstate(self._run) == inspect.GEN_RUNNING

    def _other_profiler_begins(self) -> None:
        """Stop before the loop's own profiler begins, which would end that of a pass."""
        if self._stage is not None and self._stage.start_profiled_step is not None:
            self.stop(PROFILED)

    # Steps and stages.

    def _stage_after_stage(self) -> Generator[None, None, None]:
        """Observe the loop's steps: it waits within each.

        LoopEnded, thrown in, ends them all early; an error ends a pass, and the next one begins.
        """
        for stage in self._all_stages():
            self._stage, self._done, self._thread = stage, 0, threading.get_ident()
            began, outcome = time.perf_counter(), PassOutcome(PassStatus.RUNNING)
            if stage.name:
                self._record.passes[stage.name] = outcome
            ended: BaseException | None = None
            try:
                with stage.open() as self._marks.observer:
                    yield from self._steps(stage)
                outcome.status = PassStatus.FINISHED
            except (Exception, KeyboardInterrupt, LoopEnded) as error:
                is_fault = isinstance(error, Exception) and not isinstance(error, _PassFailed | DpprofError)
                said = describe_error(error) if is_fault else str(error)
                said = said or _STOPPED.format(done=self._done, steps=stage.num_steps)
                outcome.status, outcome.reason = PassStatus.SKIPPED, said
                ended = error if self._on_target or not isinstance(error, Exception) else None
            if stage.name:
                outcome.seconds = time.perf_counter() - began
                counts = self._step_samples
                self._record.samples_per_step = round(sum(counts) / max(1, len(counts))) or None
                self._record.step_samples = counts if len(set(counts)) > 1 else []
                self._write()
            if ended is not None:
                raise ended
            if self._is_stopping:
                return
        self.is_complete = True
        self._finish()

    def _steps(self, stage: Stage) -> Iterator[None]:
        self._marks.labels_ranges = stage.start_profiled_step is not None
        is_timed = stage.name in ("clean", ESTIMATE)
        try:
            for _ in range(stage.num_steps):
                if stage.start_profiled_step is not None:
                    stage.start_profiled_step()
                ranges = record_function(STEP_LABEL) if self._marks.labels_ranges else nullcontext()
                with self._marks.observer.step(), ranges:
                    yield
                self._done += 1
                if is_timed:
                    self._step_samples.append(self._samples)
        except LoopEnded:
            if not is_timed or not self._done:
                raise

    def _finish(self) -> None:
        self._stage = None
        self._marks.remove()
        if self.folder is None:
            return
        for name in self.config.pass_names:
            missing = PassOutcome(PassStatus.SKIPPED, "the loop ended before it")
            self._record.passes.setdefault(name, missing)
        if graphs := num_compiled():
            self._record.warnings.append(COMPILED.format(graphs=counted(graphs, "graph")))
        if steps := self._marks.steps_elsewhere:
            self._record.warnings.append(ELSEWHERE.format(steps=counted(steps, "optimizer step")))
        self._write()

    # The folder and its record.

    def _begin_record(self) -> tuple[RunFolder, Record]:
        parameters = list(self._followed.model.parameters())
        on_cuda = torch.cuda.is_initialized() and any(p.device.type == "cuda" for p in parameters)
        self._device = "cuda" if on_cuda else "cpu"
        is_short = self._marks.is_short or any(p.dtype in (torch.bfloat16, torch.float16) for p in parameters)
        self.config = ExperimentConfig(
            trainer=OWN_LOOP,
            workload=f"loop:{self._name}",
            batch_size=max(1, self._marks.batch_size),
            seq_len=1,
            device="cuda" if self._on_target is not None else self._device,
            precision="bf16" if is_short and self._on_target is not None else "fp32",
            how=self._how,
        )
        self.folder = RunFolder(self._make_path())
        self.folder.clear_answers()
        self.folder.write_config(self.config)
        self._record = record = Record(to_flat(self.config), describe_environment(self._device))
        record.environment |= {name.lower(): os.environ[name] for name in _OF_RANKS if name in os.environ}
        record.num_parameters = sum(p.numel() for p in parameters)
        record.parameters = parameter_groups(self._followed.model, self.config)
        if others := self._followed.other_models:
            names = listed(sorted(type(one).__name__ for one in others))
            record.warnings.append(OTHERS.format(model=type(self._followed.model).__name__, others=names))
        return self.folder, record

    def _make_path(self) -> Path:
        """Make the run's folder, and return its path; the ranks of a launch have theirs side by side."""
        name, began = self.config.run_name, time.time()
        if _RANK in os.environ:
            name, began = f"{name}_rank{os.environ[_RANK]}", psutil.Process(os.getppid()).create_time()
        path = self._runs_dir / time.strftime("loop-%Y%m%d-%H%M%S", time.localtime(began)) / name
        for number in itertools.count(2):
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                path = path.with_name(f"{name}_{number}")
            else:
                break
        return path

    def _write(self) -> None:
        assert self.folder is not None
        self._record.ended_at = time.time()
        self.folder.write_record(self._record)
