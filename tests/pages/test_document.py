"""One page in three media; a new report is one function and one line."""

from example_console import printed, terminal
from example_results import result
from markupsafe import Markup

from dpprof.pages import html, markdown
from dpprof.pages.document import (
    Bar,
    Chart,
    Columns,
    Document,
    Heading,
    Keyed,
    Points,
    Sentence,
    Styled,
    TrainerName,
    table,
)
from dpprof.pages.terminal import show
from dpprof.record.figures.results import Result
from dpprof.vocabulary.formats import one


def page(found: Result) -> Document:
    """A new page, with every kind of part."""
    columns: Columns = [("trainer", str), ("needs [GiB]", one), ("", str)]
    own = Keyed("<own> | x", Markup("<i></i>"))
    rows = [(TrainerName("DPSGDTrainer"), 2.25, Bar(0.5, limit=0.25)), (own, None, Bar(0.0))]
    return Document(
        found.name,
        [
            Sentence(("It is ", Styled("slow", "bad"), " with `--loop lean`."), "answer"),
            Heading("Memory"),
            table("", columns, rows, name="memory", bold=[0]),
            Chart(Markup("<svg></svg>"), legend=[TrainerName("DPSGDTrainer")]),
            Sentence("Take care.", "warning"),
            Points(["one", "two"]),
            Points(["three"], folded_under="more"),
        ],
    )


FOUND = result("DPSGDTrainer", step_s=0.002)


def test_as_html() -> None:
    text = html.page(page(FOUND))
    assert '<span class="bad">slow</span> with <code>--loop lean</code>' in text
    assert '<th class="n">needs [GiB]</th>' in text
    assert "<i></i>&lt;own&gt; | x" in text
    assert 'class="meter over"' in text
    assert "<svg></svg>" in text
    assert "<summary>more</summary>" in text


def test_as_markdown() -> None:
    assert markdown.render(page(FOUND)).split("\n\n")[1:] == [
        "It is **slow** with `--loop lean`.",
        "## Memory",
        "| trainer       | needs [GiB] |\n| ------------- | ----------: |\n| flat          |         2.2 |\n"
        "| &lt;own> \\| x |             |",
        "Take care.",
        "- one\n- two\n",
    ]


def test_in_the_terminal() -> None:
    console = terminal()
    show(console, page(FOUND))
    assert [line for line in printed(console).splitlines() if line] == [
        "It is slow with `--loop lean`.",
        "Memory",
        "trainer    needs [GiB]",
        "flat               2.2  ██████████",
        "<own> | x",
        "warning: Take care.",
        "  - one",
        "  - two",
    ]
