"""The checks that the model holds the modules of each cell."""

from __future__ import annotations

from torch import nn

from lightning_accum._checks import quoted
from lightning_accum.callbacks._host import CellHost
from lightning_accum.cells.cell import CellSpec


def check_places(host: CellHost, model: nn.Module) -> None:
    """Raises if a module of a cell was replaced in the model after the cell was bound.

    Args:
        host: the host of the cells.
        model: the model in which the cells were found.

    Raises:
        RuntimeError: if a path of a cell leads to another module than before.
    """
    for name, spec in (host.cells or {}).items():
        try:
            bound = host.trainer.get_cell(name)[0]
        except AttributeError:  # the cell was deleted
            continue
        except RuntimeError:  # only the cell referred to one of its modules, which is gone
            bound = None
        now = CellSpec(spec.connection, spec.neuron).find(model)
        if bound == now:
            continue
        places = (spec.connection, spec.neuron)
        old = (None, None) if bound is None else (bound.connection, bound.neuron)
        both = zip(old, (now.connection, now.neuron), strict=True)
        new = [path for path, (was, is_) in zip(places, both, strict=True) if was is not is_]
        raise RuntimeError(
            f"The modules of cell `{name}` should stay the same while a fit runs. Found another"
            f" {quoted(new, ' or ')} than when the fit began, which would not be trained:"
            " replace a module in `__init__`, `setup` or `configure_model`."
        )
