"""Render pages as HTML: one Jinja environment, a base template, and filters for templates.

All output of templates is escaped unless it is `Markup`.
"""

import base64
import dataclasses
import gzip
import json
import re
from importlib import resources

import jinja2
from markupsafe import Markup

from dpprof.pages import svg
from dpprof.pages.document import Bar, Cell, Document, Inline, Keyed, Styled, Text, TrainerName, inlines
from dpprof.record.figures.privacy import rounded_up
from dpprof.vocabulary.colors import ink, trainer_color, trainer_symbol, words
from dpprof.vocabulary.formats import fixed, memory, number
from dpprof.vocabulary.trainers import short_name


def page(document: Document) -> str:
    """Return a document as one self-contained HTML page."""
    return render("document.html", document=document)


def render(template: str, **values: object) -> str:
    """Render a template of `templates/`."""
    return _environment.get_template(template).render(**values)


def static(name: str) -> Markup:
    """Return a script or style sheet of `static/` to embed in a page."""
    return Markup((resources.files("dpprof.pages") / "static" / name).read_text(encoding="utf-8"))


def packed(data: object) -> str:
    """Pack data or dataclasses for a script as gzipped JSON in base64, which needs no escaping."""
    text = json.dumps(data, separators=(",", ":"), default=dataclasses.asdict)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def trainer_key(name: str) -> Markup:
    """Return a trainer's symbol in its colour, for a legend."""
    return svg.key(trainer_symbol(name), trainer_color(name))


def code(text: str) -> Markup:
    """Convert backticks in a sentence to code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else Markup("{}").format(part)
        for i, part in enumerate(parts)
    )


def inline(text: Text) -> Markup:
    """Convert a text with its emphasis to HTML."""
    return Markup("").join(_inline(one) for one in inlines(text))


def _inline(one: Inline) -> Markup:
    match one:
        case Styled(text, "bold"):
            return Markup("<b>{}</b>").format(code(text))
        case Styled(text, style):
            return Markup('<span class="{}">{}</span>').format(style, code(text))
        case TrainerName(name):
            return Markup("{}{}").format(trainer_key(name), short_name(name))
        case Keyed(text, key):
            return Markup("{}{}").format(key, text)
    return code(one)


def _cell(cell: Cell) -> Markup:
    if not isinstance(cell, Bar):
        return inline(cell)
    over, limit = "", Markup("")
    if cell.limit is not None:
        over = " over" if cell.share > cell.limit else ""
        limit = Markup('<span class="limit" style="left: {:.1f}%"></span>').format(100 * cell.limit)
    if cell.parts:
        of_part = Markup('<span style="width: {:.2f}%; background: {}" title="{}"></span>')
        parts = (of_part.format(100 * part.share, part.color, part.title) for part in cell.parts)
        return Markup('<div class="meter parts">{}</div>').format(Markup("").join(parts))
    needs = Markup('<span class="needs" style="width: {:.1f}%"></span>').format(100 * cell.share)
    return Markup('<div class="meter{}">{}{}</div>').format(over, needs, limit)


_environment = jinja2.Environment(
    loader=jinja2.PackageLoader("dpprof.pages"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
_environment.policies["json.dumps_kwargs"] = {"sort_keys": False}  # keeps the stacking order of curves
_environment.filters |= {
    each.__name__: each
    for each in (
        words,
        ink,
        number,
        rounded_up,
        fixed,
        memory,
        code,
        inline,
        packed,
        short_name,
        trainer_key,
        trainer_color,
    )
}
_environment.filters |= {
    "cell": _cell,
    "kind": lambda part: type(part).__name__,
    # For filtering by trainer; empty if a row has none.
    "trainer_of": lambda row: next(
        (one.name for cell in row for one in inlines(cell) if isinstance(one, TrainerName)), ""
    ),
}
_environment.globals["static"] = static
