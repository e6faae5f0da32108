"""Parameters that nothing trains, or two things."""

from collections.abc import Collection, Iterator, Sequence

from torch import nn
from torch.nn.parameter import is_lazy

from lightning_accum._checks import quoted
from lightning_accum._compat.torch_internals import version
from lightning_accum.cells.trainer import CellTrainer, feedbacks_of
from lightning_accum.health.facts import CellFacts, Weights
from lightning_accum.health.rule_facts import follows_error

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
    """Finds parameters that require grad and have not changed since training began."""

    def __init__(
        self,
        trainers: Sequence[CellTrainer],
        model: nn.Module,
        optimized: Collection[int] | None = None,
    ) -> None:
        self._model, self._optimized = model, optimized
        self._followed = {
            id(p) for each in trainers for of in feedbacks_of(each) for p in of.followed()
        }
        self._rule = next((each.title for each in trainers if follows_error(each)), "")
        cells = {
            id(param)
            for each in trainers
            for cell, _ in each.cells
            for param in cell.connection.parameters()
            if not follows_error(each)
        }
        self._began = {
            id(p): (version(p), Weights.of(p))
            for _, p in self._learning()
            if not (p.is_meta or is_lazy(p) or id(p) in cells)
        }

    def _left(self) -> tuple[list[str], bool]:
        """Returns the names of parameters that are as they were, and whether others are not."""
        known, left = [(n, p) for n, p in self._learning() if id(p) in self._began], []
        for name, p in known:
            count, began = self._began[id(p)]
            if version(p) == count and Weights.of(p).same(began):
                left.append((name, id(p)))
        # others may be left as they are on purpose
        only = self._optimized if self._walls() and not self._rule else None
        names = [name for name, key in left if only is None or key in only]
        return names, len(left) < len(known)

    def _learning(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields, by name, parameters of modules in training mode that should change."""
        for path, each in self._model.named_modules():
            for name, param in each.named_parameters(path, recurse=False):
                if each.training and (param.requires_grad or id(param) in self._followed):
                    yield name, param

    def _walls(self) -> list[str]:
        """Returns the paths of neurons that pass no gradient."""
        found = self._model.named_modules()
        return [path for path, each in found if getattr(each, "gradient", None) == "none"]

    def found(self) -> tuple[str, str]:
        """Returns a warning that such parameters should be trained, or a line of advice; waits."""
        left, moves = self._left()
        walls, which = self._walls(), _named(left)
        if not left:
            return "", ""
        if self._rule:
            return (
                f"Each parameter of a network that learns from an error, by `{self._rule}`, should"
                f" be trained by a cell or an optimizer. Found neither for {which}: name it in a"
                ' cell, as in `CellSpec(connection, neuron, params=("weight", "bias"))`, pass it to'
                " an optimizer, or call `requires_grad_(False)` on it if it should not be trained."
            ), ""
        if moves and walls and self._may_be_above(walls, left):
            return (
                f"Each parameter of an optimizer should change when it steps. Found {which} as"
                " before, and neurons that pass no gradient to what is below them:"
                f' {_named(walls)}. Make these as `SurrogateLIF(..., gradient="step")` or `"time"`,'
                " train the parameters by a cell, or leave them out of the optimizer, with"
                " `requires_grad_(False)`."
            ), ""
        return "", (
            f"Neither a rule nor an optimizer changed {which}: name it in a cell, pass it to"
            " an optimizer of a loss that depends on it, or call `requires_grad_(False)` on it if"
            " it should not be trained."
        )

    def _may_be_above(self, walls: Sequence[str], left: Sequence[str]) -> bool:
        """Returns whether neurons may come after some parameters, as the last does in the model."""
        paths = [path for path, _ in self._model.named_modules()]
        first, last = left[0].rpartition(".")[0], walls[-1]
        return first.startswith(f"{last}.") or paths.index(first) <= paths.index(last)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return quoted(names[:_MOST], ", ") + more
