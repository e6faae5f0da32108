"""The kernel steps as plain operations do, and touches nothing else."""

import pytest
import torch
from kernel_helpers import needs_kernel, threads
from optimizer_cases import CASES, give_gradients, parameters, run
from subtests import turns

from lightning_accum.optim import Noam, WeightDecay
from lightning_accum.optim._kernels import StepGroup
from lightning_accum.sparse import moment_steps
from lightning_accum.sparse.kernel_library import library
from lightning_accum.sparse.moment_steps import Places, step_moments

# Empty, a number, less and more than a piece, and enough for a second thread.
SIZES = ((0,), (), (5,), (3, 7), (4097,), (300, 1001))
FORMS = ["radam", "radam-still", "adabelief", "adabelief-amsgrad", "adabelief-rectified"]


# How elements are shared out to threads does not depend on the form.
@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("form", "count"), [*((form, 1) for form in FORMS), ("adabelief-amsgrad", 2)]
)
def test_it_steps_as_lists_of_tensors_do(form, dtype, count, monkeypatch):
    decay = WeightDecay(0.1, weight_decouple=form.startswith("radam"))
    with threads(count):
        params, others = parameters(dtype, shapes=SIZES), parameters(dtype, shapes=SIZES)
        options = {"maximize": True, "weight_decay": decay, "lr": 0.01}
        run(CASES[form](others, foreach=True, **options), others, 9)
        monkeypatch.setattr(StepGroup, "step_by_torch", None)
        optimizer = CASES[form](params, **options)
        versions = [param._version for param in params]
        run(optimizer, params, 9)
        assert all(p._version > v for p, v in zip(params, versions, strict=True))
        for one, two in zip(params[1:], others[1:], strict=True):
            assert (one - two).abs().max() <= 16 * torch.finfo(dtype).eps * two.abs().max()


NUMBERS = (1.0, 1.0, 0.0, 0.9, 0.99, 0.0, 0.1, 1.0, 1e-8)


def placed(columns):
    """The places of parameters, gradients and moments, and whether they were found."""
    params, grads, *moments = columns
    places = Places(params, moments)
    return places, places.find(grads)


@needs_kernel
def test_nan_stays_in_the_maximum():
    param, grad = torch.ones(2), torch.ones(2)
    mean, square = torch.zeros(2), torch.zeros(2)
    most = torch.tensor([float("nan"), 9.0])
    places, found = placed([[each] for each in (param, grad, mean, square, most)])
    assert found
    assert step_moments(torch.float32, places, NUMBERS, False)
    assert most[0].isnan()
    assert param[0].isnan()
    assert most[1] == 9
    torch.testing.assert_close(param[1], torch.tensor(1 - 0.1 * 0.1 / 3))


WAYS = ["compiled", "plain"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Both ways to find memory: in C, where torch and the kernel allow it, and in Python."""
    if request.param == "plain":
        monkeypatch.setattr(moment_steps, "_export", lambda: None)
    elif moment_steps._export() is None or library(torch.float32) is None:
        pytest.skip("memory is not found in C")


def other_memory(size):
    """Memory that is not a line of ``size`` floats, by name."""
    whole = torch.complex(torch.ones(size), torch.ones(size))
    return {
        "smaller": torch.ones(size - 1), "larger": torch.ones(size + 1),
        "of another dtype": torch.ones(size, dtype=torch.float64),
        "of as many bytes": torch.ones(size, dtype=torch.int32),
        "expanded": torch.ones(1).expand(size), "a slice": torch.ones(size, 2)[:, 1],
        "with another axis": torch.ones(1, size)[0].unsqueeze(0),
        "elsewhere": torch.ones(size, device="meta"), "sparse": torch.ones(size).to_sparse(),
        "negative": whole.conj().imag.clone(memory_format=torch.preserve_format)._neg_view(),
        "of a subclass": torch.ones(size).as_subclass(type("Own", (torch.Tensor,), {})),
    }  # fmt: skip


@turns("other", list(other_memory(3)))
@turns("column", range(4))
def test_what_is_no_line_of_memory_is_not_found(column, other, way):
    whole = [[torch.ones(4), torch.ones(3)] for _ in range(4)]
    places, found = placed(whole)
    assert found
    assert list(places.bytes) == [16, 12]
    assert places.elements == 7
    assert [list(starts) for starts in places.starts] == [
        [tensor.data_ptr() for tensor in tensors] for tensors in whole
    ]
    if other == "negative" and column != 1:
        return  # only gradients are the user's own tensors
    whole[column][1] = other_memory(3)[other]
    assert not placed(whole)[1]


@turns("other", ["smaller", "larger", "of another dtype", "expanded", "a slice"])
@turns("column", range(4))
def test_memory_that_was_replaced_is_looked_at_anew(column, other, way):
    columns = [[torch.ones(4), torch.ones(3)] for _ in range(4)]
    places, _ = placed(columns)
    changed = columns[column][1]
    own = changed.data
    changed.data = other_memory(3)[other]
    assert not places.find(columns[1])
    changed.data = own
    assert places.find(columns[1])
    changed.data = torch.full((3,), 2.0)
    assert places.find(columns[1])
    assert places.starts[column][1] == changed.data_ptr()
    changed.untyped_storage().resize_(4096)
    assert places.find(columns[1])
    assert places.starts[column][1] == changed.data_ptr()
    changed.resize_(2)
    assert not places.find(columns[1])


def test_other_gradients_and_axes_that_change_in_place_are_seen(way):
    columns = [[torch.ones(3, 3), torch.ones(4)] for _ in range(4)]
    places, _ = placed(columns)
    for tensors in columns:
        tensors[0].t_()
        assert not places.find(columns[1])
        tensors[0].t_()
        assert places.find(columns[1])
    for tensors in columns:
        tensors[0].t_()
    assert places.find(columns[1])
    assert not places.find(columns[1][:1])
    grads = [torch.ones(3, 3).t(), torch.ones(4)]
    assert places.find(grads)
    assert list(places.starts[1]) == [grad.data_ptr() for grad in grads]


@turns(
    "shape, axes",
    [((2, 3, 4, 5), (0, 3, 1, 2)), ((2, 1, 3), (1, 2, 0)), ((0, 3), (1, 0)), ((), ())],
)
def test_dense_tensors_may_have_their_axes_in_any_order(shape, axes, way):
    columns = [[torch.ones(shape).permute(axes)] for _ in range(4)]
    assert placed(columns)[1]
    if columns[0][0].numel() > 1:
        columns[0][0] = columns[0][0].contiguous()
        alike = columns[0][0].stride() == columns[1][0].stride()
        assert placed(columns)[1] == alike
        overlapping = [[torch.ones(64).as_strided((2, 3), (1, 1))] for _ in range(4)]
        assert not placed(overlapping)[1]


def test_a_rate_that_replaces_memory_is_not_stepped_over(way):
    class Shrinking(Noam):
        def rate(self, group, step):
            for param in group["params"]:
                param.data = torch.ones(1).expand(param.shape)
            return super().rate(group, step)

    params = parameters(torch.float32, shapes=((5,), (3,)))
    optimizer = Shrinking(params, warmup=10)
    give_gradients(params, 0)
    optimizer.param_groups[0]["fused"] = False
    with pytest.raises(RuntimeError, match="single memory location"):
        optimizer.step()
