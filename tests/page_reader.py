"""Reads a page as tests need it: what a browser would see."""

from html.parser import HTMLParser


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
            self._inside = None
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


def text_of(html: str) -> str:
    """The text of a page, with single blanks."""
    return " ".join(Page(html).text.split())
