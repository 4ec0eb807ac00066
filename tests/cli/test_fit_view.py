from example_console import printed, terminal

from dpprof.cli.fit_view import print_answers
from dpprof.reports.markdown_table import markdown_table


def test_answers_are_paragraphs_and_a_table_with_short_names() -> None:
    rows = [["tiny", "DPGhostClippingTrainer", "<none>", "25,263"], ["tiny", "Mine", "", "7"]]
    table = markdown_table(["model", "trainer", "limited by", "largest batch"], rows, right=3)
    console = terminal()
    print_answers(console, f"# a name\n\nIt fits.\n\n{table}\nNot searched.\n")
    assert [line for line in printed(console).splitlines() if line] == [
        "It fits.",
        "model  trainer  limited by  largest batch",
        "tiny   ghost    <none>             25,263",
        "tiny   Mine                             7",
        "Not searched.",
    ]
