"""Checks that both sides of a cell were recorded in the same steps of the same samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from lightning_accum.cells.cell import Cell
from lightning_accum.cells.kept_state import reset_of
from lightning_accum.cells.tally import Tally
from lightning_accum.observe import Reducer


def check_same_steps(
    name: str, cell: Cell, pre: Tensor | None, post: Tensor | None, time_dim: int | None
) -> None:
    """Raises a ``ValueError`` if both sides differ in steps or samples.

    Args:
        name: name of the cell.
        cell: the cell.
        pre: activity before the connection, ``[T, B, ...]``; ``None`` if nothing was recorded.
        post: activity after the neuron, likewise.
        time_dim: how the rule expects modules to be called.
    """
    if pre is None or post is None:
        side, module = ("connection", cell.connection) if pre is None else ("neuron", cell.neuron)
        seen = pre if post is None else post
        other = "neuron" if pre is None else "connection"
        raise ValueError(
            f"Cell `{name}` should see its connection and its neuron as often as each other. Found"
            f" {_steps(seen)} of the {other} and none of the {side}:"
            f" {_why_none(module, side)}"
        )
    if time_dim == 0 and post.ndim < 3:
        raise ValueError(
            f"Neurons of cell `{name}` should return `[T, B, ...]` for a rule with `time_dim=0`."
            f" Found {post.ndim} dimensions: if they are called once per step, with `[B, ...]`,"
            " give the rule `time_dim=None`; else give them the missing dimension with"
            " `unsqueeze`."
        )
    if pre.shape[:2] != post.shape[:2]:
        raise ValueError(
            f"Cell `{name}` should see its connection and its neuron as often as each other, with"
            f" the same batch. Found {_steps(pre)} of the connection {tuple(pre.shape[1:])} and"
            f" {len(post)} of the neuron {tuple(post.shape[1:])}: {_why_apart(pre, post, time_dim)}"
        )


def warn_of_reset(name: str, cell: Cell, steps: int, tallies: Iterable[Tally]) -> None:
    """Warns, once in a fit, if the neuron was reset in the middle of a window.

    Args:
        name: the name of the cell.
        cell: the cell.
        steps: the number of steps of the window.
        tallies: the counts of the cells that have this neuron.
    """
    since = getattr(cell.neuron, "steps_since_reset", math.inf)
    if not 0 < since < steps:
        return
    first = [tally.first_reset() for tally in tallies]
    if all(first):
        warnings.warn(
            f"Cell `{name}` should be reset between windows. Found its neuron, a"
            f" `{type(cell.neuron).__name__}`, reset within one, so that spikes before and after"
            " the reset count as pairs: call the rule, or its `clear()`, before `reset()`, and do"
            " not reset in every step.",
            RuntimeWarning,
            stacklevel=6,
        )


def warn_of_order(name: str, pre: Reducer, post: Reducer) -> None:
    """Warns if the neuron of a cell was called before the connection.

    Step by step, the spikes of a step are then paired with an input that comes after them. Of whole
    sequences, only those are certain in which the neuron's output is the connection's input: a
    recurrent connection may be called after the neurons have computed their sequence.

    Args:
        name: the name of the cell.
        pre: keeps the connection's input.
        post: keeps the neuron's output.
    """
    came, gave = pre.window(), post.window()
    if not 0 < post.began < pre.began or came is None or gave is None:
        return
    same = came.dtype == gave.dtype and torch.equal(came, gave) and bool(came.any())
    if same and pre.time_dim == 0:
        what = ", and its output as the connection's input"
        how = "name the neuron whose input is the connection's output"
    elif pre.time_dim is None:
        what = ", so that its spikes count as caused by input that comes after them"
        how = (
            "call the connection first in each step (a recurrent one with the spikes of the step"
            " before), or name the neuron whose input is the connection's output"
        )
    else:
        return
    warnings.warn(
        f"The neuron of cell `{name}` should come after its connection. Found it called"
        f" before{what}: {how}.",
        UserWarning,
        stacklevel=6,
    )


def warn_of_streams(name: str, cell: Cell, carry: bool | None, cleared: bool = False) -> None:
    """Warns that only the traces or only the neuron are reset between windows.

    Args:
        name: the name of the cell.
        cell: the cell.
        carry: whether traces pass from window to window; ``None`` if they do in a loop of the
            user's own, because the rule is not cleared.
        cleared: whether traces begin at zero because the user clears the rule.
    """
    neuron = f"its neuron, a `{type(cell.neuron).__name__}`,"
    if carry:
        found = f"`carry=True`, by which traces do, and {neuron} reset in each"
        mend = (
            "leave `carry` out if windows are separate samples, or reset the neuron only where a"
            " stream begins"
        )
    elif carry is None:
        found = f"that traces do, and {neuron} reset in each"
        mend = "call `clear()` on the rule wherever the neuron is reset"
    else:
        found = f"that traces begin at zero in each, and {neuron} not reset"
        reset = reset_of(cell.neuron)
        how = f"call `{reset}()` on the neuron" if reset else "set the neuron's state to zero"
        mend = (
            f"{how} wherever the rule is cleared, or do neither if sequences are pieces of one"
            " stream"
            if cleared
            else "call `reset()` on the neuron before each batch, or pass `carry=True` if batches"
            " are pieces of one stream"
        )
    warnings.warn(
        f"The traces and the neuron of cell `{name}` should both pass from window to window, or"
        f" neither. Found {found}: {mend}.",
        RuntimeWarning,
        stacklevel=4,
    )


def warn_of_drops(name: str, steps: int) -> None:
    """Warns that the rule has seen only the last of several sequences.

    Args:
        name: the name of the cell.
        steps: how many recorded steps were dropped.
    """
    warnings.warn(
        f"The rule should be called before its `clear()` drops what cell `{name}` has recorded."
        f" Found {steps} steps that were dropped, by two calls of `clear()` or more before each of"
        " the latest 3 calls of the rule, which saw only what came after them: call the rule before"
        " `clear()`, and run steps from which nothing should be learned in evaluation mode.",
        RuntimeWarning,
        stacklevel=6,
    )


def _steps(window: Tensor | None) -> str:
    count = 0 if window is None else len(window)
    return f"{count} step{'' if count == 1 else 's'}"


def _why_none(module: nn.Module, side: str) -> str:
    """Returns why nothing was recorded of one module, and how to mend it."""
    kind = type(module).__name__
    if not module.training:
        return (
            f"the {side}, a {kind}, is in evaluation mode, in which nothing is recorded: call"
            " `train()` on it."
        )
    how = "`fc.forward(x)` or `F.linear(x, fc.weight)`" if side == "connection" else "`forward(x)`"
    return (
        f"the {side}, a {kind} in training mode, was not called, or raised an error: call it as a"
        f" module, for hooks do not see {how}, and do not replace it once its cell is registered."
    )


def _why_apart(pre: Tensor, post: Tensor, time_dim: int | None) -> str:
    """Returns why both sides were recorded differently, and how to mend it."""
    if len(pre) == len(post) and time_dim == 0:
        return (
            "with `time_dim=0`, modules should take and return `[T, B, ...]`: if they are called"
            " once per step, with `[B, ...]`, give the rule `time_dim=None`."
        )
    if time_dim == 0 and len(pre) == math.prod(post.shape[:2]):
        return (
            "the connection takes time and batch as one dimension. Give it `[T, B, ...]`, which"
            " `nn.Linear` takes, and `lightning_accum.nn.Conv1d` to `Conv3d` do."
        )
    if len(pre) == len(post):
        return "let both see the same samples in each step."
    return (
        "call each once per step (`time_dim=None`), or once per sequence (`time_dim=0`), and as"
        " often as the other."
    )
