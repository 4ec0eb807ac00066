import dataclasses
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import example_ledger
import numpy as np
import pytest
from page_reader import Page

from dpprof.figures.results import read_result
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import StepTimeline
from dpprof.record.record import Memory, Record
from dpprof.reports.colors import (
    CATEGORY_COLORS,
    CLASS_COLORS,
    PHASE_COLORS,
    category_color,
    class_color,
    phase_color,
    trainer_color,
)
from dpprof.reports.packed import unpacked
from dpprof.reports.tables import BETWEEN
from dpprof.reports.timeline import compute, render, write_timeline
from dpprof.vocabulary.categories import CATEGORIES
from dpprof.vocabulary.operator_classes import OPERATOR_CLASSES
from dpprof.vocabulary.phases import PHASES
from dpprof.vocabulary.trainers import TRAINERS, UNLISTED_COLOR

MIB = 2**20


def page_of(
    tmp_path: Path, record: Record | None = None, timeline: StepTimeline | None = None, name: str = "run"
) -> str:
    record, timeline = record or example_ledger.record(), timeline or example_ledger.timeline()
    page = compute(read_result(example_ledger.folder(tmp_path / name, record, timeline)))
    assert page is not None
    return render(page)


def step_of(html: str) -> Any:
    (text,) = re.findall(r'<script type="text/plain" id="step">(.*?)</script>', html)
    return unpacked(text)


def test_the_script_gets_every_event_the_phases_and_the_peak(tmp_path: Path) -> None:
    step = step_of(page_of(tmp_path))
    assert step["words"] == [
        "parameters",
        "activations",
        "summed gradients",
        "per-sample gradients",
        "temporary",
    ]
    # Phases are drawn as wide as they were timed: 50 ms and 100 ms.
    assert step["phases"] == [["forward", 0, 50, 0, 3], ["backward", 50, 150, 3, 7]]
    assert (step["peak"], step["ms"][5]) == (5, pytest.approx(50 + 100 * 8 / 18, abs=1e-3))
    assert len(step["ms"]) == 2 + len(step["bytes"]) == 10


def test_without_a_script_there_is_a_chart_too(tmp_path: Path) -> None:
    html = page_of(tmp_path)
    assert re.findall(r'<path d="M0 800[HV\d]*Z" fill="(#\w+)"', html) == [
        category_color(name)
        for name in (
            "temporary",
            "per_sample_gradients",
            "summed_gradients",
            "activations",
            "parameters",
        )
    ]
    assert "peak 30.00 MiB" in Page(html).text


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
    assert page.slowdown == result.metrics["overhead/ledger_step_ratio"] == pytest.approx(6)
    assert "which slows a step down 6.0 times" in " ".join(render(page).split())
    drawn = {span.name: span.end_ms - span.start_ms for span in page.levels.spans}
    listed = {row.phase: row.ms for row in page.tables.phases}
    assert drawn == pytest.approx(listed)
    assert listed == pytest.approx({"forward": 30, "backward": 60})
    assert {name: result.metrics[f"latency/{name}_ms"] for name in drawn} == listed


def test_a_folder_of_an_older_version_has_the_chart_and_its_largest_tensors() -> None:
    kept = Path(__file__).parents[1] / "written_by_0_2" / "grid"
    result = read_result(RunFolder(kept / "DPGhostClippingTrainer_tiny-vocab64-hidden16-layers1_bs2_seq16"))
    data = compute(result)
    assert data is not None
    assert result.record is not None
    assert result.record.ledger is not None
    assert data.step.storages is None
    events = list(zip(data.step.bytes, data.step.moved, strict=True))[: data.step.peak]
    changes = [num_bytes for num_bytes, moved in events if moved < 0]
    assert sum(data.step.start) + sum(changes) == result.record.ledger.peak
    page = Page(render(data))
    assert "The largest tensors at the peak" in page.text
    assert len(page.tables["tensors"]) == 1 + 20
    assert f"The 20 largest of {data.tables.num_tensors} tensors." in page.text


def test_traffic_is_drawn_as_bars_by_class(tmp_path: Path) -> None:
    html = page_of(tmp_path)
    drawn = re.findall(r'<span style="width: ([\d.]+)%; background: (#\w+)" title="([^"]*)"', html)
    assert [(float(width), color, title) for width, color, title in drawn] == [
        (
            pytest.approx(85 * 8 / 26, abs=0.001),
            class_color("matrix_product"),
            "matrix product: read 6.00 MiB, written 2.00 MiB",
        ),
        (
            pytest.approx(85 * 6 / 26, abs=0.001),
            class_color("elementwise"),
            "elementwise: read 4.00 MiB, written 2.00 MiB",
        ),
        (85, class_color("matrix_product"), "matrix product: read 10.0 MiB, written 16.0 MiB"),
        (pytest.approx(85 * 2 / 26, abs=0.001), class_color("copy"), "copy: read 1.00 MiB, written 1.00 MiB"),
    ]


def test_the_tables_hold_the_figures_without_a_script(tmp_path: Path) -> None:
    page = Page(page_of(tmp_path))
    assert page.heading == "run"
    assert page.tables["at-peak"][1][:3] == ["per-sample gradients", "16.00", "52.8"]
    assert [row[1] for row in page.tables["at-peak"][1:]] == [
        "16.00",
        "8.00",
        "4.00",
        "2.00",
        "0.30",
        "30.30",
    ]
    assert page.tables["tensors"][1] == [
        "16.00",
        "per-sample gradients",
        "head.weight",
        "2 x 2048 x 1024",
        "float32",
        "backward",
        "bmm",
    ]
    assert page.tables["phases"][1:] == [
        ["forward", "50.00", "16.00", "16.00", "activations"],
        ["backward", "100.00", "30.00", "31.00", "per-sample gradients"],
    ]
    assert page.tables["after-step"][1:] == [["summed gradients", "16.00"], ["parameters", "4.00"]]
    assert page.tables["moved-by-phase"][1:] == [
        ["forward", "10.0", "4.0", "3.00", "204.4"],
        ["backward", "10.0", "16.0", "8.00", "293.4"],
        ["between phases", "1.0", "1.0", "0.00", "0.0"],
        ["step", "21.0", "21.0", "11.00", "249.8"],
    ]
    assert page.tables["moved-by-class"][1] == ["matrix product", "16.0", "18.0", "11.00", "308.5"]
    assert dict(page.tables["facts"])["device"] == "A & B"
    assert dict(page.tables["facts"])["model"] == "tiny, 1,234,567 parameters"
    assert "The peak is 30.3 MiB, in backward: per-sample gradients 16.0 MiB (53 %)" in " ".join(
        page.text.split()
    )
    assert "Warning" not in page.text


def test_the_page_needs_nothing_from_elsewhere_and_is_small(tmp_path: Path) -> None:
    html = page_of(tmp_path)
    page = Page(html)
    assert page.addresses == []
    assert "link" not in page.tags
    assert len(html.encode()) < 120_000


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
    assert "The chart draws all 100,001 levels of the step" in " ".join(html.split())
    assert "with every peak that rises more than" in " ".join(html.split())


def test_doubts_and_what_is_not_known_are_told(tmp_path: Path) -> None:
    doubtful = Page(page_of(tmp_path, example_ledger.record(memory=Memory(peak_allocated=40 * MIB))))
    assert "Warning: the ledger sees 25.0 % less than the allocator's peak" in doubtful.text
    assert "The ledger's peak is 25.00 % below the allocator's own" in " ".join(doubtful.text.split())
    unknown = example_ledger.record(memory=Memory(), phase_s={}, step_s=[], num_parameters=None)
    bare = Page(page_of(tmp_path, unknown, name="bare"))
    assert dict(bare.tables["facts"])["model"] == "tiny"
    text = " ".join(bare.text.split())
    assert "nothing checks these figures" in text
    assert "Each phase is drawn as wide" not in text
    assert bare.tables["phases"][1] == ["forward", "", "16.00", "", "activations"]


def test_texts_from_outside_cannot_become_tags(tmp_path: Path) -> None:
    evil = "<script>alert('1')</script>&amp; größer"

    def named(name: str) -> StepTimeline:
        made = example_ledger.timeline()
        return dataclasses.replace(
            made,
            storages=[dataclasses.replace(t, name=name, module=name, operator=name) for t in made.storages],
            phases=[dataclasses.replace(p, name=name) for p in made.phases],
        )

    timeline = named(evil)
    record = example_ledger.record()
    record.environment["cpu"] = evil
    html = page_of(tmp_path, record, timeline)
    page = Page(html)
    harmless = Page(page_of(tmp_path, timeline=named("harmless"), name="harmless"))
    assert page.tags == harmless.tags
    assert page.tables["tensors"][1][2] == evil
    assert dict(page.tables["facts"])["device"] == evil
    data = compute(read_result(example_ledger.folder(tmp_path / "name", record, timeline)))
    assert data is not None
    assert Page(render(dataclasses.replace(data, title=evil))).heading == evil


def test_there_is_no_page_without_a_ledger(tmp_path: Path) -> None:
    for name, record, timeline in [
        ("no record", None, example_ledger.timeline()),
        ("no ledger", example_ledger.record(ledger=None), example_ledger.timeline()),
        ("no timeline", example_ledger.record(), None),
    ]:
        folder = example_ledger.folder(tmp_path / name, record, timeline)
        write_timeline(read_result(folder))
        assert not folder.timeline_page.exists()
        assert not folder.timeline_image.exists()


def test_the_page_and_the_image_of_a_run_folder(tmp_path: Path) -> None:
    folder = example_ledger.folder(tmp_path / "run", example_ledger.record(), example_ledger.timeline())
    write_timeline(read_result(folder))
    assert Page(folder.timeline_page.read_text(encoding="utf-8")).heading == "run"
    assert folder.timeline_image.read_bytes().startswith(b"\x89PNG")


def test_every_category_and_class_has_a_colour_of_its_own() -> None:
    assert list(CATEGORY_COLORS) == [*CATEGORIES, "untracked"]
    assert set(CLASS_COLORS) == set(OPERATOR_CLASSES)
    for colors in (CATEGORY_COLORS, CLASS_COLORS):
        assert len(set(colors.values())) == len(colors)
    assert list(PHASE_COLORS) == [*PHASES, BETWEEN]
    assert [trainer_color(name) for name in TRAINERS] == [info.color for info in TRAINERS.values()]


def test_what_no_table_lists_is_grey() -> None:
    for color in (trainer_color, category_color, class_color, phase_color):
        assert color("anything else") == UNLISTED_COLOR


@pytest.mark.parametrize("checkpointing", [True, False])
def test_the_experiment_is_described(tmp_path: Path, checkpointing: bool) -> None:
    record = example_ledger.record()
    record.environment["gpu"] = "a fast one"
    folder = example_ledger.folder(tmp_path / "run", record, example_ledger.timeline())
    folder.write_config(replace(folder.read_config(), activation_checkpointing=checkpointing))
    page = compute(read_result(folder))
    assert page is not None
    assert dict(Page(render(page)).tables["facts"]) == {
        "trainer": "DPSGDTrainer (flat)",
        "model": "tiny, 1,234,567 parameters",
        "batch x sequence": "2 x 16",
        "precision": "fp32",
        "parameters that train": "all",
        "training loop": "documented",
        "activation checkpointing": "yes" if checkpointing else "no",
        "device": "a fast one",
        "torch / Opacus": "2.13 / 1.6",
    }
