"""The check that updates are exported as gradients after the cells have run, not before."""

from __future__ import annotations

from lightning.pytorch.utilities import rank_zero_warn

from lightning_accum.callbacks._host import CellHost


class EarlyExport:
    """Warns once if a batch's updates became gradients before any of its activity was recorded.

    Args:
        host: the host of the cells.
    """

    def __init__(self, host: CellHost) -> None:
        self._host = host
        self._early = self._told = False

    def exports(self) -> None:
        """Notes whether anything is recorded when updates are about to become gradients."""
        self._early = not self._told and not self._any_recorded()

    def batch_ends(self) -> None:
        """Warns if only what ran afterwards was recorded."""
        if self._early and self._any_recorded():
            self._told = True
            rank_zero_warn(
                f"`updates_as_gradients()` of `{type(self._host.trainer).__name__}` should be"
                " called after the modules of its cells. Found nothing recorded before it in a"
                " batch, and activity after it, whose updates are applied without the optimizer:"
                " call the modules, then it, then `step()` of the optimizer."
            )
        self._early = False

    def _any_recorded(self) -> bool:
        trainer = self._host.trainer
        return any(trainer.recorded_steps(name) for name, _ in trainer.named_cells)
