import numpy as np
import pytest
import torch
from streams import CASES, stream
from torch.testing import assert_close

from lightning_accum.accumulators import EMA, List, Max, Mean, Min, Sum, Variance, Window
from lightning_accum.distributed.world import from_bytes, to_bytes

ELEMENTWISE = [name for name in CASES if name not in ("List", "Except")]
NAN_WHEN_EMPTY = [name for name in ELEMENTWISE if name != "Sum"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in CASES if name != "List"])
def test_half_precision_is_streamed_in_float32(name, dtype):
    make, reference = CASES[name]
    values = [value.to(dtype) for value in stream(30, (2,))]
    accumulator = make()
    for value in values:
        accumulator.update(value)
    found = accumulator.compute()
    assert found.dtype == torch.float32
    expected = reference(torch.stack(values).double())
    assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


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


@pytest.mark.parametrize("make", [Sum, Max, Min])
def test_integers_stay_exact(make):
    accumulator = make()
    for value in (2**40 + 1, torch.tensor([True])[0], torch.tensor(3, dtype=torch.int8)):
        accumulator.update(value)
    expected = {Sum: 2**40 + 5, Max: 2**40 + 1, Min: 1}[make]
    assert accumulator.compute().dtype == torch.int64
    assert accumulator.compute() == expected


@pytest.mark.parametrize("make", [Mean, Variance, EMA, lambda: Window(2)])
def test_integers_are_averaged_in_double_precision(make):
    accumulator = make()
    for value in (True, 2, torch.tensor(4)):
        accumulator.update(value)
    assert accumulator.compute().dtype == torch.float64


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_python_numbers_arrays_and_tensors_are_the_same_values(name):
    first, second = CASES[name].make(), CASES[name].make()
    for value in (1.5, np.float32(2.5), np.array(0.5, dtype=np.float32), 3):
        first.update(value)
        second.update(torch.tensor(float(value), dtype=torch.float64))
    assert_close(first.compute(), second.compute(), rtol=0, atol=0)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_the_widest_dtype_of_a_stream_is_kept(name):
    accumulator = CASES[name].make()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int32):
        accumulator.update(torch.ones(2, dtype=dtype))
    assert accumulator.compute().dtype == torch.float64


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
