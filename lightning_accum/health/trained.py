"""Parameters that nothing trains, or two things."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn
from torch.nn.parameter import is_lazy

from lightning_accum._checks import quoted
from lightning_accum._compat import version
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.shards import local
from lightning_accum.functional.numbers import Fingerprint, fingerprint, same_fingerprints
from lightning_accum.health.facts import CellFacts
from lightning_accum.updates import get_updater

_MOST = 8  # names in a message
_TWICE = 2  # updates after which an optimizer had changed the same parameter


def twice_trained(c: CellFacts) -> str:
    """Returns that a rule and gradients change the same parameters; empty if not; waits."""
    names = [
        f"{c.name}.{p.name}"
        for p in c.params.values()
        if not p.exported and sum(bool(each) for each in p.shared) >= _TWICE
    ]
    if not names:
        return ""
    return (
        f"{quoted(names, ', ')} should be trained by a rule or by gradients. Found that both change"
        " it: leave it out of the optimizer, for example with `requires_grad_(False)`, or pass the"
        " rule's change to it, with `updates_as_gradients()`."
    )


class Untrained:
    """Finds parameters that require grad and have not changed since training began.

    Those of modules in evaluation mode need not be trained.

    Args:
        trainers: the trainers of all cells.
        model: the model.
    """

    def __init__(self, trainers: Sequence[CellTrainer], model: nn.Module) -> None:
        self._model = model
        self._rule = next((type(each).__name__ for each in trainers if each.follows_error), "")
        self._cells = {
            id(param)
            for each in trainers
            for cell, _ in each.cells
            for param in cell.connection.parameters()
            if not each.follows_error
        }
        self._began: dict[int, tuple[float, Fingerprint]] = {
            id(p): (version(p), fingerprint(local(p.detach())))
            for _, p in _learning(model)
            if not (p.is_meta or is_lazy(p))
        }

    def _left(self) -> list[str]:
        """Returns the names of parameters that are as they were; waits for the device."""
        left = []
        attached = {id(t) for updater in _updaters(self._model) for t in updater}
        for name, p in _learning(self._model):
            began = self._began.get(id(p))
            if began is None or id(p) in self._cells or id(p) in attached:
                continue
            same = version(p) == began[0] and same_fingerprints(
                began[1], fingerprint(local(p.detach()))
            )
            if same:
                left.append(name)
        return left

    def text(self) -> str:
        """Returns that a network which follows an error has such parameters; waits."""
        left = self._left() if self._rule else []
        if not left:
            return ""
        return (
            f"Each parameter of a network that learns from an error, by `{self._rule}`, should be"
            f" trained by a cell or an optimizer. Found neither for {_named(left)}: name it in a"
            ' cell, as in `CellSpec(connection, neuron, params=("weight", "bias"))`, pass it to an'
            " optimizer, or call `requires_grad_(False)` on it if it should not be trained."
        )

    def lines(self) -> list[str]:
        """Returns a line on such parameters beside local rules; waits for the device."""
        left = [] if self._rule else self._left()
        if not left:
            return []
        walls = [
            path
            for path, each in self._model.named_modules()
            if getattr(each, "gradient", None) == "none"
        ]
        why = (
            f" Neurons that pass no gradient to what is below them: {_named(walls)}; make these as"
            ' `SurrogateLIF(..., gradient="step")` or `"time"` if it should be trained by gradients.'
            if walls
            else ""
        )
        return [
            f"Neither a rule nor an optimizer changed {_named(left)}: name it in a cell, pass it to"
            " an optimizer of a loss that depends on it, or call `requires_grad_(False)` on it if"
            f" it should not be trained.{why}"
        ]


def _updaters(model: nn.Module) -> Iterator[list[object]]:
    """Yields the parameters that an updater of the model's modules has changed."""
    for module in model.modules():
        updater = get_updater(module)
        if updater is not None:
            yield [updater.target(name) for name in updater.names if updater.applied.get(name)]


def _learning(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yields the parameters that require grad and belong to modules in training mode, by name."""
    for path, each in model.named_modules():
        for name, param in each.named_parameters(path, recurse=False):
            if each.training and param.requires_grad:
                yield name, param


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return quoted(names[:_MOST], ", ") + more
