"""What share of a device's rates earlier steps reached there: their least times over those measured."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from dpprof.config.devices import Device
from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.capacity import floor_on
from dpprof.figures.results import FINISHED, Result
from dpprof.vocabulary.trainers import TRAINERS


@dataclass(frozen=True)
class Reached:
    """The lowest and the highest share, and the runs that reached them; none if the user gave the shares."""

    low: float
    high: float
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, results: Mapping[str, Result], device: Device, config: ExperimentConfig) -> "Reached | None":
        """Of finished runs on that device, by name: those of private trainers on one rank, and if there are
        some of the same model, these alone. None if fewer than two have a ledger and times: one is no range.
        """
        shares = {}
        for name, result in results.items():
            share = _share(result, device) if _tells(result, config.precision) else None
            if share is not None:
                shares[name] = share
        model = _model(config)
        alike = {name: share for name, share in shares.items() if _model(results[name].config) == model}
        shares = alike if len(alike) > 1 else shares
        return cls(min(shares.values()), max(shares.values()), tuple(shares)) if len(shares) > 1 else None


def _model(config: ExperimentConfig) -> tuple[str, str]:
    return config.workload, config.model_name


def _tells(result: Result, precision: str) -> bool:
    config = result.config
    info = TRAINERS.get(config.trainer)
    return (
        result.status == FINISHED
        and not config.is_estimate
        and not config.poisson_sampling
        and config.world_size == 1
        and config.precision == precision
        and info is not None
        and info.is_private
    )


def _share(result: Result, device: Device) -> float | None:
    """The least time of its step over the median time. More than one tells of caches, not of the device."""
    record = result.record
    if record is None or record.ledger is None or not record.step_s:
        return None
    floor = sum(floor_on(device, result.config.precision, record.ledger).values())
    share = floor / statistics.median(record.step_s)
    return share if 0 < share <= 1 else None
