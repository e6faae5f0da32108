"""Checks that both sides of a cell were recorded in the same steps of the same samples."""

from __future__ import annotations

import math

from torch import Tensor, nn

from lightning_accum.cells.cell import Cell


def check_same_steps(
    name: str, cell: Cell, pre: Tensor | None, post: Tensor | None, time_dim: int | None
) -> None:
    """Raises a ``ValueError`` if both sides differ in steps or samples."""
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
