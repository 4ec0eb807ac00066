"""What would make a training fit that fits with no trainer."""

import dataclasses
from collections.abc import Iterable

from dpprof.config.advice import AdviceConfig
from dpprof.config.changes import possible_changes
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.fit import ACCUMULATING
from dpprof.drive.advise import Advise
from dpprof.drive.campaign import Campaign
from dpprof.figures.capacity import needed_bytes
from dpprof.figures.results import Result


def advisor(
    campaign: Campaign, estimates: Iterable[Result], headroom: str, trainers: list[str], workers: int
) -> Advise | None:
    """A part of a campaign, which advises on the smallest step that was estimated; None without any."""
    sizes = {
        needed_bytes(one.config, one.record.ledger): one.config
        for one in estimates
        if one.record is not None and one.record.ledger is not None
    }
    if not sizes:
        return None
    config = _smallest_batch(sizes[min(sizes)])
    asked = AdviceConfig(headroom=headroom)
    changes, left_out = possible_changes(config, trainers)
    advice = Advise(
        campaign.name, campaign.drive, campaign.launcher, config, asked, changes, left_out, workers
    )
    advice.stop = campaign.stop
    return advice


def _smallest_batch(config: ExperimentConfig) -> ExperimentConfig:
    return dataclasses.replace(config, batch_size=1, accumulation_steps=ACCUMULATING)
