"""A rule by hand that moves nothing says so, whichever of rule and model is deleted first."""

from __future__ import annotations

import copy
import gc
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from rasters import raster
from torch import nn
from torch._subclasses import FakeTensorMode

import lightning_accum as la
from lightning_accum.nn import LIF


def trained(
    first: str,
    threshold: float = 1e6,
    restored: bool = False,
    reloads: int = 0,
    batches: int = 12,
    deleted_in: AbstractContextManager[object] | None = None,
) -> None:
    """Trains a layer by hand; ``first`` is the name of what is deleted first."""
    kept: dict[str, Any] = {"layer": la.Serial(nn.Linear(4, 3), LIF(3, v_threshold=threshold))}
    nn.init.constant_(kept["layer"].connection.weight, 0.5)
    kept["rule"] = la.STDP(0.1, -0.05)
    kept["rule"].register_cell("enc", kept["layer"].cell)
    before = copy.deepcopy(kept["layer"].state_dict())
    for i in range(batches):
        kept["layer"].neuron.reset()
        for spikes in raster(5, 2, 4, seed=i).float():
            kept["layer"](spikes)
        kept["rule"]()
        kept["rule"].update()
        kept["rule"].clear()
        if reloads and i % reloads == reloads - 1:
            kept["layer"].load_state_dict(before)
    if restored:
        kept["layer"].load_state_dict(before)
    with deleted_in or nullcontext():
        del kept[first]
        kept.clear()
        gc.collect()


@pytest.mark.parametrize("first", ["layer", "rule"])
def test_weights_that_never_moved(first: str) -> None:
    with pytest.warns(RuntimeWarning, match="Found it unchanged, after 12 calls") as said:
        trained(first)
    assert len(said) == 1


@pytest.mark.parametrize("first", ["layer", "rule"])
@pytest.mark.parametrize("restored", [False, True])
def test_weights_that_moved(first: str, restored: bool) -> None:
    trained(first, threshold=0.1, restored=restored)


@pytest.mark.parametrize("first", ["layer", "rule"])
@pytest.mark.parametrize("reloads", [2, 3, 4])
def test_weights_that_are_loaded_back_again_and_again(first: str, reloads: int) -> None:
    text = "its first value again, after 24 calls and 24 applied updates, and [2-5] times"
    with pytest.warns(RuntimeWarning, match=text) as said:
        trained(first, threshold=0.1, reloads=reloads, batches=24)
    assert len(said) == 1


def test_weights_that_are_loaded_back_for_another_experiment() -> None:
    trained("layer", threshold=0.1, reloads=12, batches=24)


@pytest.mark.parametrize("first", ["layer", "rule"])
def test_what_is_deleted_while_something_is_compiled_reads_no_tensor(first: str) -> None:
    trained(first, deleted_in=FakeTensorMode())


def test_nan_in_weights_does_not_count_as_moved() -> None:
    fc, neuron, rule = nn.Linear(4, 3), nn.Identity(), la.STDP(0.1, -0.1)
    rule.register_cell("enc", la.Cell(fc, neuron))
    nn.init.constant_(fc.weight, torch.nan)
    for _ in range(12):
        fc(torch.ones(2, 4)), neuron(torch.zeros(2, 3))
        rule()
        rule.update()
    with pytest.warns(RuntimeWarning, match="Found NaN or Inf in it before and after 12 calls"):
        rule.eval()


def test_a_model_that_stays_in_evaluation_mode() -> None:
    layer, rule = la.Serial(nn.Linear(4, 3), nn.Identity()), la.STDP(0.1, -0.05)
    rule.register_cell("enc", layer.cell)

    def run(batches: int) -> None:
        for _ in range(batches):
            layer.neuron(torch.bernoulli(layer.connection(torch.ones(2, 4)).sigmoid()))
            rule()
            rule.update()

    run(5)
    layer.eval()
    run(9)  # as in a test
    layer.train()
    run(1)
    layer.eval()
    run(11)
    with pytest.warns(RuntimeWarning, match="the latest 12 calls.*evaluation mode") as said:
        run(30)
    assert len(said) == 1


def test_a_reward_that_comes_after_its_steps() -> None:
    fc, neuron, rule = nn.Linear(4, 3), nn.Identity(), la.MSTDPET(0.1, -0.1)
    rule.register_cell("enc", la.Cell(fc, neuron))
    before = fc.weight.detach().clone()

    def run() -> None:
        for i in range(3):
            fc(raster(2, 4, seed=i).float())
            neuron(raster(2, 3, seed=i + 1).float())
            rule(reward=0.0)
            rule(reward=1.0)
            rule.update()

    with pytest.warns(UserWarning, match="given \\['reward'\\] with the steps") as said:
        run()
    assert len(said) == 1
    assert torch.equal(fc.weight, before)
    fc.eval()
    rule(reward=1.0)  # of a test
