"""The check that the delays of a connection are among those that it can keep."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lightning_accum.distributed.shards import local
from lightning_accum.nn.delayed_linear import DelayedLinear


def step_of_delays(
    connection: nn.Module | None, name: str, then: Tensor, now: Tensor
) -> float | None:
    """Returns the step of a connection, in ms, if it rounds all delays now as it did then.

    Waits for the device if the parameter is the delays of a :class:`DelayedLinear`.

    Args:
        connection: the connection.
        name: the name of the parameter.
        then: some values of the parameter, in ms.
        now: the same ones, later.

    Returns:
        The step, ``None`` if a delay has moved to another one, or the values are no delays.
    """
    if not isinstance(connection, DelayedLinear) or name != "delay":
        return None
    same = torch.equal(connection.in_steps(then), connection.in_steps(now))
    return float(connection.dt) if same else None


def delays_beyond(connection: nn.Module | None, name: str) -> str:
    """Returns how a parameter should be and is, if it is delays that a connection cannot keep.

    Waits for the device if the parameter is the delays of a :class:`DelayedLinear`.

    Args:
        connection: the connection.
        name: the name of the parameter.

    Returns:
        The end of a sentence on the parameter, and the remedy; empty if the delays are fine.
    """
    if not isinstance(connection, DelayedLinear) or name != "delay":
        return ""
    delay, longest = local(connection.delay.detach()), connection.max_delay
    if not delay.numel():
        return ""
    least, most = delay.aminmax()
    if not (bool(least < 0) or bool(most > most.new_full((), longest))):
        return ""
    return (
        f"should be from 0 to `max_delay = {longest:g}`, in ms. Found delays from"
        f" {float(least):.3g} to {float(most):.3g}: the connection counts those beyond as"
        " the nearest bound, and the rule takes them as they are. Register a constraint,"
        f' `attach_updater(connection, "delay").register_constraint(Clamp(0.0, {longest:g}),'
        ' "delay")`.'
    )
