"""How pages become HTML: one Jinja environment, a base template, and the filters that templates use.

Everything that a template prints is escaped, unless it is `Markup`.
"""

import re
from importlib import resources

import jinja2
from markupsafe import Markup

from dpprof.figures.privacy import rounded_up
from dpprof.reports import svg
from dpprof.reports.colors import ink, trainer_color, trainer_symbol, words
from dpprof.reports.packed import packed
from dpprof.vocabulary.formats import fixed, memory, number
from dpprof.vocabulary.trainers import short_name


def render(template: str, **values: object) -> str:
    """A template of `templates/` as text."""
    return _environment.get_template(template).render(**values)


def static(name: str) -> Markup:
    """A script or a style sheet of `static/`, to stand in a page."""
    return Markup((resources.files("dpprof.reports") / "static" / name).read_text(encoding="utf-8"))


def trainer_key(name: str) -> Markup:
    """A trainer's symbol in its colour, for a legend."""
    return svg.key(trainer_symbol(name), trainer_color(name))


def code(text: str) -> Markup:
    """A sentence with what stands in backticks set as code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else Markup("{}").format(part)
        for i, part in enumerate(parts)
    )


_environment = jinja2.Environment(
    loader=jinja2.PackageLoader("dpprof.reports"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
_environment.policies["json.dumps_kwargs"] = {"sort_keys": False}  # curves are stacked in their order
_environment.filters |= {
    "words": words,
    "ink": ink,
    "number": number,
    "rounded_up": rounded_up,
    "fixed": fixed,
    "memory": memory,
    "code": code,
    "packed": packed,
    "short_name": short_name,
    "trainer_key": trainer_key,
    "trainer_color": trainer_color,
}
_environment.globals["static"] = static
