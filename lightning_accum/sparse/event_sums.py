"""Products with a raster, computed by its events, in torch or by the kernel."""

import ctypes
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_accum.functional.dtypes import as_numbers
from lightning_accum.functional.traces import reverse_trace, trace
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.eprop import MOST_CLASSES, Folding
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_library import At, Int, Real, arguments, fields


def event_matmul(events: Events, table: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""Multiplies a raster by a matrix: :math:`Y_{kd} = \sum_e s_{ke} W_{ed} + b_d`."""
    # The plain form is `raster.to(table.dtype) @ table`; this adds one row for each event.
    out = multiply_events(events, table.t(), bias)
    if out is None:
        out = F.embedding_bag(events.columns, table.contiguous(), events.row_starts(), mode="sum")
        out = out if bias is None else out + bias
    return out


class EventProduct(NamedTuple):
    """A product with a raster that is not computed yet: the currents ``[T, B, N]`` of spikes."""

    events: Events
    weight: Tensor  # [N, E]
    bias: Tensor | None
    shape: torch.Size

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the currents."""
        return self.weight.dtype

    def values(self) -> Tensor:
        """Returns the currents."""
        return event_matmul(self.events, self.weight.t(), self.bias).view(self.shape)

    def run(self, neurons: ctypes.Structure) -> bool:
        """Gives the currents to neurons of the kernel, unwritten; returns whether it is done."""
        # Columns are summed apart from each other, and neurons that compete have to meet.
        fits = neurons.losers < 0 and not neurons.lateral and self.weight.shape[0] == neurons.size
        if not fits or self.events.shape != (neurons.steps * neurons.batch, self.weight.shape[1]):
            return False
        return multiply_events(self.events, self.weight, self.bias, neurons) is not None


def event_outer_sum(events: Events, rows: Tensor, values: Tensor | None = None) -> Tensor:
    r"""Sums outer products: :math:`D_{ed} = \sum_k s_{ke} v_{ke} Y_{kd}`."""
    # The plain form is `(raster * values).T @ rows`; this adds one row for each event.
    weights = None if values is None else events.weights(values).to(rows.dtype)
    at, starts = events.ordered()
    return F.embedding_bag(at, rows.contiguous(), starts, mode="sum", per_sample_weights=weights)


RowTrace: TypeAlias = Literal["none", "cumulative", "nearest", "reverse"]
_MODES: tuple[RowTrace, ...] = ("none", "cumulative", "nearest", "reverse")


class Rows(NamedTuple):
    """Rows ``[T, B, ..., D]`` of a sum of outer products: values, or a trace that is not kept."""

    values: Tensor  # spikes, or values
    trace: RowTrace = "none"  # which trace of the values
    decay: float = 0.0  # the share of the trace that is left after one step
    before: Tensor | None = None  # [B, ..., D] the trace before the first step, or zero
    last: Tensor | None = None  # [B, ..., D] receives that of the step that is computed last
    # [T, B, ...] factors of the rows of a trace; of the values without one, or with a reverse one
    weights: Tensor | None = None
    folding: Folding | None = None  # makes the values, which only have shape and dtype then


def computed(rows: Rows, dtype: torch.dtype) -> Tensor:
    """Returns all values of rows, the plain form of what the kernel computes on the way."""
    kind, decay, before, last, weights, folding = rows[1:]
    values = as_numbers(rows.values if folding is None else folding.values(), dtype)
    factors = None if weights is None else weights.unsqueeze(-1)
    if factors is not None and kind in ("none", "reverse"):
        values = values * factors
    if kind == "none":
        return values
    if kind == "reverse":
        found = reverse_trace(values, decay, behind=None if before is None else decay * before)
    else:
        found = trace(values, decay, kind, before)
    if last is not None:
        last.copy_(found[0 if kind == "reverse" else -1])
    return found if factors is None or kind == "reverse" else found * factors


class _Source(ctypes.Structure):
    _fields_ = (
        *fields(At, "values weights before last bits folded"),
        *fields(Real, "decay rate"),
        ("mode", Int),
    )


def multiply_events(
    events: Events, table: Tensor, bias: Tensor | None, neurons: ctypes.Structure | None = None
) -> Tensor | None:
    """Returns ``[K, D]``, the sums of those columns of ``table`` that a row's events select."""
    # If there are neurons, they take the sums as their currents, and none are returned.
    starts, columns = events.row_starts(), events.columns
    tensors = (table,) if bias is None else (table, bias)
    grads = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    fits = bias is None or (bias.dtype == table.dtype and bias.shape == table.shape[:1])
    fits = fits and library.are_places(starts, columns) and library.is_plain(*tensors)
    if grads or not fits:
        return None
    kernel = library.kernel_for(table.dtype)
    if kernel is None:
        return None
    (outputs, inputs), rows = table.shape, len(starts)
    out = torch.empty(0 if neurons is not None else rows, outputs, dtype=table.dtype)
    samples = rows if neurons is None else neurons.batch
    pieces = max(-(-outputs * table.itemsize // library.COLUMN_BYTES), samples // 4)
    threads = library.threads_among(pieces, len(columns) * outputs // 8)
    index = starts, columns, len(columns), rows, inputs, outputs
    to = out, None if neurons is None else ctypes.byref(neurons)
    lines = inputs + (0 if neurons is None else 2 * samples)  # the kernel copies states
    memory = library.work_memory(threads * lines * library.COLUMN_BYTES)
    values = arguments(*index, table, bias, *to, memory, threads)
    library.check_done(kernel.multiply_events(*values))
    return out


def outer_sum_into(
    total: Tensor,
    onto: bool,
    events: Events,
    sources: Sequence[tuple[float, Rows]],
    values: Tensor | None = None,
    by_event: bool = False,
) -> bool:
    """Sums outer products with rows that are made on the way; returns if a kernel can."""
    # Its plain form is `event_outer_sum` of the sum of all sources, transposed.
    shares = None if values is None else events.weights(values).to(total.dtype)
    rows, starts = events.ordered()
    dtype, shape = total.dtype, sources[0][1].values.shape
    fits = library.are_places(starts, rows) and library.is_plain(total) and len(shape) > 1
    sizes = (shape[-1], len(starts)) if fits else ()
    if not fits or total.shape != (sizes[::-1] if by_event else sizes):
        return False
    kernel = library.kernel_for(dtype, (shares, rows.shape))
    if kernel is None:
        return False
    for _, each in sources:
        if not _fits(each, shape, dtype):
            return False
    steps, batch, outputs = shape[0], shape[1:-1].numel(), shape[-1]
    pieces = -(-outputs * dtype.itemsize // library.COLUMN_BYTES)
    work = (len(rows) + len(sources) * steps * batch) * outputs
    threads = library.threads_among(pieces, work // 8)
    lines = (steps + 3) * batch + MOST_CLASSES  # for rows, and for the states behind them
    share = -(-pieces * steps * batch * 4 // 64) * 64  # of packed spikes, in whole cache lines
    size = len(sources) * share + threads * lines * library.COLUMN_BYTES
    begin = library.work_memory(size).value or 0
    found, foldings, packed = (_Source * len(sources))(), list[ctypes.Structure](), dict[int, int]()
    for at, (rate, each) in enumerate(sources):
        bits = folded = None
        if each.folding is not None:
            foldings.append(each.folding.for_kernel())
            folded = ctypes.addressof(foldings[-1])
        elif each.values.dtype is torch.bool:  # sources of the same spikes share them
            bits = packed.setdefault(each.values.data_ptr(), begin + at * share)
        tensors = arguments(each.values, each.weights, each.before, each.last)
        found[at] = _Source(*tensors, bits, folded, each.decay, rate, _MODES.index(each.trace))
    index = starts, rows, shares, len(rows), steps, batch, len(starts), outputs
    memory = At(begin + len(sources) * share)
    to = found, len(found), total, onto, by_event, memory, threads
    library.check_done(kernel.outer_events(*arguments(*index, *to)))
    return True


def _fits(rows: Rows, shape: torch.Size, dtype: torch.dtype) -> bool:
    """Returns whether rows are of the shape and dtype of a sum."""
    values = dtype if rows.values.is_floating_point() else torch.bool
    of_rows = library.are_values(dtype, (rows.weights, shape[:-1]))
    if rows.folding is not None:
        of_rows = rows.weights is None and rows.trace == "reverse" and rows.before is None
        of_rows = of_rows and rows.folding.suits_kernel()
    of_rows = of_rows and library.are_values(values, (rows.values, shape))
    return of_rows and library.are_values(dtype, (rows.before, shape[1:]), (rows.last, shape[1:]))
