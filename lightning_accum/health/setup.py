"""What is known before the first batch, or by it: layout, steps, twins, places and limits."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from lightning_accum.cells.state import same_settings
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.nn import LeakyIntegrator, PoissonEncoder, ShortTermPlasticity

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
    known = epochs > 0 and type(scheduler).__module__ == LRScheduler.__module__  # its length
    name = next((each for each in (*_ENDS, _WARM_UP) if known and hasattr(scheduler, each)), "")
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
