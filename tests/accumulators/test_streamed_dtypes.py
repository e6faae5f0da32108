import functools
import random

import numpy as np
import pytest
import torch
from streams import CASES
from torch.testing import assert_close
from turns import turns

from lightning_accum.accumulators import List, Mean, Sum
from lightning_accum.distributed.world import from_bytes, to_bytes

ELEMENTWISE = [name for name in CASES if name not in ("List", "Except")]
NAN_WHEN_EMPTY = [name for name in ELEMENTWISE if name != "Sum"]


def cast(dtype):
    return lambda number: torch.tensor(number).to(dtype)


SMALL, EXACT = [-1.5, 0.375, 4.0], [0.1, 1 / 3, 16777217.0, -7.25]
KINDS = {  # how numbers are given, which, and the dtype in which they are streamed
    int: ([3, -1, 2**24 + 1, 1_700_000_001, 1_700_000_003, 2**40 + 1], torch.int64),
    bool: ([True, False], torch.int64),
    cast(torch.int8): ([3, -1], torch.int64),
    float: (EXACT, torch.float64),
    np.float32: (EXACT, torch.float32),
    lambda number: np.array(number, dtype=np.float32): (EXACT, torch.float32),
    cast(torch.float16): (SMALL, torch.float32),
    cast(torch.bfloat16): (SMALL, torch.float32),
    cast(torch.float32): (EXACT, torch.float32),
    cast(torch.float64): (EXACT, torch.float64),
    complex: ([0.1 + 2j, 16777217.0 + 0.1j], torch.complex128),
    cast(torch.complex64): ([0.1 + 2j, -1j], torch.complex64),
}
NEAR = {torch.float64: 1e-12, torch.float32: 1e-6, torch.int64: 0.0}


@pytest.mark.filterwarnings("ignore:`Variance.*should have more than:UserWarning")
@turns("seed", range(60))
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_no_value_is_rounded_and_the_widest_dtype_is_kept(name, seed):
    draw, accumulator = random.Random(seed), CASES[name].make()
    kinds = draw.choices(list(KINDS)[: -2 if seed % 2 or name in ("Max", "Min") else None], k=4)
    kinds, values = kinds[: draw.choice([1, 2, 4])], []
    for kind in kinds:
        given = kind(draw.choice(KINDS[kind][0]))
        accumulator.update(given)
        values.append(torch.tensor(complex(given), dtype=torch.complex128))
    print(kinds, values)  # which a failure shows
    dtypes = [KINDS[kind][1] for kind in kinds[-3 if name == "Window" else 0 :]]
    if name not in ("Sum", "Max", "Min"):
        dtypes = [torch.float64 if dtype == torch.int64 else dtype for dtype in dtypes]
    dtype = functools.reduce(torch.promote_types, dtypes)
    exact = torch.stack(values) if dtype.is_complex else torch.stack(values).real
    expected = CASES[name].reference(exact)
    dtype = dtype.to_real() if name.startswith("Variance") else dtype
    found, near = accumulator.compute(), NEAR[dtype.to_real()]
    assert found.dtype == dtype
    assert_close(found, expected.to(dtype), rtol=near, atol=near, equal_nan=True)


@pytest.mark.parametrize("given_as", [int, float, torch.tensor, lambda x: torch.tensor(float(x))])
def test_a_small_weight_is_not_lost_beside_a_large_one(given_as):
    mean = Mean()
    mean.update(torch.tensor(0.0), weight=given_as(2**24))
    for _ in range(4):
        mean.update(torch.tensor(0.0), weight=given_as(1))
    # In float32 the last four would not have been counted.
    assert mean.weight == 2**24 + 4


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_comes_out(value):
    values = torch.tensor([1.0, value, 2.0], dtype=torch.float64)
    for name in ("Sum", "Mean", "Max", "Min"):
        accumulator = CASES[name].make()
        for item in values:
            accumulator.update(item)
        assert_close(accumulator.compute(), CASES[name].reference(values), equal_nan=True)


def test_a_sum_may_overflow():
    total = Sum()
    for _ in range(3):
        total.update(torch.tensor([3e38, 1.0]))
    assert total.compute().tolist() == [torch.inf, 3.0]


@pytest.mark.parametrize("name", NAN_WHEN_EMPTY)
def test_of_nothing_the_result_is_nan_with_one_warning(name):
    accumulator = CASES[name].make()
    for _ in range(2):
        with pytest.warns(UserWarning, match="before any value was added") as caught:
            results = [accumulator.compute(), accumulator.compute()]
        assert len(caught) == 1
        assert torch.stack(results).isnan().all()
        accumulator.update(1.0)
        accumulator.reset()


def test_list_copies_tensors_within_containers():
    values, buffer = List(), torch.ones(2, requires_grad=True)
    values.update({"a": (buffer, 1), "b": [buffer * 2]})
    with torch.no_grad():
        buffer.zero_()
    kept = values.compute()[0]
    assert kept["a"][0].tolist() == [1.0, 1.0]
    assert kept["b"][0].grad_fn is None


@pytest.mark.parametrize("name", [name for name in CASES if name != "List"])
def test_update_reads_nothing_on_the_host(name):
    accumulator = CASES[name].make().to("meta")
    for _ in range(4):
        accumulator.update(torch.ones(2, device="meta"))
    assert accumulator.compute().shape == (2,)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(1.5),
        torch.arange(6.0)[::2],
        torch.arange(6).reshape(2, 3).T,
        torch.tensor([True, False]),
        torch.ones(2, dtype=torch.bfloat16),
        torch.tensor([1 + 2j, 3j]).conj(),
        torch.empty(0, 3),
        torch.ones(2, requires_grad=True),
        torch.tensor([torch.nan, -0.0, torch.inf]),
    ],
)
def test_a_tensor_travels_as_it_is(tensor):
    for sent in (tensor, {"within": [tensor, "text"]}):
        found = from_bytes(to_bytes(sent))
        found = found if isinstance(sent, torch.Tensor) else found["within"][0]
        assert_close(found, tensor.detach(), rtol=0, atol=0, equal_nan=True)
        assert not found.requires_grad
        found.zero_()  # It may be written to.
