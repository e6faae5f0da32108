"""What every public object has to survive, in the middle of whatever it does."""

import copy

import pytest
import torch
from contract_cases import CASES, EXEMPT, PUBLIC, why_apart
from round_trips import by_file, by_pickle
from subtests import turns
from torch import nn
from torch.testing import assert_close
from torch.utils._pytree import tree_map_only

from lightning_accum import Accumulator, CellTrainer, Updater
from lightning_accum.observe import Monitor

cases = turns("case", CASES.values())
items = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
COPIES = [
    *((steps, copy.deepcopy) for steps in (0, 1, 2)),
    *((steps, by_pickle) for steps in (0, 2)),
    (1, lambda x: by_file(x, weights_only=False)),
]


def same(found, expected):
    assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def modules(obj):
    return [obj] if isinstance(obj, nn.Module) else []


def leaves(value, path=""):
    """Everything in a nested value, by path; tensors as lists of what they hold."""
    if isinstance(value, dict):
        return {k: v for key, x in value.items() for k, v in leaves(x, f"{path}/{key}").items()}
    if isinstance(value, (list, tuple)):
        return leaves(dict(enumerate(value)), path)
    return {path: repr(value.tolist()) if isinstance(value, torch.Tensor) else repr(value)}


def state(obj):
    return leaves(obj.state_dict()) if modules(obj) else repr(obj)


def test_every_public_class_is_in_the_table():
    assert set(CASES) | EXEMPT >= PUBLIC
    assert not set(CASES) & EXEMPT


@turns("name, case", CASES.items())
def test_a_case_gives_the_same_again_and_on_another_device(name, case, device):
    if why_apart(name, device.type):
        return
    with torch.device("cpu"):
        one = case.make()
    two = case.make()
    if modules(one):
        two.load_state_dict(one.state_dict())
    tolerance = 0.0 if device.type == "cpu" else 1e-5
    for i in range(3):
        with torch.device("cpu"):
            expected = case.run(one, i)
        found = tree_map_only(torch.Tensor, torch.Tensor.cpu, case.run(two, i))
        assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@turns("steps, through", COPIES)
@items
def test_copies_go_on_as_the_original_and_apart_from_it(case, steps, through):
    original = case.make()
    for i in range(steps):
        case.run(original, i)
    twin = through(original)
    case.rebind(twin)
    before = state(original)
    found = [case.run(twin, i) for i in range(steps, steps + 2)]
    assert state(original) == before
    same([case.run(original, i) for i in range(steps, steps + 2)], found)


@cases
def test_a_running_object_keeps_its_keys_and_parameters_and_its_saved_states(case):
    for obj in modules(case.make()):
        keys, names = list(obj.state_dict()), [name for name, _ in obj.named_parameters()]
        for i in range(2):
            case.run(obj, i)
            assert list(by_file(obj.state_dict())) == keys
            if type(obj).__module__.startswith("lightning_accum"):
                assert all(isinstance(each, torch.Tensor) for each in obj.state_dict().values())
            assert list(obj.state_dict()) == keys
            assert [name for name, _ in obj.named_parameters()] == names
            if i == 0:
                ours = {k: v for k, v in obj.state_dict().items() if "_extra_state" in k}
                before = leaves(ours)
        assert leaves(ours) == before  # a snapshot
        for module in obj.modules():
            if isinstance(module, (Accumulator, Updater, Monitor, CellTrainer)):
                assert list(module.parameters()) == []


@turns("steps", [0, 1, 2])
@items
def test_a_state_loads_into_a_fresh_object_that_goes_on(case, steps):
    for original in modules(case.make()):
        for i in range(steps):
            case.run(original, i)
        fresh = case.make()
        kept = by_file(original.state_dict())
        fresh.load_state_dict(kept)
        found = [case.run(fresh, i) for i in range(steps, steps + 2)]
        same([case.run(original, i) for i in range(steps, steps + 2)], found)
        again = case.make()  # and what was loaded is not written to
        again.load_state_dict(kept)
        same([case.run(again, i) for i in range(steps, steps + 2)], found)


@turns("dtype", [torch.float64, torch.bfloat16])
@cases
def test_moves_in_the_middle(case, dtype):
    for obj in modules(case.make()):
        twin = copy.deepcopy(obj)
        case.rebind(twin)
        same(case.run(obj, 0), case.run(twin, 0))
        assert obj.to(dtype) is obj
        found, expected = case.run(obj, 1), case.run(twin, 1)
        if dtype == torch.float64:
            assert_close(found, expected, rtol=1e-5, atol=1e-5, check_dtype=False, equal_nan=True)
        elif isinstance(found, torch.Tensor):
            assert found.shape == expected.shape


@cases
def test_inference_mode_comes_and_goes(case):
    for obj in modules(case.make()):
        twin = case.make()
        twin.load_state_dict(obj.state_dict())
        for i in range(4):
            with torch.inference_mode(i % 2 == 0):
                found = case.run(obj, i)
            same(found, case.run(twin, i))


@cases
def test_has_a_readable_representation(case):
    obj = case.make()
    case.run(obj, 0)
    assert "object at 0x" not in repr(obj)
