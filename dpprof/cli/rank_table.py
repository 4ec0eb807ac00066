"""The table of an experiment's ranks, for the terminal."""

from dpprof.cli.fitted_tables import FittedTable, table, two, whole
from dpprof.figures.ranks import RanksFigures


def rank_table(ranks: RanksFigures) -> FittedTable:
    """A row for each rank: its step with the others and alone, and its peak."""
    title = "Ranks: a step with the others, alone, and what communication adds"
    if ranks.efficiency_pct is not None:
        title += f"; scaling efficiency {ranks.efficiency_pct:.0f} %"
    return table(
        title,
        [
            ("rank", whole),
            ("on", str),
            ("step ms", two),
            ("alone ms", two),
            ("exposed ms", two),
            ("peak MiB", two),
            ("in", str),
        ],
        [
            (rank.rank, rank.host, rank.step_ms, rank.alone_ms, rank.exposed_ms, rank.peak_mib, rank.phase)
            for rank in ranks.each
        ],
    )
