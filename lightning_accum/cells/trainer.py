"""The CellTrainer: applies the pending changes of the cells that it watches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from lightning_accum._checks import check_taken, is_number
from lightning_accum.cells.observer import CellObserver
from lightning_accum.cells.state import CellState, rates_in
from lightning_accum.functional.reductions import Reduction
from lightning_accum.updates import Updater, attach_updater


class CellTrainer(CellObserver):
    """Base class of trainers of the parameters of cells.

    A subclass accumulates changes in ``forward``; :meth:`update` applies them.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> from lightning_accum import Cell
        >>> from lightning_accum.observe import OutputMonitor
        >>> fc, relu = nn.Linear(2, 1), nn.ReLU()
        >>> trainer = CellTrainer()
        >>> cell, state = trainer.add_cell("enc", Cell(fc, relu), params=["weight"])
        >>> monitor = trainer.add_monitor(
        ...     "enc", "post", "neuron", OutputMonitor.partialconstructor()
        ... )
        >>> _ = relu(fc(torch.ones(1, 2)))
        >>> monitor.peek().shape
        torch.Size([1, 1])
        >>> cell.updater.weight = torch.ones(1, 2)
        >>> trainer.update()
    """

    follows_error: ClassVar[bool] = False
    """Whether changes follow the gradient of an error, by which the whole network should learn."""

    rectified: ClassVar[bool] = False
    """Whether changes assume that the outputs of neurons are not negative."""

    averages_processes: ClassVar[bool] = False
    """Whether summed changes are averaged over processes, as DDP averages gradients."""

    def update(self, **kwargs: Any) -> None:
        """Applies all pending changes of the cells, also those that others have accumulated.

        Each updater is called once, even if several cells share it.

        Args:
            **kwargs: passed to the updaters: ``scale``, ``clear``, and options of bounds.

        Raises:
            TypeError: if no updater takes one of the keywords; no cell has changed then.
            NonFiniteUpdateError: if an update holds NaN or Inf and the updater's policy is to
                raise; no cell has changed then.
        """
        self.registry.check_bound()
        updaters = [updater for updater, _ in self.updaters.values()]
        takers = [{name for name in kwargs if each.takes(name)} for each in updaters]
        taken = set(Updater.keywords).union(*takers)
        check_taken(f"{type(self).__name__}.update", kwargs, Updater.keywords, taken.__contains__)
        ready = [
            updater.prepare(**{name: kwargs[name] for name in taker})
            for updater, taker in zip(updaters, takers, strict=True)
        ]
        for updater, prepared in zip(updaters, ready, strict=True):
            updater(prepared=prepared)  # a call, so that hooks on the updater run

    @property
    def updaters(self) -> dict[int, tuple[Updater, list[str]]]:
        """The cells' updaters by id, each with the names of the cells that share it."""
        found: dict[int, tuple[Updater, list[str]]] = {}
        for name, cell in self._living():
            updater = self.registry.updater_of(name, cell)
            if updater is not None:
                found.setdefault(id(updater), (updater, []))[1].append(name)
        return found

    def params_of(self, name: str) -> tuple[str, ...]:
        """Returns the parameters of a cell's connection that are trained.

        Raises:
            AttributeError: if there is no such cell.
        """
        updater = self.registry.updater(name)
        return () if updater is None else updater.names

    def weight_range(self, name: str) -> tuple[float | None, float | None]:
        """Returns the limits between which the trainer assumes the weights of a cell.

        Args:
            name: the name of the cell.
        """
        return None, None

    def held_rate(self, name: str) -> float | None:
        """Returns the rate, in Hz, at which the trainer is to hold the neurons of a cell.

        ``None`` if it has no such target.

        Args:
            name: the name of the cell.
        """
        return None

    @classmethod
    def why_unmoved(cls, h: Mapping[str, Any], device: torch.device) -> str:
        """Returns why nothing changes the parameters of a cell, and the remedy; empty if unknown.

        Args:
            h: the hyperparameters of the cell by name.
            device: the device of its parameters.
        """
        return ""

    @classmethod
    def why_zero(cls, name: str) -> str:
        """Returns what it means that something that changes are multiplied by was always 0.

        Args:
            name: its name, such as that of an input.
        """
        return (
            f"`{name}` of the rule was always 0: look at how it is computed, and give it to the"
            " call that evaluates the steps, which may be your own in `training_step`."
        )

    @classmethod
    def has_both_signs(cls, h: Mapping[str, Any]) -> bool:
        """Returns whether changes should potentiate and depress, as rates of both signs tell.

        Args:
            h: the hyperparameters of a cell by name.
        """
        rates = [rate for rate in rates_in(h).values() if is_number(rate)]
        return any(rate > 0 for rate in rates) and any(rate < 0 for rate in rates)

    def followed(self) -> Iterator[nn.Parameter]:
        """Yields parameters from whose changes the trainer learns, so that these should change."""
        return iter(())

    @property
    def cell_states(self) -> Mapping[str, CellState]:
        """By name, the states of cells whose hyperparameters the trainer keeps."""
        return {}

    def recorded_steps(self, name: str) -> int | None:
        """Returns the number of recorded steps of a cell that no call has evaluated.

        ``None`` if the trainer does not know.

        Args:
            name: the name of the cell.
        """
        return None

    def reduction_of(self, name: str) -> Reduction | None:
        """Returns how a cell reduces its batch; ``None`` if the trainer does not say.

        Args:
            name: the name of the cell.
        """
        return None

    def take_samples(self, name: str, param: str) -> int:
        """Returns how many samples' changes of a parameter are pending, and resets the count.

        The counts weigh the means of several processes. They are alike unless a subclass counts.

        Args:
            name: the name of the cell.
            param: the name of the parameter.
        """
        return 1

    def forget_samples(self) -> None:
        """Resets all such counts; a single process does not weigh the changes of others."""
        for name, _ in self.named_cells:
            for param in self.params_of(name):
                self.take_samples(name, param)

    def finish_batch(self, carry: bool, **inputs: Any) -> None:
        """Processes the last window of a batch.

        Args:
            carry: whether traces pass to the next batch, if the trainer has traces.
            **inputs: passed to :meth:`forward`.
        """
        self(**inputs)

    def bind_model(self, model: nn.Module) -> None:
        """Looks up what the trainer needs of a model besides its cells; a callback calls it.

        Args:
            model: the model.
        """

    def use_updater(self, cell: str, updater: Updater | None) -> None:
        """Accumulates a cell's changes in ``updater`` instead of its connection's updater.

        Args:
            cell: name of the cell.
            updater: an updater of the same connection; ``None`` for that of the connection.

        Raises:
            AttributeError: if there is no such cell.
        """
        self.registry[cell].replacement = updater

    def updater_of(self, name: str, *params: str) -> Updater:
        """Returns the updater of a cell; the connection gets an updater if it has none."""
        updater = self.registry[name].replacement
        if updater is None:
            return attach_updater(self.registry.cell(name).connection, *params)
        updater.add(*params)
        return updater

    def forward(self, *inputs: Any, **kwargs: Any) -> None:
        """Processes a training step.

        Raises:
            NotImplementedError: unless a subclass defines a training step.
        """
        raise NotImplementedError(
            f"`{type(self).__name__}.forward` should process a training step: use one of the rules,"
            " or define it in a subclass."
        )
