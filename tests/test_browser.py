"""What a person sees: runs in the MLflow UI and in TensorBoard, in a real browser."""

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import example_counters
import example_ledger
import pytest
from conftest import environment, runs_of
from mlflow import MlflowClient

from dpprof.figures.results import read_result
from dpprof.record.record import Ceilings
from dpprof.reports.roofline.write import write_run_roofline
from dpprof.vocabulary.formats import number, size

pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parent / "screenshots"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TRAINERS = ("StandardTrainer", "DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer")
RUNS = [f"{trainer}_tiny_bs2_seq16" for trainer in TRAINERS]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(folder: Path, module: str, *arguments: str) -> Iterator[str]:
    """A web server of this environment on a free port; gives its address once it answers."""
    port = free_port()
    log = folder / f"{module}.log"
    with open(log, "w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, "--port", str(port)],
            cwd=folder,
            env=environment(folder),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                urllib.request.urlopen(address, timeout=5).read()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(20)


def record_of(swept: Path, name: str) -> Any:
    return json.loads((swept / "runs" / "grid é" / name / "record.json").read_text())


def fetch_json(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        reason = "no Chromium on this machine (Debian: apt-get install chromium)"
        if os.environ.get("DPPROF_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    SCREENSHOTS.mkdir(exist_ok=True)
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--no-first-run", *quiet]
        )
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1400, "height": 900})
    opened.set_default_timeout(30_000)
    yield opened
    opened.screenshot(path=SCREENSHOTS / f"{request.node.name}.png")
    opened.close()


@pytest.fixture(scope="module")
def mlflow_ui(swept: Path) -> Iterator[str]:
    with server(swept, "mlflow", "ui", "--workers", "1") as address:
        yield address


def experiment_page(swept: Path, mlflow_ui: str) -> str:
    return f"{mlflow_ui}/#/experiments/{next(iter(runs_of(swept).values())).info.experiment_id}"


def test_children_are_nested_under_their_sweep(swept: Path, mlflow_ui: str, page: Any) -> None:
    page.goto(f"{experiment_page(swept, mlflow_ui)}/runs")
    page.get_by_role("link", name="grid é").wait_for()
    assert page.get_by_role("link", name=RUNS[0]).count() == 0, "children show before the sweep is opened"
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="grid é"))
    row.get_by_role("button").first.click()
    for name in RUNS:
        page.get_by_role("link", name=name).wait_for()


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


@pytest.mark.parametrize("name", RUNS)
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
    viewer.locator("#memory .scatterlayer path.js-fill").first.wait_for()
    record = record_of(swept, name)
    ledger = record["ledger"]
    peak = size(ledger["peak"] / 2**20)
    assert f"peak of the tensors {peak} in {ledger['peak_phase']}" in "".join(
        viewer.locator("#memory .annotation-text").all_text_contents()
    )
    held = max(ledger["peak"], record["memory"]["peak_allocated"]) / 2**20
    assert f"At most {size(held)} are held" in viewer.locator("body > p").first.text_content()
    largest = max(ledger["at_peak"], key=lambda category: ledger["at_peak"][category])
    first_row = viewer.locator("#at-peak tr").nth(1).text_content()
    assert largest.replace("per_sample", "per-sample").replace("_", " ") in first_row
    phases = viewer.locator("#phases tr").count() - 1
    assert phases == {"StandardTrainer": 4, "DPSGDTrainer": 6}.get(name.split("_")[0], 7)
    assert viewer.locator("#traffic .barlayer .point path").count() > phases
    drawn = viewer.locator("#memory").evaluate("chart => chart.data.map(trace => trace.name)")
    assert "total" in drawn
    assert (name.split("_")[0] == "DPSGDTrainer") <= ("per-sample gradients" in drawn)
    viewer.locator("#memory .legend .legendtoggle").first.click()
    switched_off = "chart => chart.data[0].visible === 'legendonly'"
    page.wait_for_timeout(1000)
    assert viewer.locator("#memory").evaluate(switched_off), "a click on the legend switches a category off"
    assert not [url for url in remote if "memory_timeline" in url or "plotly" in url]


def check_comparison(swept: Path, viewer: Any) -> None:
    """The page in a frame: every figure that it shows of a cell is the record's."""
    viewer.locator("section.place").first.wait_for()
    for trainer, name in zip(TRAINERS, RUNS, strict=True):
        record = record_of(swept, name)
        row = viewer.locator(f'tr[data-trainer="{trainer}"]')
        shown = " ".join(row.locator("> td").all_inner_texts())
        ledger = record["ledger"]
        moved = sum(line["read"] + line["written"] for line in ledger["traffic"])
        step_s = statistics.median(record["step_s"])
        for figure in (
            f"{number(record['memory']['peak_allocated'] / 2**20)} MiB",
            number(1e3 * step_s),
            f"{number(moved / 2**20)} MiB",
            number(record["samples_per_step"] / step_s),
        ):
            assert figure in shown, f"{figure} is missing in {shown}"
        row.locator("summary").click()
        itemised = row.locator("details").inner_text()
        for num_bytes in ledger["at_peak"].values():
            assert number(num_bytes / 2**20) in itemised
        for seconds in record["phase_s"].values():
            assert number(1e3 * statistics.median(seconds)) in itemised
        parts = (
            row.locator(".bar")
            .first.locator("span")
            .evaluate_all("spans => spans.map(span => span.getBoundingClientRect().width)")
        )
        whole = row.locator(".bar").first.evaluate("bar => bar.getBoundingClientRect().width")
        highest = max(
            json.loads((swept / "runs" / "grid é" / run / "record.json").read_text())["memory"][
                "peak_allocated"
            ]
            for run in RUNS
        )
        assert sum(parts) == pytest.approx(whole * record["memory"]["peak_allocated"] / highest, abs=2)
    viewer.locator("#left-chart .scatterlayer path.js-fill").first.wait_for(state="attached")
    scales = [
        viewer.locator(f"#{side}-chart").evaluate(
            "chart => [chart.layout.xaxis.range, chart.layout.yaxis.range]"
        )
        for side in ("left", "right")
    ]
    assert scales[0] == scales[1], "two runs on one scale"
    peaks = [
        viewer.locator(f"#{side}-chart").evaluate(
            "chart => Math.max(...chart.data[0].y.map((_, i) => chart.data.reduce((s, t) => s + t.y[i], 0)))"
        )
        for side in ("left", "right")
    ]
    for peak, name in zip(peaks, RUNS, strict=False):
        record = record_of(swept, name)
        assert peak == pytest.approx(record["ledger"]["peak"] / 2**20, rel=1e-3)


def test_the_comparison_is_drawn_in_the_artifact_viewer(swept: Path, mlflow_ui: str, page: Any) -> None:
    run_id = runs_of(swept)["grid é"].info.run_id
    page.goto(f"{experiment_page(swept, mlflow_ui)}/runs/{run_id}/artifacts/comparison.html")
    check_comparison(swept, page.frame_locator("iframe"))


@pytest.mark.parametrize("width", [1280, 390])
def test_the_comparison_opens_from_disk(swept: Path, page: Any, width: int) -> None:
    remote: list[str] = []
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else remote.append(r.url))
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto((swept / "runs" / "grid é" / "comparison.html").as_uri())
    check_comparison(swept, page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    row = page.locator('tr[data-trainer="DPSGDTrainer"]')
    page.locator('#filters input[data-trainer="DPSGDTrainer"]').uncheck()
    assert not row.is_visible()
    page.locator('#filters input[data-trainer="DPSGDTrainer"]').check()
    assert row.is_visible()
    before = page.locator("#right-chart").evaluate("chart => chart.data.length")
    page.select_option("#right-run", index=0)
    assert page.locator("#right-chart").evaluate("chart => chart.data.length") < before
    assert remote == []
    page.screenshot(path=SCREENSHOTS / f"comparison_{width}.png", full_page=True)


def test_the_comparison_reads_without_javascript(swept: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto((swept / "runs" / "grid é" / "comparison.html").as_uri())
    assert plain.locator("section.place tr[data-trainer] .figures b").count() == 3 * len(TRAINERS)
    assert plain.locator("#verdict p").first.is_visible()
    assert plain.locator("#measured tr").count() > 5
    assert not plain.locator("#pair").is_visible()
    context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_roofline_opens_from_disk(tmp_path: Path, page: Any, width: int) -> None:
    remote: list[str] = []
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else remote.append(r.url))
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.on("console", lambda message: remote.append(message.text) if message.type == "error" else None)
    ceilings = Ceilings(copy_bytes_per_s=2.0**35, matmul_flop_per_s=1e12, precision="fp32")
    record = example_ledger.record(ceilings=ceilings, counters=example_counters.counters())
    folder = example_ledger.folder(tmp_path / "run", record, example_ledger.timeline())
    write_run_roofline(read_result(folder))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(folder.roofline_page.as_uri())
    page.locator("#roofline .scatterlayer .point").first.wait_for(state="attached")
    assert page.locator("#roofline .scatterlayer .point").count() == 2, "forward and backward"
    notes = page.locator("#roofline .annotation-text").all_text_contents()
    assert notes == ["copy 32.0 GiB/s", "matmul 1.00 TFLOP/s"]
    boxes = [box.bounding_box() for box in page.locator("#roofline .annotation").all()]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes), "no note is clipped"
    page.locator("#roofline .scatterlayer .point").first.hover(force=True)
    page.locator("#roofline .hovertext").first.wait_for(state="attached")
    assert "FLOP/byte" in page.locator("#roofline .hovertext").first.text_content()
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    kernel = page.locator("#kernels td.kernel").first.bounding_box()
    assert kernel["width"] <= 500, "long names are wrapped"
    assert remote == []
    page.screenshot(path=SCREENSHOTS / f"roofline_{width}.png", full_page=True)


def test_the_summary_is_the_sweeps_description(swept: Path, mlflow_ui: str, page: Any) -> None:
    run_id = runs_of(swept)["grid é"].info.run_id
    page.goto(f"{experiment_page(swept, mlflow_ui)}/runs/{run_id}")
    page.get_by_role("cell", name="DPGhostClippingTrainer").first.wait_for(state="attached")


def test_tensorboard_lists_every_run(
    swept: Path, tmp_path_factory: pytest.TempPathFactory, page: Any
) -> None:
    """From artifacts downloaded out of MLflow, as the README says."""
    folder = tmp_path_factory.mktemp("tensorboard")
    client = MlflowClient(f"sqlite:///{swept}/mlflow.db")
    for name in RUNS:
        (folder / name).mkdir()
        client.download_artifacts(runs_of(swept)[name].info.run_id, "tensorboard", str(folder / name))
    with server(folder, "tensorboard.main", "--logdir", str(folder), "--host", "127.0.0.1") as address:
        deadline = time.monotonic() + 90
        listed: list[str] = []
        while len(listed) < len(RUNS) and time.monotonic() < deadline:
            listed = fetch_json(f"{address}/data/plugin/pytorch_profiler/runs")["runs"]
            time.sleep(1)
        assert sorted(listed) == sorted(f"{name}/tensorboard" for name in RUNS)
        for name in listed:
            views = fetch_json(f"{address}/data/plugin/pytorch_profiler/views?run={name}")
            assert {"Operator", "Trace", "Memory"} <= set(views)
        tags = fetch_json(f"{address}/data/plugin/scalars/tags")
        for name in RUNS:
            assert "latency/step_ms_median" in tags[f"{name}/tensorboard"]
            assert "memory/peak_allocated_mib" in tags[f"{name}/tensorboard"]
        page.goto(f"{address}/#hparams")
        page.get_by_text("latency/step_ms_median").first.wait_for(state="attached")
