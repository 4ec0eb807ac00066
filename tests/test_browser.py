"""What a person sees: runs in the MLflow UI and in TensorBoard, in a real browser."""

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SCREENSHOTS, environment, runs_of
from mlflow import MlflowClient
from shown_comparison import RUNS, TRAINERS, check_comparison, record_of
from web_server import server

from dpprof.vocabulary.trainers import trainer_info

pytestmark = pytest.mark.browser
FILL = "bars => bars.map(bar => getComputedStyle(bar).fill)"


def fetch_json(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def mlflow_ui(swept: Path) -> Iterator[str]:
    with server(swept, environment(swept), "mlflow", "ui", "--workers", "1") as address:
        yield address


def experiment_page(swept: Path, mlflow_ui: str) -> str:
    return f"{mlflow_ui}/#/experiments/{next(iter(runs_of(swept).values())).info.experiment_id}"


def test_children_are_nested_under_their_sweep(swept: Path, mlflow_ui: str, page: Any) -> None:
    page.goto(f"{experiment_page(swept, mlflow_ui)}/runs")
    page.get_by_role("link", name="grid é").wait_for()
    assert page.get_by_role("link", name="standard b2 s16").count() == 0, (
        "children show before the sweep is opened"
    )
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="grid é"))
    row.get_by_role("button").first.click()
    for name in ("standard", "flat", "ghost", "fast"):
        page.get_by_role("link", name=f"{name} b2 s16").wait_for()


def test_runs_compare_by_their_metrics(swept: Path, mlflow_ui: str, page: Any) -> None:
    runs = runs_of(swept)
    ids = json.dumps([runs[name].info.run_id for name in RUNS])
    experiment = json.dumps([runs[RUNS[0]].info.experiment_id])
    page.goto(f"{mlflow_ui}/#/compare-runs?runs={ids}&experiments={experiment}")
    page.get_by_text("Comparing 4 Runs").wait_for()
    # The table of metrics draws only the rows in view: its first ones.
    for metric in ("flops/backward", "flops/backward_norms", "flops/forward"):
        page.get_by_text(metric, exact=True).first.wait_for(state="attached")
        for name in RUNS:
            if metric in runs[name].data.metrics:
                figure = f"{runs[name].data.metrics[metric]:.0f}"
                page.get_by_text(figure, exact=True).first.wait_for(state="attached")


@pytest.mark.parametrize(
    "name", [RUNS[1], *(pytest.param(RUNS[i], marks=pytest.mark.exhaustive) for i in (0, 2, 3))]
)
def test_the_timeline_is_drawn_in_the_artifact_viewer(
    swept: Path, mlflow_ui: str, page: Any, name: str
) -> None:
    remote: list[str] = []
    page.on(
        "request", lambda r: None if r.url.startswith((mlflow_ui, "blob:", "data:")) else remote.append(r.url)
    )
    run_id = runs_of(swept)[name].info.run_id
    page.goto(f"{experiment_page(swept, mlflow_ui)}/runs/{run_id}/artifacts/memory_timeline.html")
    viewer = page.frame_locator("iframe")
    viewer.locator("#memory .u-over").wait_for()
    viewer.locator("#memory .peak").click()
    ledger = record_of(swept, name)["ledger"]
    assert f"{ledger['peak'] / 2**20:,.2f} MiB" in viewer.locator("#alive-summary").inner_text()
    assert f"in {ledger['peak_phase']}" in viewer.locator("#alive-summary").inner_text()
    phases = viewer.locator("#phases tr").count() - 1
    assert phases == {"StandardTrainer": 4, "DPSGDTrainer": 6}.get(name.split("_")[0], 7)
    assert viewer.locator(".traffic .bar span").count() > phases
    drawn = viewer.locator(".legend .entry").all_inner_texts()
    assert (name.split("_")[0] == "DPSGDTrainer") <= ("per-sample gradients" in drawn)
    assert not [url for url in remote if "memory_timeline" in url]


def test_the_comparison_is_drawn_in_the_artifact_viewer(swept: Path, mlflow_ui: str, page: Any) -> None:
    run_id = runs_of(swept)["grid é"].info.run_id
    page.goto(f"{experiment_page(swept, mlflow_ui)}/runs/{run_id}/artifacts/comparison.html")
    check_comparison(swept, page.frame_locator("iframe"))


def test_the_summary_is_the_sweeps_description(swept: Path, mlflow_ui: str, page: Any) -> None:
    run_id = runs_of(swept)["grid é"].info.run_id
    page.goto(f"{experiment_page(swept, mlflow_ui)}/runs/{run_id}")
    page.get_by_role("cell", name="DPGhostClippingTrainer").first.wait_for(state="attached")


@pytest.fixture(scope="module")
def compared(swept: Path, mlflow_ui: str, browser: Any) -> Iterator[Any]:
    """The page behind the link in the sweep's description, which opens in a tab of its own."""
    parent = runs_of(swept)["grid é"]
    context = browser.new_context(viewport={"width": 1600, "height": 1500})
    context.set_default_timeout(90_000)
    page = context.new_page()
    page.goto(f"{mlflow_ui}/#/experiments/{parent.info.experiment_id}/runs/{parent.info.run_id}")
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


def test_tensorboard_lists_every_run(
    swept: Path, tmp_path_factory: pytest.TempPathFactory, page: Any
) -> None:
    """From artifacts downloaded out of MLflow, as the docs say."""
    folder = tmp_path_factory.mktemp("tensorboard")
    client = MlflowClient(f"sqlite:///{swept}/mlflow.db")
    names = RUNS[:2]
    for name in names:
        (folder / name).mkdir()
        client.download_artifacts(runs_of(swept)[name].info.run_id, "tensorboard", str(folder / name))
    arguments = ["--logdir", str(folder), "--host", "127.0.0.1"]
    with server(folder, environment(folder), "tensorboard.main", *arguments) as address:
        deadline = time.monotonic() + 90
        listed: list[str] = []
        while len(listed) < len(names) and time.monotonic() < deadline:
            listed = fetch_json(f"{address}/data/plugin/pytorch_profiler/runs")["runs"]
            time.sleep(1)
        assert sorted(listed) == sorted(f"{name}/tensorboard" for name in names)
        for name in listed:
            views = fetch_json(f"{address}/data/plugin/pytorch_profiler/views?run={name}")
            assert {"Operator", "Trace", "Memory"} <= set(views)
        tags = fetch_json(f"{address}/data/plugin/scalars/tags")
        for name in names:
            assert {"latency/step_ms_median", "memory/peak_allocated_mib"} <= set(tags[f"{name}/tensorboard"])
        page.goto(f"{address}/#hparams")
        page.get_by_text("latency/step_ms_median").first.wait_for(state="attached")
