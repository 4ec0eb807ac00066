"""What the ranks of an experiment have measured, brought together after each pass."""

import dataclasses
import socket
import statistics

from dpprof.config.measuring import ALONE, CLEAN
from dpprof.measure.ranks import Ranks
from dpprof.record.record import RankResult, Record


class ToldByRanks:
    """Brings together what ranks have measured. Does nothing for one that shares with none."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._own = RankResult(ranks.rank, host=socket.gethostname())

    def after(self, name: str, record: Record) -> None:
        """Put what every rank has measured so far into the record. Rank 0's gets the slowest rank's times,
        and the losses of all.
        """
        if not self._ranks.are_real:
            return
        own = self._own
        if name == CLEAN:
            own.step_s, own.phase_s = record.step_s, record.phase_s
            own.nonfinite_losses = record.nonfinite_losses
        if name == ALONE:
            own.alone_step_s = record.alone_step_s
        own.peak = record.memory.peak_allocated
        peaks = record.memory.phase_peak
        own.phase = max(peaks, key=lambda phase: peaks[phase], default=None)
        record.ranks = [RankResult(**told) for told in self._ranks.gathered(dataclasses.asdict(own))]
        if name == CLEAN and self._ranks.rank == 0:
            slowest = max(record.ranks, key=lambda rank: statistics.median(rank.step_s))
            record.step_s, record.phase_s = slowest.step_s, slowest.phase_s
            record.nonfinite_losses = sum(rank.nonfinite_losses or 0 for rank in record.ranks)
