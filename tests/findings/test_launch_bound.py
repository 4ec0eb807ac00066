"""Which steps are launch-bound, and what helps them: in a verdict, a fit, a plan and an advice."""

import dataclasses
import json
from typing import Any

import pytest
from example_config import experiment
from example_estimates import FLAT, GHOST, estimate, measured
from example_findings import told
from example_plans import SAMPLES, fitted, noises_of
from example_results import comparison

from dpprof.config.changes import LEARNED, Change
from dpprof.config.entry_points import AdviceConfig, FitConfig, PlanConfig
from dpprof.findings.advice import answer as of_advice
from dpprof.findings.advice.weighing import Weighed, Weighing
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.fit import Answer
from dpprof.findings.launch_bound import PredictedStep, launch_bound
from dpprof.findings.plan import answer as of_plan
from dpprof.findings.plan.data import PlanData
from dpprof.pages import html, markdown
from dpprof.pages.advice import page as advice_page
from dpprof.pages.document import Document
from dpprof.pages.fit import page as fit_page
from dpprof.pages.plan import page as plan_page
from dpprof.record.figures.results import Result
from dpprof.record.figures.step import Amounts, LogicalStep
from dpprof.record.ledger import PhaseTime

STANDARD, BK = "StandardTrainer", "DPBookKeepingTrainer"
GRAPHS, COMPILED, FEWER = "help.graph", "help.graph_or_compiled", "help.fewer_operators"
# How the remedies of more samples open, and that of graphs.
LARGER, GRAPHS_WORDS = "Take a larger", "CUDA graph"


def phases(host_s: float = 0.9, backward: int = 100, clip: int = 2, noise: int = 2) -> dict[str, PhaseTime]:
    """A step of a second, in which the host works for so long: a quarter of it for clip and noise each."""
    half, quarter = host_s / 2, host_s / 4
    return {
        "backward": PhaseTime(0.5, host_s=half, operators=backward),
        "clip": PhaseTime(0.25, host_s=quarter, operators=clip),
        "noise": PhaseTime(0.25, host_s=quarter, operators=noise),
    }


def step(
    trainer: str = FLAT, host: float = 0.8, seconds: float = 1.0, needed: int = 10, **issued: Any
) -> PredictedStep:
    """A step of so many seconds, of which the GPU waits for a share."""
    found = {}
    for name, time in phases(**issued).items():
        took = seconds * time.seconds
        timed = Amounts(
            seconds=took, least=took, most=took, device_s=took * (1 - host), waiting_s=took * host
        )
        found[name] = timed._replace(host_s=time.host_s, operators=time.operators)
    return PredictedStep(experiment(trainer=trainer), LogicalStep(found, needed=needed))


def remedies(*steps: PredictedStep, **more: Any) -> set[str]:
    """The kinds of the remedies that a finding has."""
    found = launch_bound(steps, **more)
    assert found is not None
    return {point.kind for point in found.points}


@pytest.mark.parametrize(("host", "is_said"), [(0.51, True), (0.5, False), (0.0, False)])
def test_a_step_is_launch_bound_if_its_gpu_waits_more_than_half_of_it(host: float, is_said: bool) -> None:
    found = launch_bound([step(host=host), step(GHOST, host=0.1)])
    assert (found is not None) is is_said
    if found is not None:
        assert "issue operators: 51 % with flat (104 operators). What helps:" in found.text
        assert "ghost" not in found.text


def test_steps_of_many_sizes_are_listed_in_part() -> None:
    found = launch_bound([step()._replace(size=f" at batch {i}") for i in range(9)])
    assert found is not None
    assert "80 % with flat at batch 5 (104 operators) and 3 more. What helps:" in found.text


def test_multi_tensor_functions_are_for_what_works_tensor_by_tensor_for_long() -> None:
    assert remedies(step()) == {GRAPHS}, "its clip and noise work on lists"
    assert remedies(step(clip=90)) == {GRAPHS}, "that of `bk` multiplies matrices"
    found = launch_bound([step(clip=90, noise=90), step(GHOST, noise=90)])
    assert found is not None
    assert "time: 50 % with flat (clip and noise), 25 % with ghost (noise)." in str(found.points[0])
    short = step(noise=90)
    longer = dict(short.step.phases) | {"backward": short.step.phases["backward"]._replace(host_s=5.0)}
    assert remedies(short._replace(step=dataclasses.replace(short.step, phases=longer))) == {GRAPHS}


def test_a_trainer_with_fewer_operators_is_named_if_it_is_clearly_faster() -> None:
    fast = step(BK, seconds=0.5, backward=50)
    assert remedies(step(), fast, fastest=fast) == {GRAPHS, FEWER}
    found = launch_bound([step(), fast], fastest=fast)
    assert found is not None
    assert "500.0 ms with bk (54 operators) against 1,000.0 ms with flat (104 operators)." in str(
        found.points[0]
    )
    assert remedies(step(), fastest=step(BK, seconds=0.9, backward=50)) == {GRAPHS}, "too close to call"
    assert remedies(step(), fastest=step(BK, seconds=0.5, backward=500)) == {GRAPHS}, "it issues more"
    assert remedies(step(STANDARD), fastest=fast) == {COMPILED}, "privacy is no remedy"


def test_graphs_are_of_one_rank_and_compiled_without_privacy_alone() -> None:
    ranks = step()
    config = dataclasses.replace(ranks.config, parallel="ddp", world_size=2)
    alone = launch_bound([ranks._replace(config=config)])
    assert alone is not None
    assert alone.points == ()
    assert alone.text.endswith(" with flat (104 operators).")
    assert remedies(step(STANDARD)) == remedies(step(), step(STANDARD)) == {COMPILED}


def waiting(trainer: str = FLAT, host_s: float = 0.9, **settings: Any) -> Result:
    """An estimate whose step takes a second, in which the GPU works for two milliseconds."""
    made = estimate(trainer, **settings)
    assert made.record is not None
    assert made.record.ledger is not None
    made.record.ledger.phase_s = phases(host_s)
    made.record.ledger.phase_peak |= dict.fromkeys(phases(), made.record.ledger.phase_peak["backward"])
    return made


def working(trainer: str = FLAT, **settings: Any) -> Result:
    """An estimate whose GPU works for most of the step."""
    made = waiting(trainer, **settings)
    assert made.record is not None
    assert made.record.ledger is not None
    made.record.ledger.traffic[0].predicted_s = 0.9
    return made


def test_a_verdict_has_the_place_with_the_longest_wait() -> None:
    of = comparison(working(), working(GHOST), waiting(batch_size=2), working(GHOST, batch_size=2))
    assert told(of, "Launch-bound").startswith(
        "At 1b, batch 2, sequence 512, estimated for H200 (139.8 GiB), the "
    )
    assert LARGER in told(of, "Launch-bound")
    of = comparison(waiting(), waiting(batch_size=2), waiting(batch_size=3))
    assert ", and likewise at 2 other places, the GPU is predicted" in told(of, "Launch-bound")
    lacking = [waiting(trainer, device_memory_gib=0.1) for trainer in (FLAT, GHOST)]
    assert LARGER not in told(comparison(*lacking), "Launch-bound")


def test_a_verdict_of_steps_that_compute_or_have_no_times_of_phases_says_nothing() -> None:
    assert told(comparison(working(), working(GHOST)), "Launch-bound") == ""
    assert told(comparison(estimate(), estimate(GHOST)), "Launch-bound") == ""


def test_an_exported_comparison_says_as_much() -> None:
    of = comparison(waiting(), waiting(GHOST))
    assert (
        told(Comparison.from_data(json.loads(of.to_json())), "Launch-bound") == told(of, "Launch-bound") != ""
    )
    assert "step" not in json.loads(comparison(measured()).to_json())["cells"][0]["runs"][0]


def in_all_media(document: Document) -> str:
    """A page's Markdown, once its HTML was found to say as much."""
    text = markdown.render(document)
    assert ("Launch-bound" in html.page(document)) is ("Launch-bound" in text)
    return text


def test_a_fit_names_the_sizes_and_no_larger_batch() -> None:
    def text(best: Result) -> str:
        return in_all_media(fit_page("f", [Answer(best.config, "batch_size", "", 4, 3, best)], FitConfig()))

    assert "100 % with flat at batch 4, sequence 512 (104 operators)" in text(waiting())
    assert GRAPHS_WORDS in text(waiting())
    assert LARGER not in text(waiting())
    assert "Launch-bound" not in text(working()) + text(estimate())


def plan(taken: LogicalStep | None, largest: int = 8) -> PlanData:
    """A plan whose steps draw up to 64 samples, in physical batches of up to eight by default."""
    asked = PlanConfig(dataset_size=SAMPLES, steps=4, logical_batches="32")
    one = dataclasses.replace(fitted("flat"), largest=largest)
    return PlanData("p", asked, noises_of(asked), [one], {}, step=taken)


def test_a_plan_takes_a_larger_logical_batch_where_a_device_holds_more_than_a_step_draws() -> None:
    taken = step().step
    text = in_all_media(plan_page(plan(taken)))
    assert "80 % with flat (104 operators). What helps:" in text
    assert LARGER not in text
    spare = plan(taken, largest=1024)
    (draws,) = (option.physical_batch for option in spare.options)
    assert f"a device holds 1,024 samples at once, and hardly any step gives it more than {draws}." in (
        in_all_media(plan_page(spare))
    )
    found = of_plan.to_data(spare)["launch_bound"]
    assert [len(found), LARGER in found[1]] == [3, True]
    for silent in (plan(None), plan(step(host=0.4).step)):
        assert "Launch-bound" not in in_all_media(plan_page(silent))
        assert of_plan.to_data(silent)["launch_bound"] is None


def advice(
    given: PredictedStep, *changes: tuple[str, PredictedStep, str], **more: Any
) -> of_advice.AdviceData:
    alone = [
        Weighed((Change(name, "trainer", {"trainer": name}, alters),), one.step)
        for name, one, alters in changes
    ]
    config = dataclasses.replace(estimate().config, accumulation_steps=more.get("accumulation_steps", 1))
    weighing = Weighing(given.step, 20, alone)
    return of_advice.AdviceData("a", config, AdviceConfig(), weighing, [], {}, None)


def test_an_advice_names_the_fastest_trainer_and_what_a_larger_batch_is() -> None:
    fast = step(BK, seconds=0.5, backward=50)
    text = in_all_media(advice_page(advice(step(), (BK, fast, "same"), (GHOST, step(GHOST), "same"))))
    assert "500.0 ms with bk (54 operators) against 1,000.0 ms with flat (104 operators)." in text
    assert "Here that is a larger logical batch, too." in text
    data = advice(step(), (BK, fast, LEARNED), accumulation_steps=2)
    points = of_advice.to_data(data)["launch_bound"][1:]
    assert [LARGER in points[0], "logical" in points[0], GRAPHS_WORDS in points[1]] == [True, False, True]
    (only,) = of_advice.to_data(advice(step(needed=30)))["launch_bound"][1:]
    assert GRAPHS_WORDS in only, "nothing larger fits"
    silent = advice(step(host=0.3), (BK, fast, "same"))
    assert "Launch-bound" not in in_all_media(advice_page(silent))
    assert of_advice.to_data(silent)["launch_bound"] is None
