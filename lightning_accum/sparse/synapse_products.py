"""Products over a fixed set of synapses, in time and memory that are proportional to synapses."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_accum._compat.torch_internals import is_traced
from lightning_accum.functional.dtypes import as_numbers
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.events import Events, density
from lightning_accum.sparse.kernel_library import Kernel, arguments

_CHUNK = 1 << 20  # elements of a side that are converted at a time: 4 MB in float32


class Synapses(NamedTuple):
    """The synapses of a connection, sorted by the neurons of one side."""

    starts: Tensor  # int64 [neurons + 1], the first synapse of each neuron
    others: Tensor  # int32 [synapses], the neuron at the other end of each
    order: Tensor | None = None  # int32 [synapses], its place among the weights; None for the same

    def in_order(self, weight: Tensor) -> Tensor:
        """Returns the weights in this order."""
        return weight if self.order is None else weight.index_select(0, self.order)

    def by_place(self, values: Tensor) -> Tensor:
        """Returns values of this order in the order of the weights."""
        if self.order is None:
            return values
        return torch.empty_like(values).index_copy_(0, self.order.long(), values)


def transmit(
    x: Tensor, weight: Tensor, sources: Synapses, targets: Synapses, events: Events | None = None
) -> Tensor:
    r"""Multiplies ``[K, sources]`` by weights: :math:`y_{ko} = \sum_i x_{ki} w_{io}`."""
    # Gradients pass once. Events are those of `x`, if they are known.
    if is_traced():  # where the sum of a bag has no rule for derivatives or batches
        places = torch.arange(len(targets.others), device=weight.device)
        ends = torch.searchsorted(targets.starts, places, right=True) - 1
        sent = as_numbers(x, weight.dtype)[:, targets.others.long()] * targets.in_order(weight)
        return sent.new_zeros(len(x), len(targets.starts) - 1).index_add(1, ends, sent)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        out: Tensor = _Transmission.apply(x, weight, sources, targets, events)  # type: ignore[no-untyped-call]
        return out
    return _Transmission.forward(x, weight, sources, targets, events)


def plain_transmit(x: Tensor, weight: Tensor, targets: Synapses) -> Tensor:
    """Returns the same, the plain form: the sum over the synapses of each target."""
    offsets = targets.starts[:-1].to(targets.others.dtype)
    if offsets.is_cpu and bool((targets.starts.diff() < 0).any() | targets.starts[0]):
        library.check_done(library.OTHERS)  # which torch would read
    rows = as_numbers(x, weight.dtype).t().contiguous()
    if not rows.numel() or not len(weight):
        return weight.new_zeros(len(x), len(offsets))
    shares = targets.in_order(weight)
    return F.embedding_bag(targets.others, rows, offsets, mode="sum", per_sample_weights=shares).t()


class _Transmission(torch.autograd.Function):
    """The product, whose derivatives are products over the same synapses."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, sources: Synapses, targets: Synapses, events: Events | None
    ) -> Tensor:
        """Visits the synapses of events if there is a kernel."""
        out = _by_events(x, weight, sources, len(targets.starts) - 1, events)
        return plain_transmit(x, weight, targets) if out is None else out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keeps the input and the weights."""
        x, weight, *ctx.synapses, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients by the input and the weights."""
        (x, weight), (sources, targets) = ctx.saved_tensors, ctx.synapses
        by_x, by_weight, *_ = ctx.needs_input_grad
        return (
            transmit(grad, weight, targets, sources) if by_x else None,
            sum_pairs(grad, x, targets, sources, weight.dtype) if by_weight else None,
            *(None,) * 3,
        )


def sum_pairs(
    post: Tensor, pre: Tensor, by_output: Synapses, by_input: Synapses, dtype: torch.dtype
) -> Tensor:
    r"""Sums products over the rows of both sides: :math:`d_{io} = \sum_k y_{ko} x_{ki}`."""
    # The events of the side that has fewer are visited, if there is a kernel.
    if library.has_kernel(post.device, dtype):
        sides = [(post, pre, by_output), (pre, post, by_input)]
        own, other, index = min(sides, key=lambda side: density(side[0]))
        found = _visited(own, as_numbers(other, dtype).contiguous(), index)
        if found is not None:
            return index.by_place(found)
    return plain_sum_pairs(as_numbers(post, dtype), as_numbers(pre, dtype), by_input)


def plain_sum_pairs(post: Tensor, pre: Tensor, by_input: Synapses) -> Tensor:
    """Returns the same, the plain form, in chunks of synapses."""
    ys, xs = post.t().contiguous(), pre.t().contiguous()
    total = post.new_zeros(len(by_input.others))
    rows = max(1, _CHUNK // max(1, len(post)))
    for start in range(0, len(total), rows):
        outputs = by_input.others[start : start + rows]
        each = by_input.starts.clamp(start, start + len(outputs)).diff()
        inputs = torch.arange(len(each), device=each.device).repeat_interleave(each)
        y, x = ys.index_select(0, outputs), xs.index_select(0, inputs)
        total[start : start + rows] = torch.linalg.vecdot(y, x)
    return by_input.by_place(total)


def _by_events(
    x: Tensor, weight: Tensor, sources: Synapses, targets: int, events: Events | None
) -> Tensor | None:
    """Returns what the events of an input transmit; ``None`` if there is no kernel."""
    kernel = _kernel_for(sources, x.shape[1], weight)
    if kernel is None or weight.shape != sources.others.shape:
        return None
    events, shares = _events_of(x, weight.dtype, events)
    starts = events.row_starts()
    if not library.are_places(starts, events.columns) or starts.shape != x.shape[:1]:
        return None
    out, weight = torch.empty(len(x), targets, dtype=weight.dtype), sources.in_order(weight)
    found = starts, events.columns, shares, len(events), *x.shape, targets
    synapses = *sources[:2], len(weight), weight
    threads = library.threads_among(len(x), _work(events, sources))
    library.check_done(kernel.transmit_events(*arguments(*found, *synapses, out, threads)))
    return out


def _visited(own: Tensor, values: Tensor, index: Synapses) -> Tensor | None:
    """Returns sums in the order of an index, by its neurons' events in some rows at a time."""
    kernel = _kernel_for(index, own.shape[1], values)
    if kernel is None or len(own) != len(values):
        return None
    out = values.new_zeros(len(index.others))
    rows = max(1, _CHUNK // max(1, own.shape[1]))
    for some, others in zip(own.split(rows), values.split(rows), strict=True):
        events, shares = _events_of(some, values.dtype, None)
        starts = events.row_starts()
        if not library.are_places(starts, events.columns):
            return None
        found = starts, events.columns, shares, len(events), *some.shape, values.shape[1]
        threads = library.threads_among(own.shape[1], _work(events, index))
        synapses = *index[:2], len(out), others
        library.check_done(kernel.sum_events(*arguments(*found, *synapses, out, threads)))
    return out


def _events_of(
    x: Tensor, dtype: torch.dtype, events: Events | None
) -> tuple[Events, Tensor | None]:
    """Returns the events of a matrix, and the values of those that are not spikes."""
    if x.dtype == torch.bool:
        return events or Events(x), None
    there = x != 0
    return Events(there), x[there].to(dtype)


def _work(events: Events, index: Synapses) -> int:
    """Returns about how many synapses events visit."""
    return len(events) * len(index.others) // max(1, len(index.starts) - 1)


def _kernel_for(index: Synapses, neurons: int, values: Tensor) -> Kernel | None:
    """Returns the kernel if C may read an index of so many neurons; it checks what it visits."""
    starts, others, _ = index
    fits = library.are_places(others) and library.is_plain(values) and library.is_plain(starts)
    if not fits or starts.dtype != torch.int64 or starts.shape != (neurons + 1,):
        return None
    return library.kernel_for(values.dtype)
