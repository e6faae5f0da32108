"""What is known of a rule and a model apart from activity, and what trains its parameters."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler

from lightning_accum._checks import quoted
from lightning_accum._compat.torch import version
from lightning_accum.cells.recorded_signals import follows_gradient
from lightning_accum.cells.state import same_settings
from lightning_accum.cells.trainer import CellTrainer, feedbacks_of
from lightning_accum.engine.rule import Rule
from lightning_accum.functional.kernels import changes
from lightning_accum.health.facts import CellFacts, Weights
from lightning_accum.nn import LeakyIntegrator, PoissonEncoder, ShortTermPlasticity

_STEPS = 100  # between spikes of which a kernel that learns says something
_TINY = 1e-12
_OF_ZERO = {
    "pseudo-derivative": "the pseudo-derivative of its neurons was 0 at every potential that"
    " was looked at: give the rule the neuron's own `threshold=`, and by `membrane=` its"
    " potential before the reset, or a wider `surrogate=`.",
    "feedback": "all weights of its feedback were 0, so that no error reached the neurons: if"
    " they are those of the readout, give it other first weights, or train it too; or take"
    " `RandomFeedback`.",
}


def rule_of(trainer: CellTrainer | None) -> Rule | None:
    """Returns the rule of a trainer that has one."""
    rule = getattr(trainer, "rule", None)
    return rule if isinstance(rule, Rule) else None


def follows_error(trainer: CellTrainer) -> bool:
    """Returns whether changes follow an error, by which the whole network should learn."""
    rule = rule_of(trainer)
    return rule is not None and (follows_gradient(rule) or "feedback" in vars(rule))


def why_zero(name: str) -> str:
    """Returns what it means that ``name``, by which changes are multiplied, was always 0."""
    return _OF_ZERO.get(name) or (
        f"`{name}` of the rule was always 0: look at how it is computed, and give it to the"
        " call that evaluates the steps, which may be your own in `training_step`."
    )


def weak_kernel(h: Mapping[str, Any], device: torch.device) -> str:
    """Returns how small a kernel is if it is next to nothing, and the remedy; otherwise empty."""
    if not callable(kernel := h.get("kernel")):
        return ""
    dt = h["dt"]
    apart = dt * torch.arange(-_STEPS, _STEPS + 1.0, device=device)
    largest = float(changes(kernel, apart).detach().abs().max())
    if not largest < _TINY:
        return ""
    return (
        f"Its kernel is at most {largest:.0e} for spikes that are up to {_STEPS} steps of {dt:g}"
        " ms apart: it gets differences in ms, not in seconds or in steps, and returns the change"
        " of the weight, so look at its time constant and its factor."
    )


_STEPPED = PoissonEncoder, LeakyIntegrator, ShortTermPlasticity
# What torch's schedulers call their length: of the whole fit, or of a warm-up, which may be short.
_ENDS, _WARM_UP = ("T_max", "total_steps"), "total_iters"


def setup(
    trainer: CellTrainer, model: nn.Module, others: Sequence[CellTrainer]
) -> Iterator[tuple[str, str]]:
    """Yields what is wrong before the first batch: the cell and the text."""
    for name, _ in trainer.named_cells:
        for other in (trainer, *others):
            if text := twin(trainer, name, other):
                yield name, text
    known = sorted({float(state.options.dt) for state in trainer.cell_states.values()})
    for path, module in model.named_modules():
        own = module.dt if known and isinstance(module, _STEPPED) else None
        if own is not None and not any(math.isclose(own, dt) for dt in known):
            should = " or ".join(f"{dt:g}" for dt in known)
            text = (
                f"Argument `dt` of the {type(module).__name__} `{path}` should be the step of the"
                f" cells, {should} ms. Found `dt = {own:g}`, so that its rate or its time"
                f" constant is another one than was given: give it `dt={known[0]:g}`."
            )
            yield path, text


def twin(trainer: CellTrainer, name: str, other: CellTrainer) -> str:
    """Returns that a cell was registered before with equal settings; empty if it was not."""
    cell, ours, theirs = trainer.registry.cell(name), trainer.cell_states, other.cell_states
    for known, (its, _) in other.named_cells if type(other) is type(trainer) else ():
        if other is trainer and known == name:
            break
        both = its == cell and name in ours and known in theirs
        if both and same_settings(ours[name], theirs[known]):
            where = "" if other is trainer else " of another callback"
            return (
                f"The connection and the neuron of cell `{name}` should be trained once by"
                f" `{trainer.title}` with the same settings. Found them in cell `{known}`"
                f"{where} too, so that they learn twice as fast: leave one out, or raise the rates."
            )
    return ""


def layout(cell: str, shape: torch.Size, time_dim: int | None, size: int) -> str:
    """Returns that time and batch are exchanged in a window; empty if they are not."""
    steps, samples = shape[:2]
    where = f"The neuron of cell `{cell}` returned"
    if size < 2 or len(shape) < 3 or samples % size == 0:
        return ""
    if time_dim == 0 and steps == size:
        return (
            f"{where} [{steps}, {samples}, ...], which its rule takes as {steps} steps of {samples}"
            f" samples, and the loader's batches have {size} samples: time should come first,"
            " `x.transpose(0, 1)`."
        )
    if time_dim is None and steps == 1 and len(shape) == 4 and shape[2] == size:
        return (
            f"{where} [{samples}, {size}, ...], which its rule takes as {samples} samples in a"
            f" single step, and the loader's batches have {size} samples: if it takes whole"
            " sequences, pass `time_dim=0` to the trainer."
        )
    return ""


def unit(scheduler: LRScheduler, interval: str, epochs: int, batches: int, updates: int) -> str:
    """Says that a schedule's length is in the other unit than its interval; empty if not."""
    own = (
        epochs > 0 and type(scheduler).__module__ == LRScheduler.__module__
    )  # whose lengths are known
    name = next((each for each in (*_ENDS, _WARM_UP) if own and hasattr(scheduler, each)), "")
    length: int = getattr(scheduler, name, 0)
    if interval == "epoch" and length in (batches, updates) and length > epochs:
        found = "updates" if length == updates else "batches"
        right, other, value = epochs, "update", updates
    elif interval == "update" and 1 < epochs == length < updates and name in _ENDS:
        found, right, other, value = "epochs", updates, "epoch", epochs
    else:
        return ""
    return (
        f"Argument `{name}` of the `{type(scheduler).__name__}` in `lr_scheduler` should be a"
        f" number of {interval}s for `lr_interval={interval!r}`; this fit has {right}. Found"
        f" `{name} = {length}`, the number of its {found}: pass `{name}={right}`, or"
        f" `{name}={value}` and `lr_interval={other!r}`."
    )


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
        left, moves = [], False
        for name, p in self._learning():
            if (began := self._began.get(id(p))) is None:
                continue
            if version(p) == began[0] and Weights.of(p).same(began[1]):
                left.append((name, id(p)))
            else:
                moves = True
        if self._walls() and self._optimized is not None and not self._rule:
            known = self._optimized  # others may be left as they are on purpose
            return [name for name, key in left if key in known], moves
        return [name for name, _ in left], moves

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
        paths, first = [path for path, _ in self._model.named_modules()], left[0].rpartition(".")[0]
        last = walls[-1] if walls else None  # neurons that may come after the first of these
        above = last and (first.startswith(f"{last}.") or paths.index(first) <= paths.index(last))
        if moves and above:
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


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return quoted(names[:_MOST], ", ") + more
