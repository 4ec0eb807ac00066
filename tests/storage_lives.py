"""What tests ask of the storages that a ledger follows."""

from collections.abc import Iterator

from torch import Tensor

from dpprof.measure.passes.account import Account
from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.passes.storages import Life, StepLog, Storages


def followed_storages() -> Iterator[Storages]:
    """Those of the CPU, followed through every operator that the test calls: a fixture of several files."""
    with Ledger("cpu") as ledger:
        yield ledger.storages


def life_of(storages: Storages, tensor: Tensor) -> Life:
    life = storages.see(tensor)
    assert life is not None
    return life


def category_of(storages: Storages, tensor: Tensor) -> str | None:
    return life_of(storages, tensor).category


def changes(log: StepLog) -> list[tuple[str, int, str | None]]:
    return list(Account(log).changes)
