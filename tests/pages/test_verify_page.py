"""What `verify` found, on a run's page and of all trainers."""

from example_console import printed, terminal
from example_results import result

from dpprof.pages import html
from dpprof.pages.document import Document, Sentence, Styled, Table
from dpprof.pages.reports.verify import page, side_by_side
from dpprof.pages.terminal import show
from dpprof.record.figures.verdicts import FAIL, PASS, WARNING
from dpprof.record.record import VerifyCheck, VerifyResult
from dpprof.vocabulary.verify_checks import CHECKS

FOUND = VerifyResult(
    [
        VerifyCheck("gradient_float64", PASS, "off by 1e-16", 1e-16, 1e-9),
        VerifyCheck("sensitivity_nan", WARNING, "a NaN <is> summed"),
        VerifyCheck("noise_steps", FAIL, "steps 1 and 2 have the same noise", chance=1e-30),
    ],
    max_grad_norm=2.5,
    num_noise_tests=284,
)


def marks(document: Document) -> list[object]:
    """The words that stand out at the front of sentences."""
    texts = [part.text for part in document.parts if isinstance(part, Sentence)]
    return [text[0] for text in texts if isinstance(text, tuple) and isinstance(text[0], Styled)]


def test_failures_come_first_and_every_check_has_a_row() -> None:
    made = page(result("DPSGDTrainer", step_s=0.002, verified=FOUND))
    assert made is not None
    assert marks(made) == [Styled(FAIL, "bad"), Styled(WARNING, "doubtful")]
    (checks,) = [part for part in made.parts if isinstance(part, Table)]
    assert [(row[0], row[2], row[3]) for row in checks.rows] == [
        ("gradient_float64", "1e-16", "1e-09"),
        ("sensitivity_nan", "", ""),
        ("noise_steps", "1e-30", "1e-06"),
    ]
    assert all(row[4] == CHECKS[str(row[0])] for row in checks.rows)
    text = html.page(made)
    assert "a NaN &lt;is&gt; summed" in text
    assert "284 tests" in text


def test_what_was_not_verified_has_no_page() -> None:
    assert page(result("DPSGDTrainer", step_s=0.002)) is None
    unknown = page(result("DPSGDTrainer", step_s=0.002, verified=VerifyResult(doubt="no gradient")))
    assert unknown is not None
    assert marks(unknown) == [Styled("cannot tell", "doubtful")]


def test_trainers_stand_side_by_side_and_a_sentence_is_said_once_of_all() -> None:
    found = [
        result(trainer, step_s=0.002, verified=FOUND)
        for trainer in ("DPSGDTrainer", "DPGhostClippingTrainer")
    ]
    console = terminal(100)
    show(console, side_by_side(found))
    lines = printed(console).splitlines()
    assert ["noise_steps", "FAIL", "FAIL"] in [line.split() for line in lines]
    assert [line for line in lines if line.startswith("fail")] == [
        "fail (flat, ghost): noise_steps: steps 1 and 2 have the same noise"
    ]
