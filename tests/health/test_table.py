"""Mistakes are told by the first broken link and its remedy; correct programs are silent."""

from dataclasses import replace

import pytest
from correct import CORRECT
from harness import run
from mistakes import MISTAKES
from round_trips import differences

from lightning_accum.health import LocalLearningWarning


def each(table):
    return [pytest.param(p, h, id=f"{p.name} - {h}") for p in table for h in p.hosts]


def has(text, words):
    """Whether a text has all words, in any case."""
    return all(word.lower() in text.lower() for word in words)


@pytest.mark.parametrize(("program", "host"), each(MISTAKES))
def test_a_mistake_is_told_by_its_link(program, host):
    said = run(program, host)
    links = (program.link,) if isinstance(program.link, str) else program.link
    if said.error is not None:
        assert "error" in links
        assert has(str(said.error), program.words), said.error
        return
    assert any(has(text, program.words) for text in said.texts), said.texts
    assert program.error is None
    (only,) = said.warnings  # the first broken link, and nothing else
    assert only.category is LocalLearningWarning
    assert only.message.key in links
    assert str(only.message).endswith(f"[{only.message.key}]")
    assert issubclass(only.category, RuntimeWarning)


@pytest.mark.parametrize(("program", "host"), each(CORRECT))
def test_a_correct_program_is_silent_and_does_the_same_unwatched(program, host):
    """Weights, losses, states and random numbers are the same."""
    said = run(program, host)
    assert said.texts == []
    if program.advice == ():
        assert said.lines == []
    elif program.advice:
        assert any(has(line, program.advice) for line in said.lines), said.lines
    if program.alone is None:
        assert not differences(said.left, run(replace(program, health=False), host).left)


def test_names_are_told_apart():
    names = [p.name for p in (*MISTAKES, *CORRECT)]
    assert len(set(names)) == len(names)


def test_the_table_is_large_enough():
    assert len(MISTAKES) >= 45
    assert sum(not p.advice for p in CORRECT) >= 80
