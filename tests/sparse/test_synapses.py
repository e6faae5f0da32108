"""Products over synapses equal their plain forms, and those of matrices."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_helpers import threads

from lightning_accum.nn import SparseLinear
from lightning_accum.sparse import kernel_library, synapse_products


def side(shape, kind, share, dtype):
    there = torch.rand(shape) < share
    return there if kind == "spikes" else torch.randn(shape, dtype=dtype) * there


@settings(max_examples=60, derandomize=True)
@given(
    sizes=st.tuples(st.integers(0, 9), st.integers(1, 12), st.integers(1, 12)),
    kinds=st.tuples(*[st.sampled_from(["spikes", "values"])] * 2),
    shares=st.tuples(*[st.sampled_from([0.0, 0.1, 1.0])] * 2),
    density=st.sampled_from([0.1, 0.5, 1.0]), dtype=st.sampled_from([torch.float32, torch.float64]),
    count=st.integers(1, 3), seed=st.integers(0, 99),
)  # fmt: skip
def test_both_forms_are_products_of_matrices(sizes, kinds, shares, density, dtype, count, seed):
    torch.manual_seed(seed)
    rows, inputs, outputs = sizes
    connection = SparseLinear(inputs, outputs, density, bias=False).to(dtype)
    weight, targets = connection.weight.detach(), connection.by_output
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-12}
    pre = side((rows, inputs), kinds[0], shares[0], dtype)
    post = side((rows, outputs), kinds[1], shares[1], dtype)
    with pytest.MonkeyPatch.context() as patch, threads(count):
        patch.setattr(kernel_library, "threads_among", lambda n, _: max(1, min(n, count)))
        patch.setattr(synapse_products, "_CHUNK", 7)
        found = synapse_products.transmit(pre, weight, connection.by_input, targets)
        sums = synapse_products.sum_pairs(post, pre, targets, connection.by_input, dtype)
        plain = synapse_products.plain_sum_pairs(post.to(dtype), pre.to(dtype), connection.by_input)
        across = synapse_products.plain_sum_pairs(pre.to(dtype), post.to(dtype), targets)
    expected = pre.to(dtype) @ connection.dense().detach().T
    torch.testing.assert_close(found, expected, **near)
    again = synapse_products.plain_transmit(pre, weight, targets)
    torch.testing.assert_close(again, expected, **near)
    matrix = post.to(dtype).T @ pre.to(dtype)
    for each in (sums, plain, across):
        torch.testing.assert_close(each, matrix[connection.indices.long().unbind()], **near)
