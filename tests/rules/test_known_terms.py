"""Windows of one step take the terms that are known, and nothing that happens between is missed."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum.functional import bound_power
from lightning_accum.updates.attached import set_updater

close = {"rtol": 2e-5, "atol": 1e-7}


class Given(nn.Module):
    """Gives out what it is told to."""

    spikes: Tensor

    def forward(self, current: Tensor) -> Tensor:
        return self.spikes


Cells = tuple[la.STDP, nn.Linear, Given]


def made(backend: str, **options) -> Cells:
    fc, neuron = nn.Linear(5, 3, bias=False), Given()
    nn.init.constant_(fc.weight, 0.5)
    rule = la.STDP(0.1, -0.07, 20.0, 10.0, backend=backend, **options)
    rule.register_cell("cell", la.Cell(fc, neuron))
    return rule, fc, neuron


def learn(cells: Cells, pre: Tensor, post: Tensor, every: int = 1) -> None:
    rule, fc, neuron = cells
    for at, (x, neuron.spikes) in enumerate(zip(pre, post, strict=True), 1):
        neuron(fc(x.to(fc.weight)))
        rule()
        if at % every == 0:
            rule.update()


def activity(batch: int = 4, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(batch)
    pre, post = (torch.rand(6, batch, n, generator=generator) < 0.4 for n in (5, 3))
    return pre.to(dtype), post.to(dtype)


def bounded(cells: Cells) -> None:
    accumulator = cells[0].updater_of("cell").weight
    accumulator.fullbound(bound_power, 1.0, 0.0, power=1.0)


def shared(cells: Cells) -> None:
    set_updater(cells[1], la.Updater(cells[1], "weight", reduction="mean"))


def replaced(cells: Cells) -> None:
    cells[1].weight = nn.Parameter(cells[1].weight.detach().clone() + 0.1)


def widened(cells: Cells) -> None:
    cells[1].double()


def loaded(cells: Cells) -> None:
    cells[0].load_state_dict(copy.deepcopy(cells[0].state_dict()))


def paused(cells: Cells) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        learn(cells, *activity())


BETWEEN: dict[str, Callable[[Cells], object]] = {
    "nothing": lambda cells: None,
    "a bound": bounded,
    "another updater": shared,
    "another parameter": replaced,
    "another dtype": widened,
    "a state that is loaded": loaded,
    "autocast": paused,
    "clear": lambda cells: cells[0].clear(),
    "a smaller batch": lambda cells: learn(cells, *activity(3)),
    "the mode": lambda cells: (cells[0].eval(), cells[0].train()),
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("mode", ["cumulative", "nearest"])
def test_known_terms_give_what_the_equation_gives(between: str, reduction: str, mode: str) -> None:
    weights = []
    for backend in ("auto", "plain"):
        cells = made(backend, trace_mode=mode, batch_reduction=reduction)
        learn(cells, *activity())
        BETWEEN[between](cells)
        learn(cells, *activity(), every=2)
        weights.append(cells[1].weight.detach())
    torch.testing.assert_close(*weights, **close)


def test_what_is_pending_stays_as_it_is_while_steps_go_on() -> None:
    rule, fc, neuron = cells = made("auto")
    learn(cells, *activity(1))
    pre, post = activity(1)
    neuron.spikes = post[0]
    neuron(fc(pre[0]))
    rule()
    accumulator = rule.updater_of("cell").weight
    before = [part.clone() for part in (accumulator.pos, accumulator.neg)]
    neuron.spikes = 1 - post[0]
    neuron(fc(1 - pre[0]))  # overwrites the memory of the window
    for part, known in zip((accumulator.pos, accumulator.neg), before, strict=True):
        assert torch.equal(part, known)
