"""An advice in words, as Markdown and as a page, from costs that nobody estimated."""

import json
from typing import Any

import pytest

from dpprof.config.advice import AdviceConfig
from dpprof.config.changes import BATCH, LEARNED, SAME, Change
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.figures.advice.arithmetic import ByArithmetic
from dpprof.figures.advice.cost import Cost
from dpprof.figures.advice.weighing import Advice, Weighed
from dpprof.reports.advice import markdown, page
from dpprof.reports.advice.data import AdviceData
from dpprof.reports.advice.words import capital, share_of, size_of

GIB = 2**30
CONFIG = parse_experiment({"trainer": "flat", "target": "A100-40GB"}, EstimatingConfig).resolve(
    cuda_available=True
)


def cost(gib: float, least_s: float | None = 1.0) -> Cost:
    return Cost(round(gib * GIB), "backward", 1000, 1000, least_s)


def weighed(name: str, gib: float, least_s: float | None = 1.0, alters: str = SAME) -> Weighed:
    kind = BATCH if name.startswith(BATCH) else name
    return Weighed((Change(name, kind, {"loop": "lean"}, alters),), cost(gib, least_s))


def data(*alone: Weighed, gib: float = 50, together: Weighed | None = None, **more: Any) -> AdviceData:
    advice = Advice(more.get("given", cost(gib)), more.get("limit", 36 * GIB), alone, together)
    arithmetic = [ByArithmetic("noise in place", GIB, 10, "because")]
    return AdviceData("mine", CONFIG, AdviceConfig(), advice, arithmetic, {"ew": "it <cannot>"}, None)


def test_what_makes_it_fit_is_the_answer() -> None:
    found = data(weighed("bk", 31, 0.97), weighed("slow", 30, 2), weighed("LoRA", 10, 0.5, LEARNED))
    assert found.answer == (
        "It does not fit A100-40GB (39.4 GiB) with 10% kept free: it needs 50.0 GiB, and may use only "
        "36.0 GiB. "
        "Alone, bk makes it fit: it needs 31.0 GiB, and a logical step takes at least 970.0 ms, 3.0 % less "
        "time. So does slow. LoRA would, too, but alters what is learned."
    )
    first = found.rows[0]
    assert (first.needs, first.saves, first.least_change) == ("31.0 GiB", "-19.0 GiB", "-3.0 %")
    assert first.share == pytest.approx(31 / 50)
    assert found.limit_share == pytest.approx(36 / 50)


def test_what_is_faster_with_a_larger_batch_is_told_too() -> None:
    both = Weighed((*weighed("bk", 40).changes, *weighed(f"{BATCH} 8", 40).changes), cost(30, 0.5))
    found = data(weighed("bk", 40, 0.6), weighed(f"{BATCH} 2", 20, 1.1), together=both)
    assert found.answer.endswith(
        "Faster are bk and physical batch 8, together: it needs 30.0 GiB, and a logical step takes at least "
        "500.0 ms, 50.0 % less time."
    )


def test_changes_together_are_the_answer_where_none_suffices() -> None:
    both = Weighed((*weighed("bk", 1).changes, *weighed("LoRA", 1, 1, LEARNED).changes), cost(30, 1.0))
    answer = data(weighed("bk", 40), together=both).answer
    assert (
        "No change alone makes it fit and leaves what is learned as it is. Together, bk and LoRA do" in answer
    )
    assert answer.endswith("as much time. It alters what is learned.")
    nearest = data(weighed("bk", 40), together=weighed("bk", 40)).answer
    assert "Nor do these together: with bk it needs 40.0 GiB." in nearest
    assert data(weighed("useless", 50)).answer.endswith("Nor do several together.")


def test_what_fits_can_be_faster() -> None:
    found = data(weighed("bk", 5, 0.5), weighed("large", 40, 0.1), weighed("useless", 30), gib=30)
    assert "It fits A100-40GB" in found.answer
    assert "With bk it has the lowest bound on its time: it needs 5.0 GiB" in found.answer
    assert found.notes == [
        "Saves nothing here: useless (30.0 GiB).",
        "Would not fit: large (40.0 GiB).",
        "ew is left out: it <cannot>.",
    ]
    slow = data(weighed("small", 5, 2), gib=30)
    assert slow.answer.endswith("takes less time. Small saves the most memory.")


def test_without_a_device_or_rates_nothing_is_claimed_of_them() -> None:
    found = data(weighed("bk", 5, None), given=cost(30, None), limit=None)
    assert found.answer.startswith("It needs 30.0 GiB; no device is given to hold that against.")
    assert "fewest FLOPs" in found.order
    assert found.to_data()["fits"] is None
    text = markdown.render(found)
    assert "least" not in text.splitlines()[6]
    assert 'class="limit"' not in page.render(found)


def test_page_and_data_have_every_change() -> None:
    found = data(weighed("bk", 31), weighed("LoRA", 10, 1, LEARNED), together=weighed("bk", 31))
    text = page.render(found)
    for word in ("bk", "LoRA", "noise in place", "it &lt;cannot&gt;", 'id="together"', "--loop lean"):
        assert word in text
    kept = json.loads(json.dumps(found.to_data()))
    assert [change["name"] for change in kept["changes"]] == ["bk", "LoRA"]
    assert kept["changes"][1]["alters"] == LEARNED
    assert kept["experiment"]["target"] == "A100-40GB"


def test_figures_in_words() -> None:
    assert (share_of(1.0, 1.0), share_of(1.1, 1.0), share_of(1, 0)) == ("0 %", "+10.0 %", "")
    assert (size_of(GIB, is_change=True), size_of(-GIB, is_change=True)) == ("+1.0 GiB", "-1.0 GiB")
    assert [capital(text) for text in ("bk is", "batch_size: got", "it is")] == [
        *("bk is", "batch_size: got", "It is")
    ]
