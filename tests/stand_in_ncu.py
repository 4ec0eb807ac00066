#!/usr/bin/env python3
"""Stands in for `ncu` in tests: takes its command lines, starts the wrapped process for real, and leaves a
report whose counters were written for the tests.

Knows no more options than those it was told of and refuses others, as the real program does. What it should
do differently stands in `ncu.json` beside it:
    "metrics":  base names that --query-metrics lists
    "report":   the CSV that --import prints
    "say":      lines to print in place of profiling, with "exit_code"
    "hang":     true to wait for ever once the wrapped process is done
It keeps its command lines in `ncu.calls.json` beside it.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WITH_VALUE = {
    "--config-file",
    "--target-processes",
    "--profile-from-start",
    "--replay-mode",
    "--clock-control",
    "--cache-control",
    "--metrics",
    "--export",
    "--import",
    "--page",
    "--print-units",
}
ALONE = {"--nvtx", "--force-overwrite", "--csv", "--version", "--query-metrics"}


def fail(message: str) -> None:
    print(f"==ERROR== {message}")
    sys.exit(1)


def main() -> None:
    plan = json.loads((HERE / "ncu.json").read_text())
    calls = HERE / "ncu.calls.json"
    calls.write_text(json.dumps([*(json.loads(calls.read_text()) if calls.exists() else []), sys.argv[1:]]))
    options, rest = {}, sys.argv[1:]
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in WITH_VALUE | ALONE:
            fail(f"unrecognised option '{name}'. Use --help for further details.")
        options[name] = rest.pop(0) if name in WITH_VALUE else ""
    if "--version" in options:
        print(
            "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2024.1.1.0 (build 1) (public-release)"
        )
    elif "--query-metrics" in options:
        if not plan["metrics"]:
            fail("Driver could not be loaded.")
        print('"Metric name","Metric type","Metric unit","Metric description","gh100"')
        for name in plan["metrics"]:
            print(f'"{name}","Counter","byte","# of, say, bytes","1"')
    elif "--import" in options:
        print(Path(options["--import"]).read_text(), end="")
    else:
        profile(plan, options, rest)


def profile(plan: dict[str, Any], options: dict[str, str], wrapped: list[str]) -> None:
    for line in plan.get("say", []):
        print(line, flush=True)
    if "exit_code" in plan:
        sys.exit(plan["exit_code"])
    code = subprocess.call(wrapped)
    if code:
        fail(f"The application returned an error code ({code}).")
    while plan.get("hang"):
        time.sleep(0.1)
    for index in range(3):
        print(f'==PROF== Profiling "kernel" - {index}: 0%....50%....100% - 3 passes', flush=True)
    Path(options["--export"].replace("%%", "%") + ".ncu-rep").write_text(plan["report"])


main()
