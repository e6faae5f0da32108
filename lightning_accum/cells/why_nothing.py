"""Reasons why a cell has recorded nothing."""

from __future__ import annotations

from torch import nn


def why_nothing(
    connection: nn.Module,
    neuron: nn.Module,
    where: str = "",
    model: nn.Module | None = None,
    dropped: int = 0,
    rule_trains: bool = True,
) -> str:
    """Returns why a cell has recorded nothing, and how to mend it.

    Args:
        connection: the connection of the cell.
        neuron: the neuron of the cell.
        where: the only place that is recorded, ``""`` if that is everywhere.
        model: the model that is trained, if it is known.
        dropped: how many recorded steps were cleared before the rule was called.
        rule_trains: whether the rule is in training mode.
    """
    if dropped:
        return (
            f"`clear()` dropped {dropped} recorded steps before the rule was called: call it after"
            " the rule, when the reward or the error of these steps is known, or leave it out, for"
            " a call empties the window itself."
        )
    if not rule_trains:
        return (
            "The rule is in evaluation mode, in which nothing is recorded: leave out `rule.eval()`,"
            " or call `rule.train()` before the batches that should be learned; to freeze a cell,"
            " call `eval()` on its modules instead."
        )
    for side, module in (("connection", connection), ("neuron", neuron)):
        if model is not None and not any(each is module for each in model.modules()):
            return (
                f"Its {side}, a `{type(module).__name__}`, is not a module of the model that is"
                " trained, which may be a copy or another instance: register the cells with the"
                " modules of that model, or give the callback their paths (`cells`)."
            )
    if not connection.training or not neuron.training:
        return (
            "Its modules are in evaluation mode, in which nothing is recorded: call `train()` on"
            " the model before it is trained."
        )
    return why_not_called(f" {where}, the only place that is recorded" if where else "")


def why_not_called(when: str = "") -> str:
    """Returns why modules in training mode have recorded nothing, and how to mend it.

    Args:
        when: where they should have been called, as a part of the sentence.
    """
    return (
        f"Its modules are in training mode, and were not called{when}, or without samples, or"
        " inside `unobserved()`, or while they or the rule were in evaluation mode, after an"
        " `eval()` that should be left out: call them as `fc(x)`, for hooks do not see"
        " `fc.forward(x)` or `F.linear(x, fc.weight)`. If"
        " a copy of them runs, register the cell with the modules of the copy. If"
        " they run inside a function that `torch.compile` has compiled before, call"
        " `torch.compiler.reset()` once the cell is registered."
    )
