"""Tables in Markdown that read as plain text too."""


def markdown_table(header: list[str], rows: list[list[str]], right: int | None = None) -> str:
    """A Markdown table with padded columns; right-aligned from column `right` on."""
    right = len(header) if right is None else right
    cells = [[escape(text) for text in line] for line in [header, *rows]]
    widths = [max(3, *(len(line[i]) for line in cells)) for i in range(len(header))]
    rule = ["-" * width if i < right else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    padded = [
        [text.ljust(width) if i < right else text.rjust(width) for i, (text, width) in enumerate(pairs)]
        for pairs in (list(zip(line, widths, strict=True)) for line in [cells[0], rule, *cells[1:]])
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in padded) + "\n"


def escape(text: str) -> str:
    """A text that can neither end a table's cell nor become a tag."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
