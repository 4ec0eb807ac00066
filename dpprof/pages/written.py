"""Write a command's findings into its folder as a page, as Markdown and as data."""

import json
from pathlib import Path

from dpprof.pages import html, markdown
from dpprof.pages.document import Document
from dpprof.record.files import write_text


def write_answer(folder: Path, name: str, document: Document, data: object) -> tuple[str, list[Path]]:
    """Write `name.html`, `name.md` and `name.json`; return the Markdown and the files."""
    text = markdown.render(document)
    contents = {"html": html.page(document), "md": text, "json": json.dumps(data, indent=1)}
    files = [folder / f"{name}.{ending}" for ending in contents]
    for path, content in zip(files, contents.values(), strict=True):
        write_text(path, content)
    return text, files
