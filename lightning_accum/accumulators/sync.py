"""All accumulators of a model or a collection, synchronised together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from lightning_accum.accumulators._base import StreamAccumulator
from lightning_accum.distributed.gather import CAPACITY, gather_bytes
from lightning_accum.distributed.packing import from_bytes, to_bytes


def synchronize(accumulators: Any, capacity: int | None = None) -> None:
    """Computes many accumulators over all processes, with a single all-reduce.

    Each following ``compute`` returns the result computed here, without communication, until the
    accumulator is updated or reset; its states stay those of this process. All processes have to
    call this with the same accumulators in the same order, whether or not they have seen any
    values. With a single process, nothing happens.

    Args:
        accumulators: an accumulator, a module that has some anywhere within, such as a
            ``LightningModule``, a ``MetricCollection`` or a pipe, or a list or dictionary of these.
            Other metrics, and accumulators with ``sync_on_compute=False``, are left out.
        capacity: bytes of a process that fit into the all-reduce, the same in all processes; by
            default 4096 for each accumulator. A second all-reduce follows if a process has more.

    Raises:
        ValueError: if the accumulators are of several process groups.

    Example:
        >>> from lightning_accum.accumulators import Max, Mean, synchronize
        >>> found = {"loss": Mean(), "worst": Max()}
        >>> for accumulator in found.values():
        ...     accumulator.update(2.0)
        >>> synchronize(found)
        >>> found["loss"].compute()
        tensor(2., dtype=torch.float64)
    """
    found = [a for a in dict.fromkeys(_within(accumulators)) if a.sync_on_compute]
    found = [a for a in found if a.distributed_available_fn()]
    if not found:
        return
    group = found[0].process_group
    if any(a.process_group is not group for a in found):
        raise ValueError(
            "Argument `accumulators` should have one process group. Found several: call"
            " `synchronize` once for each."
        )
    data = to_bytes([a.metric_state for a in found])
    capacity = CAPACITY * len(found) if capacity is None else capacity
    rows = [from_bytes(row) for row in gather_bytes(data, capacity, found[0].device, group)]
    for accumulator, parts in zip(found, zip(*rows, strict=True), strict=True):
        accumulator.compute_over(parts)


def _within(accumulators: Any) -> Iterable[StreamAccumulator]:
    if isinstance(accumulators, nn.Module):
        for module in accumulators.modules():
            if isinstance(module, StreamAccumulator) and module.owns_states:
                yield module
    else:
        several = accumulators.values() if isinstance(accumulators, Mapping) else accumulators
        if isinstance(several, (str, bytes, Tensor)) or not isinstance(several, Iterable):
            raise TypeError(
                "Argument `accumulators` should be an accumulator, a module that has some, or a"
                f" list or dictionary of these. Found `{type(several).__name__}`."
            )
        for accumulator in several:
            yield from _within(accumulator)
