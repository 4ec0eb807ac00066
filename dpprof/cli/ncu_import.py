"""`dpprof ncu-import`: show the counters of an Nsight Compute report from elsewhere."""

from pathlib import Path

import click

from dpprof.config.counter_metrics import metric_names
from dpprof.errors import ConfigError, refuse


@click.command("ncu-import")
@click.argument("report", type=click.Path())
@click.option(
    "--counter-metrics",
    default="basic",
    show_default=True,
    help="Metrics to show: presets, full names or nvprof's names, as for a run.",
)
@click.option(
    "--kernels", default=10, show_default=True, help="How many of the kernels with the most traffic to list."
)
def ncu_import(report: str, counter_metrics: str, kernels: int) -> None:
    """Show the hardware counters of a report.

    Reads a report of Nsight Compute (.ncu-rep; needs ncu) or its raw page as CSV, from any program on
    any machine, and prints the tables that a run with counters has: by phase, by kernel class, and the
    kernels with the most DRAM traffic. Phases are NVTX start/end ranges named phase:forward and so on.

    \b
    dpprof ncu-import report_DPSGDTrainer_bs8_seq256.ncu-rep
    LC_ALL=C ncu --import REPORT --csv --page raw --print-units base > report.csv
    dpprof ncu-import report.csv
    """
    wanted = metric_names(counter_metrics)
    if kernels < 0:
        raise ConfigError(f"kernels: got {kernels}, allowed: 0 or more")
    text = _read(Path(report))

    from dpprof.cli.console import open_console
    from dpprof.drive.ncu.report import by_kernel, read_csv
    from dpprof.findings.counter_tables import compute
    from dpprof.pages import counters, terminal
    from dpprof.pages.document import Document

    found = compute(by_kernel(read_csv(text, report), wanted), None)
    terminal.show(open_console(), Document(report, list(counters.parts(found, kernels))))


def _read(path: Path) -> str:
    """Read the raw page from either kind of file. Raises ConfigError or CountersError."""
    from dpprof.drive.ncu import program
    from dpprof.drive.ncu.report import EXPORT

    try:
        data = path.read_bytes()
    except OSError as error:
        raise refuse("report", path, f"a file that can be read ({error.strerror})") from None
    if not data.startswith(program.REPORT_MAGIC):
        # PowerShell writes what it redirects as UTF-16.
        encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
        return data.decode(encoding, errors="replace")
    ncu = program.find()
    if ncu is None:
        raise ConfigError(
            f"report: got {str(path)!r}, which only Nsight Compute can read, and there is no ncu on PATH; "
            f"allowed here: its raw page as CSV; where it was made, {EXPORT}"
        )
    return program.Ncu(ncu).to_csv(path)
