"""Data for a page's scripts: gzipped JSON in base64. `unpack` of `static/stack_chart.js` reads it."""

import base64
import dataclasses
import gzip
import json
from typing import Any


def packed(data: object) -> str:
    """The data, plain or dataclasses, as text that needs no escaping in HTML."""
    text = json.dumps(data, separators=(",", ":"), default=dataclasses.asdict)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def unpacked(text: str) -> Any:
    """The data again."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def short(value: float) -> float:
    """A number with the digits that can be seen."""
    return float(f"{value:.6g}")
