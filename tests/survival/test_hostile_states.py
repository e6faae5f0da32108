"""States that somebody else has written: refused and nothing changes, or taken, and they work."""

import copy
import functools
import math
import os
import random
import re

import accumulator_cases
import contract_cases
import optimizer_cases
import pytest
import torch
from contract_cases import Case, learn, learner
from round_trips import differences
from torch import Tensor, nn
from torchmetrics import Metric

import lightning_accum as la
from lightning_accum._checked_state import CheckedState

# A hundred thousand are all of them.
EXAMPLES = int(os.environ.get("LIGHTNING_ACCUM_FUZZ", "25"))
GONE = object()
MORE = object()


def filled(value):
    """What replaces the numbers of a tensor by one, as far as its dtype has it; or a number."""

    def fill(old):
        if isinstance(old, Tensor) and (old.dtype.is_floating_point or value == -1):
            return torch.full_like(old, value, dtype=old.dtype)
        return value

    return fill


def first_nan(old):
    if not isinstance(old, Tensor) or not old.is_floating_point() or not old.numel():
        return math.nan
    new = old.clone()
    new.view(-1)[0] = math.nan
    return new


def cast(dtype):
    return lambda old: old.to(dtype) if isinstance(old, Tensor) else torch.ones(2, dtype=dtype)


THINGS = [
    *(None, 0, 3, 2**70, 0.5, True, "sharp", [], [torch.ones(2)], {}, {"weight": 1}),
    {"values": [torch.ones(2), "text", torch.ones(3)], "position": -1},
    {"position": 10**9, "values": [1, 2]},
]
HOSTILE = [
    lambda old: GONE, lambda old: MORE,
    *(filled(value) for value in (math.nan, math.inf, -math.inf, -1, 1e30)), first_nan,
    *(lambda old, of=of: copy.deepcopy(of) for of in THINGS), lambda old: {0: old},
    lambda old: (old, old), lambda old: [old], lambda old: object(),
    *(lambda old, of=of: torch.ones(of) for of in ((), (0,), (7,), (3, 5, 2))),
    lambda old: torch.ones(2, 2, device="meta"), lambda old: torch.eye(2).to_sparse(),
    *(cast(d) for d in (torch.bool, torch.int8, torch.half, torch.complex64, torch.float8_e5m2)),
    lambda old: old[:1] if isinstance(old, Tensor) and old.ndim else b"",
    lambda old: old[..., :0] if isinstance(old, Tensor) and old.ndim else 1e300,
    lambda old: old.unsqueeze(0) if isinstance(old, Tensor) else [old],
]  # fmt: skip


def places(state, at=()):
    """The paths to everything in a state, itself excluded."""
    keys = state.keys() if isinstance(state, dict) else range(len(state))
    for key in keys:
        yield (*at, key)
        if isinstance(state[key], (dict, list, tuple)):
            yield from places(state[key], (*at, key))


def spoilt(state, at, how):
    """A state with something else at a path, without it, or with more beside it."""
    key, *rest = at
    made = state.copy() if isinstance(state, dict) else list(state)
    new = spoilt(state[key], tuple(rest), how) if rest else how(state[key])
    if new is GONE:
        del made[key]
    elif new is MORE:
        made.update({f"{key}s": state[key]}) if isinstance(made, dict) else made.append(state[key])
    else:
        made[key] = new
    return tuple(made) if isinstance(state, tuple) else made


# ---------------------------------------------------------------------- what has a state
class Optimizer:
    def __init__(self, make):
        self.params = optimizer_cases.parameters(shapes=((2, 2), (3,)))
        self.optimizer = make(self.params)

    def run(self, i):
        optimizer_cases.run(self.optimizer, self.params, 1, i)


def parts_of(root):
    """The outermost objects of this package that have a state."""
    if isinstance(root, (Optimizer, contract_cases.Optimized)):
        return [root.optimizer]
    if isinstance(root, (CheckedState, Metric)):
        return [root]
    if not isinstance(root, nn.Module):
        return []
    return [part for _, part in root.named_children() if isinstance(part, CheckedState)]


def cases():
    yield from contract_cases.CASES.items()
    carried = functools.partial(learn, carry=True)
    for name, case in contract_cases.CASES.items():
        if case.run is learn and isinstance(case.make().trainer, la.RuleTrainer):
            yield f"{name}, carried", case._replace(run=carried)
    own = la.RuleTrainer(la.KernelSTDP(lambda delta: 0.1 * delta.cos()))
    yield "KernelSTDP, own kernel, carried", Case(lambda: learner(copy.deepcopy(own)), carried)
    for name in optimizer_cases.OWN:
        make = functools.partial(Optimizer, optimizer_cases.CASES[name])
        yield f"optimizer {name}", Case(make, Optimizer.run)
    for name, stream in accumulator_cases.CASES.items():
        yield f"stream {name}", Case(stream.make, add)


def add(stream, i):
    stream.update(contract_cases.rand(i, 2))
    stream.compute()


CASES = {name: case for name, case in cases() if parts_of(case.make())}
CASES.pop("CustomAccumulator")  # whose `forward` is one's own


def running(case):
    made = case.make()
    for i in range(3):
        case.run(made, i)
    return made


# What is taken, and told: other bounds than those here, a huge weight decay, too few values.
@pytest.mark.filterwarnings("ignore:The bounds of .parameter. should be those:UserWarning")
@pytest.mark.filterwarnings("ignore:The weight decay of:UserWarning")
@pytest.mark.filterwarnings("ignore:.Variance.* should have more than:UserWarning")
@pytest.mark.filterwarnings("ignore:The weights of a .Mean. should sum to more:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_state_is_taken_whole_and_works_or_is_refused(name):
    case = CASES[name]
    for part, found in enumerate(parts_of(running(case))):
        state = found.state_dict()
        every = [(at, how) for at in places(state) for how in HOSTILE]
        examples = 3 * EXAMPLES if isinstance(found, Metric) else EXAMPLES  # which are cheap
        for at, how in random.Random(name).sample(every, min(examples, len(every))):
            check(case, part, spoilt(state, at, how), f"{at}: {how(value_at(state, at))!r:.60}")


def check(case, part, bad, what):
    """Loads a state into a running object, and goes on."""
    fresh = running(case)
    loaded = parts_of(fresh)[part]
    before = copy.deepcopy(loaded.state_dict())
    try:
        loaded.load_state_dict(copy.deepcopy(bad))
    except Exception as error:
        kinds = (RuntimeError, TypeError, ValueError, KeyError)
        said = any(word in str(error) for word in ("should", "Found", "Error(s) in loading"))
        if type(error) not in kinds or not said:
            raise AssertionError(f"{what}: is refused by a raw error") from error
        assert not differences(before, loaded.state_dict()), what
        return
    try:
        for i in range(3, 5):
            case.run(fresh, i)
    except Exception as error:
        if not TOLD.search(str(error)):
            raise AssertionError(f"{what}: was taken, and does not work") from error
    loaded.state_dict()
    repr(loaded)
    if isinstance(loaded, Metric):
        loaded.reset()
        other = case.make()
        for metric in (loaded, other):
            case.run(metric, 0)
        assert not differences(loaded.state_dict(), other.state_dict()), what


# What only the next values can tell: a window, a history, a sum or a pending change may be of any
# shape and hold NaN, in a run too, and the next values have to go with it.
TOLD = re.compile(
    "should keep (its|their) shape|, as before. Found|as often as (each other|the neuron)|"
    "Nothing was applied|should be real. Found|pending contributions' shape|"
    "should be a tensor of floating-point numbers. Found"
)


def value_at(state, at):
    for key in at:
        state = state[key]
    return state


@pytest.mark.parametrize("name", ["torch", "__builtins__", "", "power.__globals__"])
def test_a_state_names_bounds_of_this_package_alone(name):
    accumulator = la.Accumulator()
    accumulator.fullbound("power", 1.0, 0.0)
    state = accumulator.get_extra_state()
    state["bounds"]["full"]["name"] = name
    fresh = la.Accumulator()
    with pytest.raises(RuntimeError, match="should hold a bound of this package"):
        fresh.set_extra_state(state)
    assert not fresh.pending.bounds
