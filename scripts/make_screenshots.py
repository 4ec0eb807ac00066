"""Makes the pictures of README and docs: pages, terminal, MLflow and TensorBoard, from one real sweep.

    pip install -e .[test]          # and Chromium (Debian: apt-get install chromium)
    python scripts/make_screenshots.py [FOLDER]

The sweep is measured in FOLDER (a temporary one if none is given), unless it is there already. It takes a few
minutes on two cores; leave the machine alone meanwhile, for the step times are in the pictures.
"""

import argparse
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from recorded_terminal import record, to_svg
from web_server import server

from dpprof.record.folder import SweepFolder

SCREENSHOTS = Path(__file__).parent.parent / "docs" / "screenshots"
SWEEP = "first"
PASSES = ["--passes", "clean,memory,ledger,trace,ceilings"]
# The run whose own pages are shown, by its short name in MLflow.
SHOWN = "flat b8 s32"
MOST_BYTES = 200_000
COLUMNS = 100
# A page's pictures: width and height of the window, and whether the system is dark.
VIEWS = {
    "": (1280, 900, False),
    "_dark": (1280, 900, True),
    "_390": (390, 844, False),
    "_390_dark": (390, 844, True),
}
# Pages by the name of their pictures.
PAGE_SHOTS = ("comparison", "memory_timeline", "roofline")
SWEPT, SHOWED = "terminal_sweep", "terminal_show"
# What is typed into a terminal after the sweep, by the name of its picture.
TERMINAL_SHOTS = {
    "terminal_check": ["check", "untrainable:factory"],
}
# What `check` is shown with: a model with traps in it.
UNTRAINABLE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(64, 16), nn.Embedding(16, 16)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 64, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.norm(self.words(ids) + self.positions(torch.arange(ids.shape[1]))))


def factory(config):
    def batches():
        while True:
            ids = torch.randint(64, (config.batch_size, 17))
            yield ids[:, :-1], ids[:, 1:]

    def loss(logits, targets):
        return nn.functional.cross_entropy(logits.mT, targets, reduction="none").mean(dim=1)

    return Model(), batches(), loss
"""


@dataclass(frozen=True)
class Sweep:
    """Where the sweep's runs are: its folder, and in the MLflow UI the ids of its experiment and runs."""

    folder: SweepFolder
    experiment: str
    parent: str
    full_names: dict[str, str]

    @property
    def page(self) -> str:
        """The address of the parent's page, from the UI's own on."""
        return f"/#/experiments/{self.experiment}/runs/{self.parent}"

    def file(self, name: str) -> Path:
        """A page that is shown, the sweep's own or that of one run."""
        own = self.folder.path / f"{name}.html"
        return own if own.exists() else self.folder.path / self.full_names[SHOWN] / own.name


def pictures() -> list[str]:
    """The names of all files that are made."""
    pages = [f"{name}{suffix}.png" for name in PAGE_SHOTS for suffix in VIEWS]
    shots = [f"{shot.__name__}.png" for shot in MLFLOW_SHOTS + TENSORBOARD_SHOTS]
    return sorted([*pages, *shots, *(f"{name}.svg" for name in (SWEPT, SHOWED, *TERMINAL_SHOTS))])


def main() -> None:
    """Measure if need be, then take every picture."""
    parser = argparse.ArgumentParser(description="Make the pictures of README and docs.")
    parser.add_argument("folder", nargs="?", type=Path, help="where to measure; default: a temporary folder")
    given = parser.parse_args().folder
    with tempfile.TemporaryDirectory(prefix="dpprof-") as scratch:
        folder = Path(given or scratch).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        sweep = measure(folder)
        draw_terminals(folder, sweep)
        with started_browser() as browser:
            photograph_pages(browser, sweep)
            with server(folder, environment(folder), "mlflow", "ui", "--workers", "1") as mlflow_ui:
                photograph(browser, MLFLOW_SHOTS, mlflow_ui, sweep)
            logdir = ["--logdir", "runs", "--host", "127.0.0.1"]
            with server(folder, environment(folder), "tensorboard.main", *logdir) as tensorboard:
                photograph(browser, TENSORBOARD_SHOTS, tensorboard, sweep)


def environment(folder: Path) -> dict[str, str]:
    """The environment of a program whose MLflow store lies in the folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "MLFLOW_DISABLE_TELEMETRY": "true"}
    return kept | store


def measure(folder: Path) -> Sweep:
    """Run the default sweep unless the folder has it, and look its runs up in the store."""
    swept = SweepFolder(folder / "runs" / SWEEP)
    if not swept.comparison_page.exists():
        draw_terminal(folder, SWEPT, ["sweep", *PASSES, "--sweep-name", SWEEP])
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, f'tags.dpprof.sweep = "{SWEEP}"')
    (parent,) = [run for run in runs if run.info.run_name == SWEEP]
    full_names = {run.info.run_name: run.data.tags["dpprof.run"] for run in runs if run is not parent}
    return Sweep(swept, parent.info.experiment_id, parent.info.run_id, full_names)


def draw_terminals(folder: Path, sweep: Sweep) -> None:
    """Run the commands that are shown beside the sweep."""
    (folder / "untrainable.py").write_text(UNTRAINABLE)
    for name, words in TERMINAL_SHOTS.items():
        draw_terminal(folder, name, words)
    draw_terminal(folder, SHOWED, ["show", f"runs/{SWEEP}/{sweep.full_names[SHOWN]}"])


def draw_terminal(folder: Path, name: str, words: list[str]) -> None:
    """Run a command of dpprof in a terminal, and draw what it prints."""
    printed = record([sys.executable, "-m", "dpprof", *words], folder, environment(folder), COLUMNS)
    path = SCREENSHOTS / f"{name}.svg"
    path.write_text(to_svg(" ".join(["dpprof", *words]), printed, COLUMNS, f"dpprof {words[0]}"))
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


@contextmanager
def started_browser() -> Iterator[Browser]:
    """Chromium, as the system has it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--no-first-run", *quiet]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()


def photograph_pages(browser: Browser, sweep: Sweep) -> None:
    """Every page as a file: wide and narrow, light and dark."""
    for name in PAGE_SHOTS:
        for suffix, (width, height, is_dark) in VIEWS.items():
            options: dict[str, Any] = {"color_scheme": "dark" if is_dark else "light"}
            page = browser.new_page(viewport={"width": width, "height": height}, **options)
            page.goto(sweep.file(name).as_uri())
            page.wait_for_timeout(1000)
            save(page.screenshot(), SCREENSHOTS / f"{name}{suffix}.png")
            page.close()


Shot = Callable[[Page, str, Sweep], None]


def photograph(browser: Browser, shots: list[Shot], address: str, sweep: Sweep) -> None:
    """Take pictures of a web interface; each file has the name of its function."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(60_000)
    for shot in shots:
        shot(page, address, sweep)
        page.mouse.move(0, 0)
        page.wait_for_timeout(2500)  # charts are drawn with animations
        save(page.screenshot(), SCREENSHOTS / f"{shot.__name__}.png")
    page.close()


def save(png: bytes, path: Path) -> None:
    """Write an image; one that is too large gets a palette."""
    if len(png) > MOST_BYTES:
        squeezed = io.BytesIO()
        Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(squeezed, "png", optimize=True)
        png = squeezed.getvalue()
    path.write_bytes(png)
    print(f"{path}: {len(png) / 1000:.0f} kB")


def mlflow_description(page: Page, ui: str, sweep: Sweep) -> None:
    """The parent run's page: the link, and what the sweep found."""
    page.goto(ui + sweep.page)
    page.get_by_text("Show more").click()
    close_assistant(page)


def close_assistant(page: Page) -> None:
    """Close the panel that takes a third of the width; it opens once in every browser."""
    page.locator("[data-component-id='mlflow.assistant.chat_panel.close']").click()


def mlflow_charts(page: Page, ui: str, sweep: Sweep) -> None:
    """What the link opens: the runs side by side."""
    page.goto(ui + sweep.page)
    link = page.get_by_role("link", name="The runs side by side").first.get_attribute("href")
    page.goto(f"{ui}/{link}" if link and link.startswith("#") else str(link))
    page.locator(".barlayer .point path").first.wait_for(state="attached")


def mlflow_table(page: Page, ui: str, sweep: Sweep) -> None:
    """The same runs as a table, with the columns of the headline figures."""
    view, _, _ = page.url.partition("&searchFilter")
    page.goto(view.replace("compareRunsMode=CHART&", ""))
    page.reload()
    page.get_by_role("link", name=SHOWN, exact=True).wait_for()


def mlflow_artifact(page: Page, ui: str, sweep: Sweep) -> None:
    """The comparison page in the artifact viewer."""
    page.goto(f"{ui}{sweep.page}/artifacts/comparison.html")
    page.frame_locator("iframe").locator("body").wait_for()


def tensorboard_scalars(page: Page, tensorboard: str, sweep: Sweep) -> None:
    """The timed steps one by one in TensorBoard."""
    page.goto(f"{tensorboard}/#scalars&tagFilter=by_step")
    page.get_by_text("latency/step_ms_by_step").first.wait_for()


MLFLOW_SHOTS: list[Shot] = [mlflow_description, mlflow_charts, mlflow_table, mlflow_artifact]
TENSORBOARD_SHOTS: list[Shot] = [tensorboard_scalars]


if __name__ == "__main__":
    main()
