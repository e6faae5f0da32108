"""Sides of a cell that were not recorded alike are refused with the reason."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lightning_accum import STDP, Cell

ON = torch.ones(3, 2, 4)  # steps, samples, inputs


class Relay(nn.Module):
    """Gives a spike for whatever is positive."""

    def forward(self, x: Tensor) -> Tensor:
        return (x > 0).to(x)


def cell(connection: nn.Module | None = None, time_dim: int | None = 0) -> tuple[STDP, Cell]:
    pair = Cell(nn.Linear(4, 2, bias=False) if connection is None else connection, Relay())
    rule = STDP(0.1, -0.1, time_dim=time_dim)
    rule.register_cell("enc", pair)
    return rule, pair


def test_a_connection_that_no_hook_saw() -> None:
    rule, pair = cell()
    pair.neuron(nn.functional.linear(ON, pair.connection.weight))
    with pytest.raises(ValueError, match="none of the connection: the connection, a Linear in"):
        rule()
    pair.neuron(pair.connection(ON))  # what was refused is dropped
    rule()


@pytest.mark.parametrize("side", ["connection", "neuron"])
def test_one_side_in_evaluation_mode(side: str) -> None:
    rule, pair = cell()
    getattr(pair, side).eval()
    pair.neuron(pair.connection(ON))
    with pytest.raises(ValueError, match=rf"none of the {side}: .* is in evaluation mode"):
        rule()


def test_steps_given_to_a_rule_on_sequences() -> None:
    rule, pair = cell()
    for step in ON:
        pair.neuron(pair.connection(step))
    with pytest.raises(ValueError, match=r"`\[B, \.\.\.\]`, give the rule `time_dim=None`"):
        rule()


@pytest.mark.parametrize("connection", [nn.Linear(4, 2, bias=False), nn.Conv1d(1, 2, 3)])
def test_time_and_batch_in_one_dimension(connection: nn.Module) -> None:
    rule, pair = cell(connection)
    x = ON if isinstance(connection, nn.Linear) else ON.unsqueeze(2)
    pair.neuron(connection(x.flatten(0, 1)).unflatten(0, x.shape[:2]))
    with pytest.raises(ValueError, match="takes time and batch as one dimension"):
        rule()


def test_steps_of_places_given_to_a_rule_on_sequences() -> None:
    rule, pair = cell(nn.Conv2d(1, 3, 3))
    for step in torch.ones(4, 2, 1, 5, 5):
        pair.neuron(pair.connection(step))
    with pytest.raises(ValueError, match="as often as each other") as caught:
        rule()
    text = str(caught.value)
    assert "Found 8 steps of the connection (1, 5, 5) and 8 of the neuron (3, 3, 3)" in text
    assert text.endswith("give the rule `time_dim=None`.")


def test_one_side_called_more_often() -> None:
    rule, pair = cell(time_dim=None)
    pair.neuron(pair.connection(ON[0]))
    pair.connection(ON[0])
    with pytest.raises(ValueError, match=r"2 steps .* and 1 of .* as often as the other"):
        rule()


def test_other_samples() -> None:
    rule, pair = cell(time_dim=None)
    pair.neuron(pair.connection(ON[0])[:1])
    with pytest.raises(ValueError, match="let both see the same samples"):
        rule()
