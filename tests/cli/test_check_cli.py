"""`dpprof check` as a user sees it, and workloads that no command starts with."""

import json
import re
from pathlib import Path

from conftest import Run, measure_here
from trap_cases import said

from dpprof.measure.trainers.training import WARNINGS


def unwrapped(output: str) -> str:
    return re.sub(r"\s+", " ", output)


def test_a_plain_gpt2_has_its_traps_named_and_the_answer_is_kept(called: Run, tmp_path: Path) -> None:
    ended = called("check", "example_gpt2:plain", "--seq-len", "8", "--runs-dir", "elsewhere")
    assert ended.returncode == 3
    assert ended.stderr == "dpprof: 3 of 6 trainers fail: flat, ghost, fast\n"
    said_here = unwrapped(ended.stdout)
    for trainers, sentence in [
        ("flat, ghost, fast", said("ids", module="positions", length=1, batch_size=3)),
        ("ghost", said("tied", modules="tokens and head", parameter="tokens.weight")),
        ("ghost", said("not_contiguous", module="tokens")),
    ]:
        assert f"to change ({trainers}): {sentence}" in said_here
    dropout = WARNINGS["dropout"].format(module="drop")
    assert f"to know (standard, flat, ghost, fast, bk, mixed): {dropout}; the same in mlp_drop" in said_here
    assert re.search(r"standard +trains +- +\[4\] ", ended.stdout)
    assert re.search(r"ghost +fails +\[1\], \[2\], \[3\] +\[4\] ", ended.stdout)
    (folder,) = (tmp_path / "elsewhere").iterdir()
    assert f"kept in elsewhere/{folder.name}" in ended.stdout
    assert {path.name for path in folder.iterdir()} == {"check.html", "check.md", "check.json"}
    assert json.loads((folder / "check.json").read_text())["trains"]["DPGhostClippingTrainer"] is False


def test_a_model_that_every_trainer_trains_ends_with_0(tmp_path: Path) -> None:
    ended = measure_here(tmp_path, "check", "example_gpt2:fixed", "--trainers", "ghost,standard")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "nothing to change" in ended.stdout
    assert not re.search(r"flat|fast", ended.stdout)
