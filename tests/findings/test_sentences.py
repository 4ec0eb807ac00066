"""The dictionary of sentences: each has its place in the code, and every value its way of being written."""

import ast
import re
import string

import pytest
from conftest import ROOT

from dpprof.findings.sentences import SENTENCES, TOPICS, said, say
from dpprof.findings.verdict.finding import Finding


def _strings() -> set[str]:
    """The short strings in dpprof as regular expressions: any word where one has a value."""
    found = set()
    for path in (ROOT / "dpprof").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(p.value) if isinstance(p, ast.Constant) else "" for p in node.values]
                if len("".join(parts)) > 3 and "." in "".join(parts):  # as in f"costs.{of}"
                    found.add("".join(re.escape(part) or r"\w+" for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(re.escape(node.value))
    return {one for one in found if len(one) < 60}


def test_every_sentence_is_said_somewhere() -> None:
    said_somewhere = re.compile("|".join(sorted(_strings())))
    assert [kind for kind in SENTENCES if not said_somewhere.fullmatch(kind)] == []


def test_every_topic_has_a_sentence() -> None:
    assert TOPICS.keys() <= {kind.partition(".")[0] for kind in SENTENCES}


@pytest.mark.parametrize("kind", SENTENCES)
def test_a_sentence_is_whole_or_a_part_of_one(kind: str) -> None:
    words = SENTENCES[kind]
    assert "  " not in words
    assert words == words.rstrip()
    for _, name, spec, _ in string.Formatter().parse(words):
        assert name is None or name.isidentifier(), "values have names"
        assert not spec or "{" not in spec


def test_values_are_written_in_their_ways_and_parts_within_sentences() -> None:
    sent = [said("sent", mib=2048.0, trainer="DPSGDTrainer"), said("sent", mib=0.05, trainer="mine")]
    assert say("communication.place", place="{here}", sent=sent) == (
        "{here}: 2.0 GiB with flat, 51.2 KiB with mine."
    )
    found = Finding.of("memory.first", trainer="DPSGDTrainer", where="at x", lead=[1.002, 1.5])
    assert found.text == (
        "Of the DP trainers, flat needs the least memory at x. The next one needs 1.0020 to 1.50 x as much."
    )
    assert (found.topic, found.explains, found.trainer) == ("Memory", False, "")
    with pytest.raises(KeyError):
        say("use.both", trainer="DPSGDTrainer")
