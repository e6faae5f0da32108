"""Mistakes are told by the first broken link and its remedy; correct programs are silent."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from correct import CORRECT
from mistakes import MISTAKES
from not_yet import NOT_YET
from programs import Program, Said, run

try:
    from lightning_accum.health import LocalLearningWarning
except ImportError:  # it is being written: only the words are compared
    LocalLearningWarning = None


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """Lets the collections after each program look at its own objects only."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def each(table: Sequence[Program]) -> list[Any]:
    """Programs times hosts."""
    rows = []
    for p in table:
        for host in p.hosts:
            name = f"{p.name} - {host}"
            marks = [pytest.mark.xfail(strict=False)] if name in NOT_YET else []
            rows.append(pytest.param(p, host, id=name, marks=marks))
    return rows


def has(text: str, words: Sequence[str]) -> bool:
    """Whether a text has all words, in any case."""
    return all(word.lower() in text.lower() for word in words)


@pytest.mark.parametrize(("program", "host"), each(MISTAKES))
def test_a_mistake_is_told_by_its_link(program: Program, host: str) -> None:
    said = run(program, host)
    links = (program.link,) if isinstance(program.link, str) else program.link
    if said.error is not None:
        assert "error" in links
        assert has(str(said.error), program.words), said.error
        return
    assert any(has(text, program.words) for text in said.texts), said.texts
    if LocalLearningWarning is None:
        return
    assert program.error is None
    (only,) = said.warnings  # the first broken link, and nothing else
    assert only.category is LocalLearningWarning
    assert only.message.key in links


@pytest.mark.parametrize(("program", "host"), each(CORRECT))
def test_a_correct_program_is_silent(program: Program, host: str) -> None:
    said: Said = run(program, host)
    assert said.texts == []
    if program.advice == ():
        assert said.lines == []
    elif program.advice:
        assert any(has(line, program.advice) for line in said.lines), said.lines


def test_names_are_told_apart() -> None:
    names = [p.name for p in (*MISTAKES, *CORRECT)]
    assert len(set(names)) == len(names)


def test_the_table_is_large_enough() -> None:
    assert len(MISTAKES) >= 45
    assert sum(not p.advice for p in CORRECT) >= 80
