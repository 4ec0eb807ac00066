"""Reads a page as tests need it: what a browser would see, and what its charts draw."""

import base64
from html.parser import HTMLParser
from json import JSONDecoder
from typing import Any

import numpy as np


class Page(HTMLParser):
    """What a browser would see: tags, the addresses they name, tables by id, the heading and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.heading = ""
        self.text = ""
        self._rows: list[list[str]] = []
        self._inside: str | None = None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "table":
            self._rows = self.tables[dict(attrs).get("id") or "facts"] = []
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")
        if tag in ("td", "th", "h1", "script", "style"):
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style"):
            return
        self.text += data
        if self._inside == "h1":
            self.heading += data
        elif self._inside is not None:
            self._rows[-1][-1] += data


def charts(html: str, count: int = 2) -> list[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Curves and layout of the page's last `Plotly.newPlot(id, curves, layout, ...)`, of so many."""
    found = []
    for call in html.split("Plotly.newPlot(")[-count:]:
        curves, end = JSONDecoder().raw_decode(call, call.index("["))
        layout, _ = JSONDecoder().raw_decode(call, call.index("{", end))
        found.append((curves, layout))
    return found


def numbers(values: Any) -> list[float]:
    """What plotly draws: a list, or an array packed in base64."""
    if isinstance(values, dict):
        packed = np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"])
        return [float(value) for value in packed]
    return [float(value) for value in values]
