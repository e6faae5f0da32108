"""The check that constraints outlive a module's `setup` and `configure_model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

from lightning.pytorch.utilities import rank_zero_warn
from torch import nn

from lightning_accum._compat import compiled_from
from lightning_accum.cells.cell import CellSpec
from lightning_accum.updates import get_updater


class LostConstraints:
    """Notes which connections have constraints or bounds, and warns if they are replaced."""

    def __init__(self) -> None:
        self._limited: dict[str, tuple[ref[nn.Module], list[str]]] = {}  # by path

    def note(self, model: nn.Module, cells: Mapping[str, CellSpec] | None) -> None:
        """Notes the connections before the model is set up.

        Args:
            model: the model.
            cells: the paths of the cells by name.
        """
        self._limited = {}
        for spec in (cells or {}).values():
            module = _at(model, spec.connection)
            if module is not None and (limited := _limited(module)):
                self._limited[spec.connection] = ref(module), limited

    def check(self, model: nn.Module, cells: Mapping[str, CellSpec] | None) -> None:
        """Warns of connections that replace others in the model, and have no limits.

        Args:
            model: the model, which is set up.
            cells: the paths of the cells by name.
        """
        limited, self._limited = self._limited, {}
        if not limited:
            return
        here = {id(module) for module in model.modules()}
        for name, spec in (cells or {}).items():
            was, params = limited.get(spec.connection, (None, []))
            now = _at(model, spec.connection)
            if was is None or id(was()) in here or now is None or _limited(now):
                continue
            rank_zero_warn(
                f"Constraints and bounds of cell `{name}` should be set on the connection that it"
                f" trains. Found them for {params} of another `{spec.connection}`, which `setup` or"
                " `configure_model` has replaced by one without any, so that they are lost: set"
                " them where the new one is made."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"_limited": {}}


def _at(model: nn.Module, path: str) -> nn.Module | None:
    try:
        return compiled_from(model.get_submodule(path))
    except AttributeError:
        return None


def _limited(module: nn.Module) -> list[str]:
    """Returns the names of the parameters that have constraints or bounds."""
    updater = get_updater(module)
    names = () if updater is None else updater.names
    return [
        name
        for name in names
        if updater is not None and (updater.constraints_of(name) or getattr(updater, name).bounded)
    ]
