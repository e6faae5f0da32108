import pytest
import torch
from subtests import turns

from lightning_accum._checked_state import COUNT, CheckedState, check_state
from lightning_accum.nn import LIF


class Counter(CheckedState):
    """Has one number as its state."""

    def __init__(self, count=0):
        super().__init__()
        self.count = count

    def get_extra_state(self):
        return {"count": self.count}

    def check_extra_state(self, state):
        check_state("a counter", state, {"count": COUNT})

    def set_extra_state(self, state):
        self.check_extra_state(state)
        self.count = state["count"]


class Two(CheckedState):
    def __init__(self, *counts):
        super().__init__()
        self.one, self.two = Counter(counts[0]), Counter(counts[1])
        self.weight = torch.nn.Parameter(torch.full((2,), float(counts[0])))


@turns("key, bad", [
    ("two._extra_state", {"count": -1}), ("two._extra_state", {"number": 1}),
    ("two._extra_state", 3), ("weight", torch.ones(3)), ("weight", "w"),
    ("three._extra_state", {"count": 1}), ("two._extra_state", None),
])  # fmt: skip
def test_all_modules_of_a_tree_take_their_state_or_none(key, bad):
    state, module = Two(1, 2).state_dict(), Two(3, 4)
    if bad is None:
        del state[key]
    else:
        state[key] = bad
    with pytest.raises(RuntimeError, match=r"The state of .* should h"):
        module.load_state_dict(state)
    assert (module.one.count, module.two.count, *module.weight.tolist()) == (3, 4, 3.0, 3.0)
    module.load_state_dict(Two(1, 2).state_dict())
    assert (module.one.count, module.two.count, *module.weight.tolist()) == (1, 2, 1.0, 1.0)


def test_a_part_of_a_state_is_taken_where_that_is_asked_for():
    module = Two(3, 4)
    module.load_state_dict({"one._extra_state": {"count": 1}, "other": 5}, strict=False)
    assert (module.one.count, module.two.count) == (1, 4)
    with pytest.raises(TypeError, match="Argument `state_dict` should be a mapping"):
        module.load_state_dict([1])


def test_a_model_of_another_size_is_told_of_all_that_does_not_fit():
    def model(size):
        return torch.nn.ModuleDict({"fc": torch.nn.Linear(3, size), "lif": LIF(size)})

    large, small = model(5), model(4)
    large["lif"](torch.ones(2, 5))
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading") as told:
        small.load_state_dict(large.state_dict())
    lines = str(told.value).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == [
        "size mismatch for fc.weight", "size mismatch for fc.bias", "`lif`",
    ]  # fmt: skip
    assert "The state of `LIF` should hold floating-point numbers of shape [B, 4]" in lines[-1]
    assert small["lif"].voltage is None
