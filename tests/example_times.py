"""A table of times that is as small as one can be."""

from typing import Any

from dpprof.config.device_times import SCHEMA

GOOD: dict[str, Any] = {
    "schema": SCHEMA,
    "gpu": "a processor",
    "device": "cpu",
    "tflops": {"float32": 0.1},
    "gb_per_s": 10.0,
    "operators": [{"kind": "elementwise", "dtype": "float32", "source": "s", "points": [[8, 8, 0, 1.5]]}],
}
