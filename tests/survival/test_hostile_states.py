"""States that somebody else has written: refused and nothing changes, or taken, and they work.

``LIGHTNING_ACCUM_FUZZ=100000`` tries all of them.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from contract import CASES
from torch import Tensor, nn
from torchmetrics import Metric

import lightning_accum as la
from lightning_accum._state import CheckedState

EXAMPLES = int(os.environ.get("LIGHTNING_ACCUM_FUZZ", "25"))
GONE = object()

HOSTILE: list[Callable[[Any], Any]] = [
    lambda old: GONE,
    lambda old: None,
    lambda old: 0,
    lambda old: 3,
    lambda old: -1,
    lambda old: 2**70,
    lambda old: 0.5,
    lambda old: float("nan"),
    lambda old: True,
    lambda old: "bound_sharp",
    lambda old: [],
    lambda old: [torch.ones(2)],
    lambda old: {},
    lambda old: {"weight": 1},
    lambda old: (old, old),
    lambda old: torch.ones(()),
    lambda old: torch.ones(0),
    lambda old: torch.ones(7),
    lambda old: torch.ones(3, 5, 2),
    lambda old: torch.ones(2, 2, dtype=torch.complex64),
    lambda old: torch.ones(2, 2, dtype=torch.int8),
    lambda old: torch.ones(2, 2, device="meta"),
    lambda old: torch.eye(2).to_sparse(),
    lambda old: old.bool() if isinstance(old, Tensor) else {0: old},
    lambda old: old.half() if isinstance(old, Tensor) else object(),
    lambda old: old[:1] if isinstance(old, Tensor) and old.ndim else b"",
    lambda old: old.unsqueeze(0) if isinstance(old, Tensor) else [old],
]


def places(state: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to everything in a state, itself excluded."""
    keys = state.keys() if isinstance(state, dict) else range(len(state))
    for key in keys:
        yield (*at, key)
        if isinstance(state[key], (dict, list, tuple)):
            yield from places(state[key], (*at, key))


def spoilt(state: Any, at: tuple[Any, ...], how: Callable[[Any], Any]) -> Any:
    """A state with something else at a path."""
    key, *rest = at
    made: Any = state.copy() if isinstance(state, dict) else list(state)
    new = spoilt(state[key], tuple(rest), how) if rest else how(state[key])
    if new is GONE:
        del made[key]
    else:
        made[key] = new
    return tuple(made) if isinstance(state, tuple) else made


def shown(state: Any) -> Any:
    """Something that compares by value."""
    if isinstance(state, Tensor):
        return state.dtype, tuple(state.shape), state.flatten().tolist()
    if isinstance(state, dict):
        return {key: shown(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [shown(value) for value in state]
    return state


def parts_of(root: nn.Module) -> list[str]:
    """The outermost modules of this package that have a state, by name."""
    if isinstance(root, (CheckedState, Metric)):
        return [""]
    return [name for name, part in root.named_children() if isinstance(part, CheckedState)]


def part_of(root: nn.Module, name: str) -> nn.Module:
    return getattr(root, name) if name else root


def running(case: Any) -> nn.Module:
    made: nn.Module = case.make()
    for i in range(3):
        case.run(made, i)
    return made


NAMES = [n for n, c in CASES.items() if isinstance(m := c.make(), nn.Module) and parts_of(m)]


# other bounds than those here are taken, and told
@pytest.mark.filterwarnings("ignore:The bounds of .parameter. should be those:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_state_is_taken_whole_and_works_or_is_refused(name: str) -> None:
    case = CASES[name]
    root = running(case)
    for part in parts_of(root):
        state = part_of(root, part).state_dict()
        every = [(at, how) for at in places(state) for how in HOSTILE]
        for at, how in random.Random(name).sample(every, min(EXAMPLES, len(every))):
            bad = spoilt(state, at, how)
            fresh = running(case)
            loaded = part_of(fresh, part)
            before = shown(loaded.state_dict())
            found = f"{at}: {how(_value(state, at))!r:.60}"
            refused, _ = attempt(lambda: loaded.load_state_dict(copy.deepcopy(bad)), found)  # noqa: B023
            if refused:
                assert shown(loaded.state_dict()) == before, found
                continue
            for i in range(3, 5):
                attempt(lambda: case.run(fresh, i), found)  # noqa: B023
            loaded.state_dict()
            repr(loaded)


def attempt(call: Callable[[], Any], found: str) -> tuple[bool, str]:
    """Whether a call is refused in words; any other error gets through."""
    try:
        call()
    except Exception as error:
        words = str(error)
        ok = isinstance(error, (RuntimeError, TypeError, ValueError, la.NonFiniteUpdateError))
        if not ok or not ("should" in words or "Found" in words or "Error(s) in loading" in words):
            raise AssertionError(found) from error
        return True, words
    return False, ""


def _value(state: Any, at: tuple[Any, ...]) -> Any:
    for key in at:
        state = state[key]
    return state
