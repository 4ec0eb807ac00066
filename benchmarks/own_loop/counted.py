"""Runs `dpprof watch` with the counter of `malloc_counter.c` read at the end of each optimizer step.

    LD_PRELOAD=malloc_counter.so python counted.py PEAKS_FILE [OPTIONS OF dpprof watch] SCRIPT

The hook that reads it is this file's own. Opake has no optimizer of torch's: there a step ends where its next
clipped gradient begins. Writes the peak of each step in bytes as JSON when the script has ended.
"""

import atexit
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import record_function

from dpprof.cli.main import main

if __name__ == "__main__":
    take_peak = ctypes.CDLL(None).take_peak
    take_peak.restype = ctypes.c_int64
    path = Path(sys.argv.pop(1))
    peaks: list[int] = []
    functional: list[int] = []
    enter = record_function.__enter__

    def enter_range(entered: record_function) -> Any:
        """Read the counter where Opake's step begins."""
        if entered.name == "opake::clipped_grad":
            functional.append(take_peak())
        return enter(entered)

    record_function.__enter__ = enter_range  # type: ignore[method-assign]
    register_optimizer_step_post_hook(lambda *_: peaks.append(take_peak()))
    atexit.register(lambda: path.write_text(json.dumps(peaks or functional[1:])))
    sys.argv[1:1] = ["watch"]
    main()
