"""Whether cells are still what the model has where they were found."""

from __future__ import annotations

from torch import nn

from lightning_accum.callbacks._host import CellHost
from lightning_accum.cells.cell import CellSpec


def check_places(host: CellHost, model: nn.Module) -> None:
    """Refuses a fit in which a module of a cell was replaced after the cell was bound.

    Args:
        host: whose cells these are.
        model: where they were found.

    Raises:
        RuntimeError: if another module stands in the place of one.
    """
    for name, spec in (host.cells or {}).items():
        try:
            bound = host.trainer.get_cell(name)[0]
        except AttributeError:  # which was deleted by hand
            continue
        except RuntimeError:  # of which nothing else held a module
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
            f" {' or '.join(f'`{path}`' for path in new)} than when the fit began, which would not"
            " be trained: replace a module in `__init__`, `setup` or `configure_model`."
        )
