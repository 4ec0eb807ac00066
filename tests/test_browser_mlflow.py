"""The comparison that MLflow opens by a sweep's link, in a real browser, from the sweep's description."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SCREENSHOTS, environment, runs_of
from shown_comparison import TRAINERS
from web_server import server

from dpprof.vocabulary.trainers import trainer_info

pytestmark = pytest.mark.browser
FILL = "bars => bars.map(bar => getComputedStyle(bar).fill)"


@pytest.fixture(scope="module")
def compared(swept: Path, browser: Any) -> Iterator[Any]:
    """The page behind the link in the sweep's description, which opens in a tab of its own."""
    parent = runs_of(swept)["grid é"]
    with server(swept, environment(swept), "mlflow", "ui", "--workers", "1") as ui:
        context = browser.new_context(viewport={"width": 1600, "height": 1500})
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.goto(f"{ui}/#/experiments/{parent.info.experiment_id}/runs/{parent.info.run_id}")
        with context.expect_page() as opened:
            page.get_by_role("link", name="The runs side by side").first.click()
        yield opened.value
        opened.value.screenshot(path=SCREENSHOTS / "comparison_in_mlflow.png")
        context.close()


def rgb(color: str) -> str:
    """`#0072b2` as a browser writes it."""
    return f"rgb({', '.join(str(int(color[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_it_draws_a_bar_for_every_run_in_the_colour_of_its_trainer(compared: Any) -> None:
    wanted = Counter(rgb(trainer_info(trainer).color) for trainer in TRAINERS)
    cards = compared.get_by_test_id("experiment-view-compare-runs-card")
    for metric in ("memory/peak_allocated_mib", "latency/step_ms_median"):
        card = cards.filter(has=compared.get_by_text(metric, exact=True)).filter(
            has=compared.locator(".barlayer")
        )
        bars = card.first.locator(".barlayer .point path")
        bars.nth(len(TRAINERS) - 1).wait_for(state="attached")
        assert Counter(bars.evaluate_all(FILL)) == wanted


def test_it_sets_memory_against_time(compared: Any) -> None:
    points = compared.locator(".scatterlayer .points path")
    points.nth(len(TRAINERS) - 1).wait_for(state="attached")
    assert points.count() == len(TRAINERS)
    compared.get_by_text("Parallel Coordinates").first.wait_for(state="attached")


def test_it_lists_the_runs_without_their_sweep_by_short_names(compared: Any) -> None:
    for trainer in TRAINERS:
        compared.get_by_role("link", name=f"{trainer_info(trainer).short_name} b2 s16", exact=True).wait_for()
    assert compared.get_by_role("link", name="grid é").count() == 0
    compared.get_by_text(f"{len(TRAINERS)} matching runs").wait_for()
