"""Each entry of a state dict is a tensor, which people average, send and save by itself."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from round_trips import differences
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

import lightning_accum as la
from lightning_accum._extra_state import EXTRA, pack, unpack
from lightning_accum.nn import LIF

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES += [torch.complex64, torch.complex128]


def tensor(dtype, shape, seed):
    """Returns any bits, as values of a type."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(shape, dtype=wide, generator=generator).to(dtype)
    low, high = (0, 2) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return torch.randint(low, high, shape, generator=generator).to(dtype)


TENSORS = st.builds(
    tensor,
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 9),
)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
LEAVES = (
    st.none()
    | st.booleans()
    | INTEGERS
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | TENSORS
)
STATES = st.recursive(
    LEAVES,
    lambda each: (
        st.lists(each, max_size=3)
        | st.lists(each, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5), each, max_size=3)
    ),
    max_leaves=8,
)


@given(STATES)
def test_a_state_returns_with_every_bit(state):
    vector = pack(state)
    assert isinstance(vector, torch.Tensor)
    assert vector.dtype == torch.float64
    found = unpack(vector, "it")
    assert differences(found, state) == []


@pytest.mark.parametrize(
    "state", [{"a": 2**63}, {1: 2.0}, [object()], {"a": torch.empty(1).to_sparse()}]
)
def test_other_objects_stay_what_they_are(state):
    assert unpack(pack(state), "it") is state


def test_the_mean_of_states_is_the_state_of_the_means():
    def state(k):
        return {
            "v": torch.arange(3.0) + k, "n": 2**40 + k, "spikes": torch.tensor([True, False]),
            "x": [0.5 * k, None, "sum"], "i": torch.tensor([-k, 2**61 + k]),
        }  # fmt: skip

    mean = unpack(sum(pack(state(k)) for k in (0, 1, 2)) / 3, "it")
    assert differences(mean, state(1)) == []
    backwards = dict(reversed(state(1).items()))
    assert torch.equal(pack(backwards), pack(state(1)))  # in whatever order a mapping was filled


VECTOR = pack({"v": torch.ones(3), "n": 5})


@pytest.mark.parametrize(
    "wrong",
    [
        VECTOR[:-1], torch.cat((VECTOR, VECTOR[:1])), VECTOR * 1.1, -VECTOR, VECTOR[1:],
        torch.empty(0), torch.tensor(3.0), torch.zeros(3, 3), torch.full((5,), math.nan),
        torch.full((5,), math.inf), VECTOR.to(torch.complex64), VECTOR.to("meta"),
        pack({"n": 5}).index_fill(0, torch.tensor(-2), 1e300), pack([[]] * 3)[:-1],
    ],
)  # fmt: skip
def test_what_is_not_such_a_vector_is_refused(wrong):
    with pytest.raises(RuntimeError, match=r"The state of `it` should be a vector as it was"):
        unpack(wrong, "`it`")
    lif = LIF(3)
    with pytest.raises(RuntimeError, match=r"`LIF` should be a vector as it was saved.*Found"):
        lif.load_state_dict({EXTRA: wrong})
    assert lif.voltage is None


def test_people_average_the_states_of_models_entry_by_entry():
    def model(k):
        layer = la.Serial(nn.Linear(4, 3, bias=False), LIF(3)).double()
        nn.init.constant_(layer.connection.weight, 0.05 * k)
        updater = la.attach_updater(layer.connection, "weight")
        layer(torch.ones(2, 4, dtype=torch.float64))
        updater.weight = torch.full((3, 4), 1.0 * k, dtype=torch.float64)
        return nn.ModuleList([layer, updater])

    states = [model(k).state_dict() for k in (1, 2, 3)]
    mean = {key: torch.stack([each[key] for each in states]).mean(0) for key in states[0]}
    found, same = model(0), model(2)
    found.load_state_dict(mean)
    for each in (found, same):
        each[1]()
    for key, value in same.state_dict().items():
        torch.testing.assert_close(found.state_dict()[key], value)


def test_torch_saves_such_states_by_key():
    layer = la.Serial(nn.Linear(4, 3, bias=False), LIF(3))
    layer(torch.ones(2, 4))
    fresh = copy.deepcopy(layer)
    fresh.neuron.reset()
    set_model_state_dict(fresh, get_model_state_dict(layer))
    assert torch.equal(fresh.neuron.voltage, layer.neuron.voltage)
