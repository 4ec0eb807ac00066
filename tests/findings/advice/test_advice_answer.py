"""An advice in words, as Markdown and as a page, from costs that nobody estimated."""

import dataclasses
import json
from typing import Any

import pytest
from example_costs import step

from dpprof.config.changes import BATCH, LEARNED, SAME, Change
from dpprof.config.entry_points import AdviceConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.findings.advice.answer import AdviceData, answer, change_pct, experiment, notes, order, to_data
from dpprof.findings.advice.arithmetic import ByArithmetic
from dpprof.findings.advice.weighing import Weighed, Weighing
from dpprof.pages import html, markdown
from dpprof.pages.advice import page
from dpprof.pages.document import Bar, Table
from dpprof.record.figures.step import LogicalStep

GIB = 2**30
CONFIG = parse_experiment({"trainer": "flat", "target": "A100-40GB"}, EstimatingConfig).resolve(
    cuda_available=True
)


def cost(gib: float, seconds: float | None = 1.0) -> LogicalStep:
    return step(round(gib * GIB), seconds, 1000, 1000)


def weighed(name: str, gib: float, seconds: float | None = 1.0, alters: str = SAME) -> Weighed:
    kind = BATCH if name.startswith(BATCH) else name
    return Weighed((Change(name, kind, {"loop": "lean"}, alters),), cost(gib, seconds))


def data(*alone: Weighed, gib: float = 50, together: Weighed | None = None, **more: Any) -> AdviceData:
    advice = Weighing(more.get("given", cost(gib)), more.get("limit", 36 * GIB), alone, together)
    arithmetic = [ByArithmetic("noise in place", GIB, 10, "because")]
    return AdviceData("mine", CONFIG, AdviceConfig(), advice, arithmetic, {"ew": "it <cannot>"}, None)


def test_what_makes_it_fit_is_the_answer() -> None:
    found = data(weighed("bk", 31, 0.97), weighed("slow", 30, 2), weighed("LoRA", 10, 0.5, LEARNED))
    said = answer(found)
    assert said.startswith("It does not fit A100-40GB (39.4 GiB) with 5% kept free: ")
    assert "needs 50.0 GiB, and may use only 36.0 GiB. Alone, bk " in said
    assert "31.0 GiB" in said
    assert "predicted to take 970.0 ms, 3.0 % less time. So does slow." in said
    assert said.endswith("fit with LoRA, too, but that alters what is learned.")


def test_the_experiment_is_told_with_the_type_of_its_weights() -> None:
    assert experiment(data()).endswith(", sequences of 512, fp32.")
    short = dataclasses.replace(data(), weights_dtype="bf16")
    assert experiment(short).endswith(", sequences of 512, fp32, weights in bf16.")


def test_a_row_has_a_changes_figures_and_differences() -> None:
    parts = page(data(weighed("bk", 31, 0.97))).parts
    changes = next(part for part in parts if isinstance(part, Table) and part.name == "changes")
    _, row = changes.rows
    assert row[:2] == ["bk", "31.0 GiB"]
    assert row[2] == Bar(31 / 50, 36 / 50)
    assert row[3:] == ["-19.0 GiB", "0 %", "0 %", "970.00", "-3.0 %", "nothing", "fits"]


def test_what_is_faster_with_a_larger_batch_is_told_too() -> None:
    both = Weighed((*weighed("bk", 40).changes, *weighed(f"{BATCH} 8", 40).changes), cost(30, 0.5))
    found = data(weighed("bk", 40, 0.6), weighed(f"{BATCH} 2", 20, 1.1), together=both)
    assert "Together, bk and physical batch 8 are faster" in answer(found)
    assert "30.0 GiB" in answer(found)
    assert answer(found).endswith("is predicted to take 500.0 ms, 50.0 % less time.")


def test_changes_together_are_the_answer_where_none_suffices() -> None:
    both = Weighed((*weighed("bk", 1).changes, *weighed("LoRA", 1, 1, LEARNED).changes), cost(30, 1.0))
    said = answer(data(weighed("bk", 40), together=both))
    assert "No single change makes it fit" in said
    assert "Together, bk and LoRA do" in said
    assert said.endswith("as much time. It alters what is learned.")
    nearest = answer(data(weighed("bk", 40), together=weighed("bk", 40)))
    assert "Nor do these together: with bk it needs 40.0 GiB." in nearest
    assert answer(data(weighed("useless", 50))).endswith("Nor do several together.")


def test_what_fits_can_be_faster() -> None:
    found = data(weighed("bk", 5, 0.5), weighed("large", 40, 0.1), weighed("useless", 30), gib=30)
    assert "It fits A100-40GB" in answer(found)
    assert "With bk it has the lowest predicted time" in answer(found)
    assert "it needs 5.0 GiB" in answer(found)
    assert "too close to call" not in answer(found)
    assert "too close to call" in answer(data(weighed("bk", 5, 0.9), gib=30))
    assert notes(found) == [
        "Saves nothing here: useless (30.0 GiB).",
        "Would not fit: large (40.0 GiB).",
        "Not possible, ew: it <cannot>.",
    ]
    slow = data(weighed("small", 5, 2), gib=30)
    assert answer(slow).endswith("takes less time. The most memory is saved by small.")


def test_without_a_device_or_rates_nothing_is_claimed_of_them() -> None:
    found = data(weighed("bk", 5, None), given=cost(30, None), limit=None)
    assert answer(found).startswith("It needs 30.0 GiB. No device is given to compare that with.")
    assert "in order of FLOPs" in order(found)
    assert to_data(found)["fits"] is None
    assert "predicted ms" not in markdown.render(page(found))
    assert 'class="limit"' not in html.page(page(found))


def test_page_and_data_have_every_change() -> None:
    found = data(weighed("bk", 31), weighed("LoRA", 10, 1, LEARNED), together=weighed("bk", 31))
    text = html.page(page(found))
    for word in ("bk", "LoRA", "noise in place", "it &lt;cannot&gt;", 'id="together"', "--loop lean"):
        assert word in text
    kept = json.loads(json.dumps(to_data(found)))
    assert [change["name"] for change in kept["changes"]] == ["bk", "LoRA"]
    assert kept["changes"][1]["alters"] == LEARNED
    assert kept["experiment"]["target"] == "A100-40GB"


def test_a_difference_too_small_to_see_is_none() -> None:
    assert (change_pct(1.0001, 1.0), change_pct(1, 0), change_pct(None, 1)) == (0, None, None)
    assert change_pct(1.1, 1.0) == pytest.approx(10)
