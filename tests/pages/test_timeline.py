"""The timeline page: what its script is given, replayed as the script does, and its tables."""

import base64
import dataclasses
import gzip
import json
import re
from pathlib import Path
from typing import Any

import example_ledger
import numpy as np
import pytest
from page_reader import Page, text_of

from dpprof.findings.tables import BEFORE, BETWEEN
from dpprof.pages.reports.timeline import compute, render, step_data, write_timeline
from dpprof.record.figures.results import read_result
from dpprof.record.ledger import StepTimeline
from dpprof.record.record import Memory, ParameterGroup, Record
from dpprof.vocabulary.categories import CATEGORIES
from dpprof.vocabulary.colors import CLASS_COLORS
from dpprof.vocabulary.theory import LayerRow

MIB = 2**20
EVIL = "<script>alert('1')</script>&amp; größer"


def page_of(
    tmp_path: Path, record: Record | None = None, timeline: StepTimeline | None = None, name: str = "run"
) -> str:
    record, timeline = record or example_ledger.record(), timeline or example_ledger.timeline()
    page = compute(read_result(example_ledger.folder(tmp_path / name, record, timeline)))
    assert page is not None
    return render(page, b"PNG")


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def step_of(html: str) -> Any:
    (text,) = re.findall(r'<script type="text/plain" id="step">(.*?)</script>', html)
    return unpacked(text)


def test_the_script_gets_every_event_the_phases_and_the_peak(tmp_path: Path) -> None:
    step = step_of(page_of(tmp_path))
    names = ["parameters", "activations", "summed gradients", "per-sample gradients", "temporary"]
    assert step["words"] == names
    # Phases are drawn as wide as they were timed: 50 ms and 100 ms.
    assert step["phases"] == [["forward", 0, 50, 0, 3], ["backward", 50, 150, 3, 7]]
    assert step["ms"] == pytest.approx(
        [0, 12.5, 25, 37.5, 66.667, 94.444, 122.22, 133.33, 150, 150], rel=1e-4
    )
    now = list(step["start"])
    total = [sum(now)]
    for category, num_bytes, moved in zip(step["category"], step["bytes"], step["moved"], strict=True):
        now[category] += num_bytes if moved < 0 else -num_bytes
        if moved >= 0:
            now[moved] += num_bytes
        total.append(sum(now))
    assert [held // MIB for held in total] == [4, 12, 16, 12, 28, 30, 22, 20, 20]
    assert max(total) == total[step["peak"]]
    assert dict(zip(step["names"], now, strict=True))["summed_gradients"] == 16 * MIB


def test_each_storage_says_where_it_comes_from() -> None:
    timeline = example_ledger.timeline()
    storages = [*timeline.storages[:-1], dataclasses.replace(timeline.storages[-1], phase=None)]
    step = step_data(dataclasses.replace(timeline, storages=storages), {})
    columns = step["storages"]
    assert columns["owner"] == ["head.weight", "blocks.0.mlp_in", "blocks.0.mlp_in", "head.weight", ""]
    assert columns["phase"] == [BEFORE, "forward", "forward", "backward", BETWEEN]
    assert columns["operator"] == ["empty", "addmm", "gelu", "bmm", "mul"]
    assert columns["shape"][-2:] == ["2 x 2048 x 1024", "scalar"]
    assert [step["names"][i] for i in columns["category"]] == [each.category for each in storages]
    assert step["storage"] == timeline.storage_index


def test_one_slow_step_changes_neither_the_slow_down_nor_the_widths(tmp_path: Path) -> None:
    """The page says what MLflow says: medians."""
    record = example_ledger.record(
        step_s=[0.1, 0.9, 0.1],
        phase_s={"forward": [0.03, 0.7, 0.03], "backward": [0.06, 0.1, 0.06]},
        ledger=example_ledger.ledger(step_s=0.6),
    )
    result = read_result(example_ledger.folder(tmp_path / "run", record, example_ledger.timeline()))
    page = compute(result)
    assert page is not None
    assert result.metrics["overhead/ledger_step_ratio"] == pytest.approx(6)
    assert "which slows a step down 6.0 times" in text_of(render(page, b""))
    drawn = {span.name: span.end_ms - span.start_ms for span in page.levels.spans}
    listed = {row.phase: row.figures.ms for row in page.tables.phases}
    assert drawn == pytest.approx(listed)
    assert listed == pytest.approx({"forward": 30, "backward": 60})
    assert {name: result.metrics[f"latency/{name}_ms"] for name in drawn} == listed


def test_traffic_is_drawn_as_bars_by_class(tmp_path: Path) -> None:
    html = page_of(tmp_path)
    drawn = re.findall(r'<span style="width: ([\d.]+)%; background: (#\w+)" title="([^"]*)"', html)
    assert [(color, title) for _, color, title in drawn] == [
        (CLASS_COLORS["matrix_product"], "matrix product: read 6.00 MiB, written 2.00 MiB"),
        (CLASS_COLORS["elementwise"], "elementwise: read 4.00 MiB, written 2.00 MiB"),
        (CLASS_COLORS["matrix_product"], "matrix product: read 10.0 MiB, written 16.0 MiB"),
        (CLASS_COLORS["copy"], "copy: read 1.00 MiB, written 1.00 MiB"),
    ]
    widths = [float(width) for width, _, _ in drawn]
    assert widths == pytest.approx([85 * mib / 26 for mib in (8, 6, 26, 2)], abs=0.001)


def test_the_tables_hold_the_figures_without_a_script(tmp_path: Path) -> None:
    groups = [
        ParameterGroup("lora_A.weight", 12, 18_432, trains=True, per_sample=True, moved=True),
        ParameterGroup("Linear.weight", 13, 163_840, trains=False, per_sample=False, moved=None),
    ]
    layer = LayerRow("a", 2, 1, 64, 8, 32, norm="gram")
    ledger = example_ledger.ledger(layers=[layer])
    html = page_of(
        tmp_path, example_ledger.record(parameters=groups, changed=["adapters in <a>"], ledger=ledger)
    )
    page = Page(html)
    assert f"data:image/png;base64,{base64.b64encode(b'PNG').decode()}" in page.addresses
    assert page.heading == "run"
    for name, row in (
        ("at-peak", ["per-sample gradients", "16.00", "52.8"]),
        ("tensors", ["16.00", "per-sample gradients", "head.weight", "2 x 2048 x 1024"]),
        ("phases", ["forward", "50.00", "16.00", "16.00", "activations"]),
        ("after-step", ["summed gradients", "16.00"]),
        ("moved-by-phase", ["forward", "10.0", "4.0", "3.00", "204.4"]),
        ("moved-by-class", ["matrix product", "16.0", "18.0", "11.00", "308.5"]),
    ):
        assert page.tables[name][1][: len(row)] == row
    assert page.tables["norms"][1][:4] == ["a", "64", "8 x 32", "gram"]
    assert page.tables["parameters"][1:] == [
        ["lora_A.weight", "", "12", "18,432", "yes", "yes", "yes"],
        ["Linear.weight", "", "13", "163,840", "no", "no", ""],
    ]
    assert "adapters in <a>" in page.text
    assert "30.3 MiB, in backward: per-sample gradients 16.0 MiB (53 %)" in text_of(html)
    assert "Warning" not in page.text


def test_the_page_needs_nothing_from_elsewhere_and_is_small(tmp_path: Path) -> None:
    html = page_of(tmp_path)
    page = Page(html)
    assert [address for address in page.addresses if not address.startswith("data:")] == []
    assert "link" not in page.tags
    assert len(html.encode()) < 120_000
    assert "parameters" not in page.tables
    assert "Changed for training" not in page.text


def test_a_step_of_a_hundred_thousand_events_fits_the_page(tmp_path: Path) -> None:
    count = 100_000
    generator = np.random.default_rng(0)
    changes = generator.integers(1, 50 * MIB, count // 2)
    num_bytes = np.stack([changes, -changes], axis=1).flatten().tolist()
    timeline = example_ledger.timeline(
        start={},
        seconds=np.linspace(0, 0.6, count).tolist(),
        category=[list(CATEGORIES)[i // 2 % len(CATEGORIES)] for i in range(count)],
        num_bytes=num_bytes,
        moved_to=[None] * count,
        phases=[],
        peak_event=int(np.argmax(num_bytes)),
        storages=[example_ledger.held(1, "activations", [], "", "", None, "") for _ in range(count // 2)],
        storage_index=[i // 2 for i in range(count)],
        num_present=0,
    )
    html = page_of(tmp_path, timeline=timeline)
    assert len(html.encode()) < 2_000_000
    assert step_of(html)["bytes"] == num_bytes
    assert "The chart draws all 100,001 levels" in text_of(html)


def test_doubts_and_what_is_not_known_are_told(tmp_path: Path) -> None:
    doubtful = text_of(page_of(tmp_path, example_ledger.record(memory=Memory(peak_allocated=40 * MIB))))
    assert "Warning: the ledger sees 25.0 % less" in doubtful
    assert "The ledger's peak is 25.00 % below" in doubtful
    unknown = example_ledger.record(memory=Memory(), phase_s={}, step_s=[], num_parameters=None)
    html = page_of(tmp_path, unknown, name="bare")
    assert dict(Page(html).tables["facts"])["model"] == "tiny"
    assert "nothing checks these figures" in text_of(html)
    assert "Each phase is drawn as wide" not in text_of(html)
    assert Page(html).tables["phases"][1] == ["forward", "", "16.00", "", "activations"]


def test_texts_from_outside_cannot_become_tags(tmp_path: Path) -> None:
    def html(text: str, name: str) -> str:
        made = example_ledger.timeline()
        timeline = dataclasses.replace(
            made,
            storages=[dataclasses.replace(t, name=text, module=text, operator=text) for t in made.storages],
            phases=[dataclasses.replace(p, name=text) for p in made.phases],
        )
        record = example_ledger.record()
        record.environment["cpu"] = text
        return page_of(tmp_path, record, timeline, name=name)

    page = Page(html(EVIL, "<b>"))
    assert page.tags == Page(html("harmless", "harmless")).tags
    assert page.tables["tensors"][1][2] == EVIL
    assert dict(page.tables["facts"])["device"] == EVIL
    assert page.heading == "<b>"


def test_there_is_a_page_and_an_image_of_a_run_with_a_ledger(tmp_path: Path) -> None:
    for name, record, timeline in [
        ("run", example_ledger.record(), example_ledger.timeline()),
        ("no record", None, example_ledger.timeline()),
        ("no ledger", example_ledger.record(ledger=None), example_ledger.timeline()),
        ("no timeline", example_ledger.record(), None),
    ]:
        folder = example_ledger.folder(tmp_path / name, record, timeline)
        written = write_timeline(read_result(folder))
        files = [folder.timeline_page, folder.timeline_image]
        assert written == (files if name == "run" else [])
        assert [path.exists() for path in files] == [name == "run"] * 2
    assert (tmp_path / "run" / folder.timeline_image.name).read_bytes().startswith(b"\x89PNG")


def test_the_experiment_is_described(tmp_path: Path) -> None:
    record = example_ledger.record()
    record.environment["gpu"] = "a fast one"
    folder = example_ledger.folder(tmp_path / "run", record, example_ledger.timeline())
    config = folder.read_config()
    folder.write_config(dataclasses.replace(config, activation_checkpointing=True))
    page = compute(read_result(folder))
    assert page is not None
    assert dict(Page(render(page, b"")).tables["facts"]) == {
        "trainer": "DPSGDTrainer (flat)",
        "model": "tiny, 1,234,567 parameters",
        "batch x sequence": "2 x 16",
        "precision": "fp32",
        "parameters that train": "all",
        "training loop": "documented",
        "activation checkpointing": "yes",
        "device": "a fast one",
        "torch / Opacus": "2.13 / 1.6",
    }
