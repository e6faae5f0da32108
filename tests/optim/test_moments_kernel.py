"""The kernel steps RAdam and AdaBelief as plain operations do, and touches nothing else."""

from __future__ import annotations

import pytest
import torch
from optimizer_cases import CASES, give_gradients, parameters, run, same

from lightning_accum.optim import AdaBelief, RAdam, WeightDecay
from lightning_accum.sparse.build import library
from lightning_accum.sparse.kernel_moments import Places, step_moments

needs_kernel = pytest.mark.skipif(library(torch.float32) is None, reason="there is no kernel")
# Empty, a number, less and more than a piece, and enough for a second thread.
SIZES = ((0,), (), (5,), (3, 7), (4097,), (300, 1001))
FORMS = {
    "radam": lambda params, **o: RAdam(params, **o),
    "radam, no momentum": lambda params, **o: RAdam(params, degenerate_to_sgd=False, **o),
    "adabelief": lambda params, **o: AdaBelief(params, **o),
    "adabelief, amsgrad": lambda params, **o: AdaBelief(params, amsgrad=True, **o),
    "adabelief, rectified": lambda params, **o: AdaBelief(params, rectify=True, **o),
}


@needs_kernel
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_it_steps_as_lists_of_tensors_do(form, dtype, threads, monkeypatch):
    before = torch.get_num_threads()
    decay = WeightDecay(0.1, weight_decouple=form.startswith("radam"))
    try:
        torch.set_num_threads(threads)
        params, others = parameters(dtype, shapes=SIZES), parameters(dtype, shapes=SIZES)
        options = {"maximize": True, "weight_decay": decay, "lr": 0.01}
        run(FORMS[form](others, foreach=True, **options), others, 9)
        monkeypatch.setattr("lightning_accum.optim._moments.listed_step", None)
        optimizer = FORMS[form](params, **options)
        versions = [param._version for param in params]
        run(optimizer, params, 9)
        assert all(p._version > v for p, v in zip(params, versions, strict=True))
        for one, two in zip(params[1:], others[1:], strict=True):
            assert (one - two).abs().max() <= 16 * torch.finfo(dtype).eps * two.abs().max()
    finally:
        torch.set_num_threads(before)


@needs_kernel
def test_nan_stays_in_the_maximum():
    param, grad = torch.ones(2), torch.ones(2)
    mean, square = torch.zeros(2), torch.zeros(2)
    most = torch.tensor([float("nan"), 9.0])
    numbers = (1.0, 1.0, 0.0, 0.9, 0.99, 0.0, 0.1, 1.0, 1e-8)
    assert step_moments([[each] for each in (param, grad, mean, square, most)], numbers, False)
    assert most[0].isnan()
    assert param[0].isnan()
    assert most[1] == 9
    torch.testing.assert_close(param[1], torch.tensor(1 - 0.1 * 0.1 / 3))


@needs_kernel
def test_it_leaves_what_it_cannot_read():
    numbers = (1.0, 1.0, 0.0, 0.9, 0.99, 0.0, 0.1, 1.0, 1e-8)

    def whole():
        return [[torch.ones(4), torch.ones(3)] for _ in range(4)]

    assert step_moments(whole(), numbers, False)
    negative = torch.complex(torch.ones(3), torch.ones(3)).conj().imag
    assert negative.is_neg()
    for column, other in [
        (0, torch.ones(2)),
        (1, torch.ones(5)),
        (2, torch.ones(3, dtype=torch.float64)),
        (3, torch.ones(3, device="meta")),
        (1, negative),
    ]:
        given = whole()
        given[column][1] = other
        assert not step_moments(given, numbers, False)
        assert all(tensors[0].eq(1).all() for tensors in given)


@needs_kernel
def test_memory_that_is_known_is_compared_at_every_step():
    numbers = (1.0, 1.0, 0.0, 0.9, 0.99, 0.0, 0.1, 1.0, 1e-8)
    places = Places()
    columns = [[torch.ones(4), torch.ones(3)] for _ in range(4)]
    assert step_moments(columns, numbers, False, places)
    for column in range(4):  # the same tensors with new memory, or new gradients
        columns[column][0].data = torch.full((4,), 2.0)
        before = [tensors[0].clone() for tensors in columns]
        fresh = [[tensor.clone() for tensor in tensors] for tensors in columns]
        assert step_moments(columns, numbers, False, places)
        assert step_moments(fresh, numbers, False)
        assert all(map(torch.equal, columns[column], fresh[column]))
        assert not torch.equal(columns[0][0], before[0])
    for column in range(4):
        for other in (torch.ones(3), torch.ones(4, device="meta"), columns[column][1].data[:2]):
            at = int(other.numel() == 2)
            own = columns[column][at].data
            columns[column][at].data = other if other.is_cpu else own
            given = [list(tensors) for tensors in columns]
            if not other.is_cpu:
                given[column][at] = other
            before = [[tensor.clone() for tensor in tensors] for tensors in columns]
            assert not step_moments(given, numbers, False, places)
            for tensors, kept in zip(columns, before, strict=True):
                assert all(map(torch.equal, tensors, kept))
            columns[column][at].data = own
            assert step_moments(columns, numbers, False, places)


@pytest.mark.parametrize("name", ["radam", "adabelief-amsgrad"])
def test_a_shrunk_parameter_raises_and_changes_nothing(name):
    params = parameters(shapes=((7,), (5,)))
    optimizer = CASES[name](params)
    run(optimizer, params, 2)
    give_gradients(params, 2)
    params[0].data = params[0].data[:3]
    kept = [p.detach().clone() for p in params]
    with pytest.raises((RuntimeError, ValueError), match=r"size|shape"):
        optimizer.step()
    same(params, kept)
