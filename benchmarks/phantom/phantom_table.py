"""The table of estimates beside the peaks of torch's allocator."""

from typing import Any

from dpprof.vocabulary.units import mib

_ABOUT = (
    "# Estimates beside torch's real CUDA allocator, without a GPU",
    "",
    "**No GPU was there.** `benchmarks/phantom/phantom_matrix.py` ran these steps on a stand-in for a GPU:",
    "torch 2.13's CUDA build with its own dispatcher, host code of kernels, cuDNN's planner and caching",
    "allocator. Kernels compute nothing, and the memory is addresses without pages. The peaks are those of",
    "the 13th step, in MiB. Not in them: the context, and what cuBLAS, cuDNN and NCCL take for themselves.",
    "",
)
Row = tuple[str, dict[str, Any], dict[str, Any]]


def written(rows: list[Row]) -> str:
    """Return the page: what was done, the differences in sum, and a line for each experiment."""
    good = [row for row in rows if "error" not in row[1] and "error" not in row[2]]
    return "\n".join([*_opening(rows, good), *_table(rows), ""])


def _off(row: Row, name: str) -> float:
    return 100 * (float(row[2][name]) / float(row[1][name]) - 1)


def _opening(rows: list[Row], good: list[Row]) -> list[str]:
    within = {
        "allocated": sum(abs(_off(row, "allocated")) <= 0.5 for row in good),
        "reserved": sum(abs(_off(row, "reserved")) <= 2 for row in good),
        "smallest": sum(row[2]["above"] and not row[2]["below"] for row in good),
    }
    runs = sum(row[2]["above"] for row in good)
    return [
        *_ABOUT,
        f"Of {len(rows)} experiments {len(good)} ran on both sides. `allocated` is within 0.5 % in",
        f"{within['allocated']} of them, and `reserved` within 2 % in {within['reserved']}.",
        f"On a device with 2 % more than the estimate of the smallest one, {runs} ran;",
        f"{within['smallest']} of these did not run with 2 % less.",
        "",
    ]


def _table(rows: list[Row]) -> list[str]:
    lines = [
        "| GPU, experiment | allocated | estimate | off % | reserved | estimate | off % "
        "| smallest | runs at +2 % | at -2 % |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for case, real, found in rows:
        if "error" in real or "error" in found:
            side = "stand-in" if "error" in real else "estimate"
            why = " ".join(str((real if "error" in real else found)["error"]).split())[-120:]
            lines.append(f"| {case} | {side}: {why} | | | | | | | | |")
            continue
        row = (case, real, found)
        cells = [case]
        for name in ("allocated", "reserved"):
            cells += [f"{mib(real[name]):,.1f}", f"{mib(found[name]):,.1f}", f"{_off(row, name):+.2f}"]
        cells += [f"{mib(found['least']):,.0f}"]
        cells += ["yes" if found[side] else "no" for side in ("above", "below")]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
