"""The ledger of a loop that is not dpprof's."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dpprof.measure.guard import Guard
from dpprof.measure.own_loop.followed import Followed
from dpprof.measure.passes.ledger import Ledger, LedgerObserver


class LoopLedger(Ledger):
    """A ledger that runs the loop's operators, whatever fails in its account of them."""

    def __init__(self, device_type: str, guard: Guard) -> None:
        super().__init__(device_type, guard=guard)
        self._guard = guard
        self._run: Callable[..., Any]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and account for it."""
        account = super().__torch_dispatch__

        def accounting(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self._run = run
            return account(func, types, args, kwargs)

        return self._guard.around(accounting)(func, *args, **(kwargs or {}))

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator."""
        return self._run(*args, **kwargs)


class BesideCompiled(LoopLedger):
    """Leaves compiled code as it is; beside others it would run uncompiled."""

    __torch_dispatch__ = torch._disable_dynamo(LoopLedger.__torch_dispatch__)  # type: ignore[attr-defined]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Tell torch so."""
        return True


class FromSecondStep(LedgerObserver):
    """Keeps the account of steps from the second one on, and what was alive when that began."""

    alive_at_start = 0

    def __init__(self, ledger: Ledger, followed: Followed) -> None:
        super().__init__(ledger, followed)
        self.starts: list[int] = []  # the number of the first storage that each step made

    @contextmanager
    def step(self) -> Iterator[None]:
        """Account for a step."""
        self.starts.append(self._storages.num_born)
        if len(self.starts) == 2:
            self.alive_at_start = self._storages.live_bytes()
            self.highest = None
        with super().step():
            yield


def num_compiled() -> int:
    """Return the number of graphs that `torch.compile` has made in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo is not None else 0
