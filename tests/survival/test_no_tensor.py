"""A list or a number where a tensor belongs is refused by the argument's name."""

import pytest
import torch
from torch import nn
from turns import turns

import lightning_accum as la
from lightning_accum import Clamp, Normalize, functional, metrics, optim
from lightning_accum import nn as lann
from lightning_accum.functional.update_statistics import spike_counts
from lightning_accum.observe.reducer import Latest

W, S = torch.ones(2, 2), torch.ones(5, 2, 3)
ENTRIES = {
    "x of poisson_encode": lambda bad: functional.poisson_encode(bad, 5, 0.1),
    "x of PoissonEncoder": lambda bad: lann.PoissonEncoder(5, 100.0)(bad),
    "x of LIF": lambda bad: lann.LIF(3)(bad),
    "x of Linear": lambda bad: lann.Linear(3, 2)(bad),
    "x of Conv2d": lambda bad: lann.Conv2d(1, 2, 3)(bad),
    "activity of trace": lambda bad: functional.trace(bad, 0.5),
    "out of trace": lambda bad: functional.trace(S, 0.5, out=bad),
    "out of reverse_trace": lambda bad: functional.reverse_trace(S, 0.5, out=bad),
    "spikes of spike_counts": spike_counts,
    "before of update_statistics": lambda bad: functional.update_statistics(bad, W),
    "after of update_statistics": lambda bad: functional.update_statistics(W, bad),
    "pos of update_statistics": lambda bad: functional.update_statistics(W, W, bad),
    "neg of update_statistics": lambda bad: functional.update_statistics(W, W, W, bad),
    "param of clamp": Clamp(0.0),
    "param of normalize": Normalize(),
    "param of Accumulator": lambda bad: la.Accumulator().update(bad),
    "post of Accumulator": lambda bad: la.Accumulator().accumulate_outer(bad, W),
    "spikes of FiringStatistics": lambda bad: metrics.FiringStatistics().update(bad),
    "before of UpdateStatistics": lambda bad: metrics.UpdateStatistics().update(bad, W),
    "rates of MaxRateClassifier": lambda bad: metrics.MaxRateClassifier(2, 2).predict(bad),
    "labels of MaxRateClassifier": lambda bad: metrics.MaxRateClassifier(2, 2).update(W, bad),
    "observation of a reducer": lambda bad: Latest()(bad),
}


@turns("entry", ENTRIES)
@turns("bad", [[1.0, 2.0], 1.5])
def test_it_is_refused_by_name(entry, bad):
    name = entry.split()[0]
    with pytest.raises(TypeError, match=rf"Argument `{name}` should be a tensor"):
        ENTRIES[entry](bad)


@pytest.mark.parametrize("bad", [1.5, [nn.Linear(2, 2)], None])
def test_updaters_and_models_are_what_they_are_called(bad):
    with pytest.raises(TypeError, match="Argument `updaters` should hold Updaters"):
        optim.updates_as_gradients(bad)
    with pytest.raises(TypeError, match=r"Argument `model` should be a torch.nn.Module"):
        la.CellSpec("0", "1").find(bad)
