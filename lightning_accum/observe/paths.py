"""Dotted paths that lead from a module to a module or an attribute below it."""

from __future__ import annotations

from typing import Any

from torch import nn


def find_module(start: Any, path: str) -> nn.Module:
    """Returns the module at the end of a dotted path, which may be empty; else raises an error."""
    found = _follow(start, path)
    if not isinstance(found, nn.Module):
        raise AttributeError(
            f"Argument `attr` should lead to a module. Found `{path}`, of type"
            f" `{type(found).__name__}`: a StateMonitor watches attributes."
        )
    return found


def find_attribute(start: Any, path: str) -> tuple[nn.Module, str]:
    """Returns the module that owns the attribute at the end of a path, and the attribute's name."""
    parent, _, name = path.rpartition(".")
    found = _follow(start, parent)
    if not isinstance(found, nn.Module) or not hasattr(found, name):
        raise AttributeError(
            f"Argument `attr` should lead to an attribute of a module. Found `{path}`, and"
            f" `{type(found).__name__}` has no `{name}`."
        )
    return found, name


def _follow(start: Any, path: str) -> Any:
    found = start
    names = path.split(".") if path else []
    for i, name in enumerate(names):
        if not hasattr(found, name):
            at = ".".join(names[:i])
            raise AttributeError(
                f"Argument `attr` should be a dotted path of attributes. Found `{path}`, and"
                f" `{at or type(start).__name__}` has no `{name}`."
            )
        found = getattr(found, name)
    return found
