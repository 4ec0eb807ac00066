"""Makes the screenshots of docs/comparing_runs.md, from a real sweep in MLflow and TensorBoard.

    pip install -e .[test]          # and Chromium (Debian: apt-get install chromium)
    python scripts/make_screenshots.py [FOLDER]

The sweep is measured in FOLDER (a temporary one if none is given), unless it is there already. It takes a few
minutes on two cores; leave the machine alone meanwhile, for the step times are in the pictures.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from mlflow import MlflowClient
from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright
from web_server import server

from dpprof.record.folder import SweepFolder

SCREENSHOTS = Path(__file__).parent.parent / "docs" / "screenshots"


SWEEP = "small-cpu"


GRID = ["--model-sizes", "small", "--batch-sizes", "2,4", "--seq-lens", "128"]


PASSES = ["--passes", "clean,memory,ledger,trace,ceilings"]


SIZE = {"width": 1400, "height": 900}


MOST_BYTES = 200_000


TRAINERS = ("standard", "flat", "ghost", "fast")


HIDDEN_COLUMNS = ("Dataset", "Source", "Models")


COLUMNS = ("io/total_mib", "latency/step_ms_median", "memory/peak_allocated_mib", "batch_size", "trainer")


CHARTS = "latency/step_ms_(median|p95|iqr)$|memory/peak_(allocated|rss|in_forward)_mib$"


@dataclass(frozen=True)
class Sweep:
    """Where the sweep's runs are in the MLflow UI."""

    experiment: str
    parent: str
    children: dict[str, str]

    def page(self, run_id: str) -> str:
        """The address of a run, from the UI's own on."""
        return f"/#/experiments/{self.experiment}/runs/{run_id}"

    def of_batch(self, batch_size: int) -> dict[str, str]:
        """The runs of one batch size: name and id, in the order of the trainers."""
        names = [f"{trainer} b{batch_size} s128" for trainer in TRAINERS]
        return {name: self.children[name] for name in names}


def main() -> None:
    """Measure if need be, then take every screenshot."""
    parser = argparse.ArgumentParser(description="Make the screenshots of docs/comparing_runs.md.")
    parser.add_argument("folder", nargs="?", type=Path, help="where to measure; default: a temporary folder")
    given = parser.parse_args().folder
    with tempfile.TemporaryDirectory(prefix="dpprof-") as scratch:
        folder = Path(given or scratch).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        sweep = measure(folder)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        with server(folder, environment(folder), "mlflow", "ui", "--workers", "1") as mlflow_ui:
            photograph(MLFLOW_SHOTS, mlflow_ui, sweep, press_model_training)
        logdir = ["--logdir", "runs", "--host", "127.0.0.1"]
        with server(folder, environment(folder), "tensorboard.main", *logdir) as tensorboard:
            photograph(TENSORBOARD_SHOTS, tensorboard, sweep)


def environment(folder: Path) -> dict[str, str]:
    """The environment of a program whose MLflow store lies in the folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "MLFLOW_DISABLE_TELEMETRY": "true"}
    return kept | store


def measure(folder: Path) -> Sweep:
    """Run the sweep unless the folder has it, and look its runs up in the store."""
    if not SweepFolder(folder / "runs" / SWEEP).comparison_page.exists():
        command = [sys.executable, "-m", "dpprof", "sweep", *GRID, *PASSES, "--sweep-name", SWEEP]
        subprocess.run(command, cwd=folder, env=environment(folder), check=True)
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, f'tags.dpprof.sweep = "{SWEEP}"')
    ids = {run.info.run_name: run.info.run_id for run in runs}
    return Sweep(runs[0].info.experiment_id, ids.pop(SWEEP), ids)


Shot = Callable[[Page, str, Sweep], None]


def photograph(
    shots: list[Shot], address: str, sweep: Sweep, before: Callable[[Page, str], None] | None = None
) -> None:
    """Take screenshots with a fresh browser; each file has the name of its function."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--no-first-run", *quiet]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page(viewport={"width": SIZE["width"], "height": SIZE["height"]})
        page.set_default_timeout(30_000)
        if before is not None:
            before(page, address)
        for shot in shots:
            shot(page, address, sweep)
            page.mouse.move(0, 0)
            page.wait_for_timeout(1500)  # charts are drawn with animations
            save(page.screenshot(), SCREENSHOTS / f"{shot.__name__}.png")
        browser.close()


def save(png: bytes, path: Path) -> None:
    """Write an image; one that is too large gets a palette."""
    if len(png) > MOST_BYTES:
        squeezed = io.BytesIO()
        Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(squeezed, "png", optimize=True)
        png = squeezed.getvalue()
    path.write_bytes(png)
    print(f"{path}: {len(png) / 1000:.0f} kB")


def press_model_training(page: Page, ui: str) -> None:
    """Leave the GenAI mode, and close the panel that takes a third of the width."""
    page.goto(ui)
    page.get_by_text("Model training", exact=True).click()
    page.locator("[data-component-id='mlflow.assistant.chat_panel.close']").click()


def runs_table(page: Page, ui: str, sweep: Sweep) -> None:
    """The sweep with its runs opened, and a few columns."""
    page.goto(f"{ui}/#/experiments/{sweep.experiment}/runs")
    parent = page.get_by_role("link", name=SWEEP, exact=True)
    parent.wait_for()
    choose_columns(page)
    page.get_by_role("row").filter(has=parent).get_by_role("button").first.click()
    page.get_by_role("link", name=next(iter(sweep.children))).wait_for()


def choose_columns(page: Page) -> None:
    """Tick and untick columns under *Columns*."""
    page.get_by_role("button", name="Columns").click()
    search = page.get_by_placeholder("Search columns")
    for name in (*HIDDEN_COLUMNS, *COLUMNS):
        search.fill(name)
        page.wait_for_timeout(600)  # the list follows with a delay
        page.locator("[class*=tree]").first.get_by_text(name, exact=True).first.click()
    page.get_by_role("button", name="Columns").click()


def description(page: Page, ui: str, sweep: Sweep) -> None:
    """The parent run's page: what the sweep found."""
    page.goto(ui + sweep.page(sweep.parent))
    page.get_by_text("Show more").click()


def comparison(page: Page, ui: str, sweep: Sweep) -> None:
    """The comparison page in the artifact viewer, at its first chart."""
    viewer = open_page(page, ui + sweep.page(sweep.parent), "comparison.html")
    viewer.locator("#filters").evaluate("n => n.scrollIntoView()")


def roofline(page: Page, ui: str, sweep: Sweep) -> None:
    """The sweep's roofline in the artifact viewer."""
    page.get_by_text("roofline.html", exact=True).click()  # from the comparison page beside it
    viewer = page.frame_locator("iframe").locator("body")
    viewer.locator("#ceilings").wait_for()
    viewer.locator(".js-plotly-plot .scatterlayer").wait_for()


def cells(page: Page, ui: str, sweep: Sweep) -> None:
    """The table artifact with a row per experiment."""
    page.goto(f"{ui}{sweep.page(sweep.parent)}/artifacts")
    page.get_by_text("cells.json", exact=True).click()
    page.get_by_text("batch_size").wait_for()


def memory_timeline(page: Page, ui: str, sweep: Sweep) -> None:
    """The memory timeline of flat clipping in the artifact viewer."""
    run_id = sweep.of_batch(4)["flat b4 s128"]
    viewer = open_page(page, ui + sweep.page(run_id), "memory_timeline.html")
    viewer.locator("#memory .u-over").wait_for()


def open_page(page: Page, run: str, name: str) -> Locator:
    """Open an HTML artifact; gives the body within the viewer."""
    page.goto(f"{run}/artifacts/{name}")
    body = page.frame_locator("iframe").locator("body")
    body.wait_for()
    return body


def compare_runs(page: Page, ui: str, sweep: Sweep) -> None:
    """Four trainers at one batch size, the table of metrics scrolled to the memory."""
    ids = json.dumps(list(sweep.of_batch(4).values()))
    page.goto(f"{ui}/#/compare-runs?runs={ids}&experiments={json.dumps([sweep.experiment])}")
    page.get_by_text("Comparing 4 Runs").wait_for()
    for section in ("Visualizations", "Parameters", "Artifacts", "Tags"):
        page.get_by_role("button", name=section, exact=True).click()
    first = page.get_by_text("flops/backward", exact=True).first.bounding_box()
    assert first is not None
    page.mouse.move(first["x"] + 400, first["y"])  # the names scroll with the figures beside them
    wanted = page.get_by_text("memory/peak_allocated_mib", exact=True)
    for _ in range(100):
        if wanted.count() > 0:  # only rows in view are drawn
            break
        page.mouse.wheel(0, 100)
        page.wait_for_timeout(100)
    for _ in range(20):  # the names follow a movement behind: small ones bring both together
        page.mouse.wheel(0, 1)
        page.wait_for_timeout(50)
    wanted.wait_for()


def charts(page: Page, ui: str, sweep: Sweep) -> None:
    """Bar charts of one batch size, those that a regular expression picks."""
    open_charts(page, ui, sweep)
    page.get_by_placeholder("Search metric charts").fill(f"^({CHARTS})")
    page.get_by_text("memory/peak_rss_mib").first.wait_for()


def image_grid(page: Page, ui: str, sweep: Sweep) -> None:
    """The memory timelines of several runs, as *Add chart* shows them."""
    open_charts(page, ui, sweep)
    page.get_by_placeholder("Search metric charts").fill("")  # kept from the last visit
    page.get_by_role("button", name="Add chart").first.click()
    page.get_by_role("menuitem", name="Image").first.click()
    dialog = page.get_by_role("dialog").last
    dialog.get_by_role("combobox", name="Images").click()
    page.get_by_role("option", name="memory_timeline").click()
    dialog.get_by_text("Show run parameters").click()
    dialog.locator("img").first.wait_for()


def open_charts(page: Page, ui: str, sweep: Sweep) -> None:
    """The chart view of the runs of one batch size; those that are opened in the table are drawn."""
    condition = quote('params.batch_size = "4"')
    page.goto(ui)
    page.goto(f"{ui}/#/experiments/{sweep.experiment}/runs?compareRunsMode=CHART&searchFilter={condition}")
    page.get_by_text(next(iter(sweep.of_batch(4)))).first.wait_for()


def scalars(page: Page, tensorboard: str, sweep: Sweep) -> None:
    """The timed steps one by one in TensorBoard."""
    page.goto(f"{tensorboard}/#scalars&tagFilter=by_step")
    page.get_by_text("latency/step_ms_by_step").first.wait_for()


MLFLOW_SHOTS: list[Shot] = [
    runs_table,
    description,
    comparison,
    roofline,
    cells,
    memory_timeline,
    compare_runs,
    charts,
    image_grid,
]


TENSORBOARD_SHOTS: list[Shot] = [scalars]


if __name__ == "__main__":
    main()
