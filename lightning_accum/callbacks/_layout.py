"""The check that recorded activity has time and batch in the dimensions that the rule assumes."""

from __future__ import annotations

import math
import warnings
from typing import Any

import lightning.pytorch as pl
from torch import Tensor

from lightning_accum.callbacks._host import CellHost
from lightning_accum.observe import WindowRecorder

_MANY = (dict, list, tuple)


def check_layout(host: CellHost, trainer: pl.Trainer, batch: Any) -> None:
    """Warns if the loader's batch size is in another dimension than a rule assumes.

    Args:
        host: the host of the cells.
        trainer: the Lightning trainer, whose loader knows the size of a batch.
        batch: the batch of which activity was recorded.
    """
    size = getattr(trainer.train_dataloader, "batch_size", None)
    if not isinstance(size, int) or size < 2:
        return
    items = [item.shape for item in _tensors(batch) if item.ndim]
    given = [shape[:2] for shape in items if len(shape) > 2]
    # an encoder added the time dimension to a batch of the loader's size
    encoded = not given and any(shape[0] == size for shape in items)
    for (cell, side), monitor in host.trainer.named_monitors:
        recorder = monitor.reducer
        window = recorder.window() if side == "post" else None
        if window is None or window.ndim < 3:
            continue
        steps, samples, inner = window.shape[0], window.shape[1], window.shape[2]
        where = f"The neuron of cell `{cell}` returned"
        known = encoded or window.shape[:2] in given
        if recorder.time_dim == 0 and steps == size != samples and known:
            warnings.warn(
                f"{where} [{steps}, {samples}, ...], which its rule takes as {steps} steps of"
                f" {samples} samples, and the loader's batches have {size} samples: time should"
                " come first, `x.transpose(0, 1)`.",
                UserWarning,
                stacklevel=2,
            )
        if isinstance(recorder, WindowRecorder) and recorder.time_dim == 0 and samples == 1:
            _warn_of_single_samples(host, cell, recorder.sequences, steps, size)
        flat = steps == 1 and window.ndim == 4  # one step of a layer without spatial dimensions
        if recorder.time_dim is None and flat and inner == size != samples:
            warnings.warn(
                f"{where} [{samples}, {inner}, ...], which its rule takes as {samples} samples in"
                f" a single step, and the loader's batches have {size} samples: if it takes whole"
                " sequences, pass `time_dim=0` to the rule.",
                UserWarning,
                stacklevel=2,
            )


def _warn_of_single_samples(
    host: CellHost, cell: str, sequences: int, steps: int, size: int
) -> None:
    """Warns if the samples of a batch came one after another, in one window.

    Args:
        host: the host of the cells.
        cell: the name of the cell.
        sequences: how many sequences of one sample the neuron returned in the window.
        steps: the number of steps of the window.
        size: how many samples the loader's batches have.
    """
    neuron = host.trainer.get_cell(cell)[0].neuron
    reset_within = 0 < getattr(neuron, "steps_since_reset", math.inf) < steps  # the rule tells it
    if sequences < size or sequences % size or reset_within or host.carry:
        return
    warnings.warn(
        f"Cell `{cell}` should see the samples of a batch side by side, in `[T, B, ...]`. Found"
        f" that its neuron, a `{type(neuron).__name__}`, returned {sequences} sequences of one"
        f" sample, and the loader's batches have {size} samples, so that all of them count as one"
        " long sequence: call the layer once with all samples, or pass `carry=True` if they are"
        " pieces of one stream.",
        RuntimeWarning,
        stacklevel=3,
    )


def _tensors(batch: Any) -> list[Tensor]:
    items = batch.values() if isinstance(batch, dict) else batch
    many = [batch] if isinstance(batch, Tensor) else items if isinstance(batch, _MANY) else []
    return [each for each in many if isinstance(each, Tensor)]
