"""Every rule on every kind of connection, however reduced and cut, against a loop in float64."""

from functools import partial

import pytest
import torch
from clamped_layers import Fed, raster
from connections import KINDS
from forced_summation import FORMS, evaluated_in
from hypothesis import example, given, settings
from hypothesis import strategies as st
from references import PAIR, RULES, VARIANTS, reference
from subtests import turns
from torch import nn

import lightning_accum as la
from lightning_accum import Cell
from lightning_accum.engine import product_sums
from lightning_accum.engine import window_changes as accumulate
from lightning_accum.nn import Rewire, SparseLinear

exact = {"rtol": 1e-10, "atol": 1e-10}


def middle(stacked, dim):
    return stacked.median(dim).values


REDUCTIONS = {"mean": torch.mean, "sum": torch.sum, "amax": torch.amax, middle: middle}


@pytest.mark.parametrize("name", [*RULES, *VARIANTS])
@settings(max_examples=20, derandomize=True)
@example(  # where both sides of a term have traces, which the kernel sums
    calls=2, length=3, batch=2, densities=(0.5, 0.5), time_dim=0, carry=True, reduce="mean",
    merge="sum", mode="cumulative", form="pre", by="kernel", elements=10 << 20, parts=True,
    rewarded="step", seed=0,
)  # fmt: skip
@given(
    calls=st.integers(1, 3), length=st.integers(1, 3), batch=st.integers(1, 3),
    densities=st.tuples(*[st.sampled_from([0.5, 0.5, 0.0, 0.1, 1.0])] * 2),
    time_dim=st.sampled_from([None, 0]), carry=st.booleans(), reduce=st.sampled_from([*REDUCTIONS]),
    merge=st.sampled_from(["sum", "mean", "amax"]), mode=st.sampled_from(["cumulative", "nearest"]),
    form=st.sampled_from(FORMS), by=st.sampled_from(["kernel", "torch", "torch, at last"]),
    elements=st.sampled_from([10 << 20, 60, 1]), parts=st.booleans(),
    rewarded=st.sampled_from(["number", "sample", "step"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_against_a_loop(
    name, calls, length, batch, densities, time_dim, carry, reduce, merge, mode, form, by,
    elements, parts, rewarded, seed,
):  # fmt: skip
    case, steps = {**RULES, **VARIANTS}[name], calls * length
    mode = mode if mode in case.modes else case.modes[0]
    parts |= merge != "sum"
    for kind in ["linear", *[*KINDS][1 + seed % 6 :: 6][: 0 if name == "mixed" else None]]:
        make, shape, params = KINDS[kind]
        torch.manual_seed(seed)
        module = make().double()
        out = module(torch.zeros(batch, *shape).double()).shape[1:]
        pre, post = (
            raster(steps, batch, *dims, density=density, seed=seed + at)
            for at, (dims, density) in enumerate(zip((shape, out), densities, strict=True))
        )
        if not case.spikes:
            pre, post = (torch.randn(a.shape).double() for a in (pre, post))
        rewards = torch.randn(calls, length, batch).double().round()  # and some are zero
        every = {"number": rewards[:, :1, :1], "sample": rewards[:, :1], "step": rewards}
        rewards = every[rewarded].expand(calls, length, batch).flatten(0, 1)
        options = {"trace_mode": mode} if len(case.modes) > 1 else {}
        with evaluated_in(form, by) as backend, pytest.MonkeyPatch.context() as patch:
            patch.setattr(accumulate, "_PIECE_ELEMENTS", elements)
            patch.setattr(product_sums, "_BLOCK_ELEMENTS", elements)
            rule = case.make(
                params=params, batch_reduction=reduce, backend=backend, carry=carry,
                time_dim=time_dim, **options,
            )  # fmt: skip
            unit = rule.register_cell("cell", Cell(module, Fed()))
            updater = unit.cell.updater
            for param in params:
                getattr(updater, param).reduction(merge)
                getattr(updater, param).keep_parts = parts
            for x, y, r in zip(*(a.chunk(calls) for a in (pre, post, rewards)), strict=True):
                for xs, ys in [(x, y)] if time_dim == 0 else zip(x, y, strict=True):
                    unit.monitors["pre"](xs), unit.monitors["post"](ys)
                reward = {"number": float(r[0, 0]), "sample": r[0], "step": r}[rewarded]
                rule(**({"reward": reward} if case.rewarded else {}))
        rule.eval()
        for param in params:
            pending, fixed = getattr(updater, param), getattr(module, param)
            rests = steps if carry else length
            expected = []
            for part in reference(case, module, param, pre, post, mode, rewards, rests):
                # the reduction is of a call's change of a sample; calls' contributions are merged
                each = [REDUCTIONS[reduce](call.sum(0), 0) for call in part.chunk(calls)]
                expected.append(getattr(torch, merge)(torch.stack(each), 0))
            if pending.pending.combined:
                found, expected = [pending.update(fixed)], [expected[0] - expected[1]]
            else:
                found = [pending.pos, pending.neg]
            for one, other in zip(found, expected, strict=True):
                if one is None:
                    assert not other.any(), kind
                else:
                    text = f"{kind}: {param}"
                    torch.testing.assert_close(one, other, **exact, msg=text)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@turns("kind", [nn.Linear, partial(SparseLinear, density=0.5)])
@pytest.mark.parametrize("name", RULES)
def test_layers_without_inputs_or_neurons(name, kind):
    case, sizes = RULES[name], [(0, 3), (4, 0), (0, 0)]
    ways = [
        ("mean", None, "weight"), (torch.amax, None, "bias"),
        ("mean", 0, "bias"), (torch.amax, 0, "weight"),
    ]  # fmt: skip
    for inputs, outputs in sizes[:1] if name == "WTAHebb" else sizes:  # or nobody could win
        for reduction, time_dim, param in ways:
            fc, neuron = kind(inputs, outputs), nn.Identity()
            rule = case.make(time_dim=time_dim, params=param, batch_reduction=reduction)
            rule.register_cell("enc", Cell(fc, neuron))
            time = () if time_dim is None else (5,)
            for _ in range(3):
                fc(torch.ones(*time, 2, inputs)), neuron(torch.ones(*time, 2, outputs))
            rule(**({"reward": torch.ones(2)} if case.rewarded else {}))
            rule.update()
            assert getattr(fc, param).isfinite().all()
            if isinstance(fc, SparseLinear):
                Rewire(0.5)(fc)
                fc.load_state_dict(fc.state_dict())
                assert fc.dense().shape == (outputs, inputs)


@turns("time_dim", [None, 0])
@turns("backend", ["auto", "plain"])
@turns("reduction", ["mean", "amax"])
def test_updates_of_synapses_are_those_of_a_masked_dense_layer(time_dim, backend, reduction):
    pre, post = raster(7, 3, 9, density=0.15, seed=1), raster(7, 3, 5, density=0.4, seed=2)
    mask, found = raster(5, 9, density=0.4, seed=7).bool(), []
    torch.manual_seed(2)
    dense, sparse = nn.Linear(9, 5).double(), SparseLinear(9, 5, indices=mask.nonzero().T).double()
    dense.weight.data.abs_().add_(0.2).mul_(mask)
    sparse.weight.data.copy_(dense.weight.T[mask.T])
    start = dense.weight.detach().clone()
    for fc in (dense, sparse):
        rule = la.RuleTrainer(
            la.STDP(**PAIR), time_dim=time_dim, backend=backend, batch_reduction=reduction
        )
        unit = rule.register_cell("cell", Cell(fc, nn.Identity()))
        updater = unit.cell.updater
        if fc is dense:
            updater.register_constraint(lambda w: w.mul_(mask), "weight")
        updater.register_constraint(la.Normalize(3.0, order=2), "weight")
        updater.register_constraint(la.Clamp(-2.0, 2.5), "weight")
        updater.weight.fullbound("power", 4.0, -4.0, power=1.0)
        for x, y in zip(pre.split(4), post.split(4), strict=True):
            for xs, ys in [(x, y)] if time_dim == 0 else zip(x, y, strict=True):
                unit.monitors["pre"](xs), unit.monitors["post"](ys)
            rule()
            rule.update()
        found.append((fc.weight if fc is dense else fc.dense()).detach())
    torch.testing.assert_close(*found, **exact)
    assert not torch.allclose(found[1][mask], start[mask], rtol=1e-3)
