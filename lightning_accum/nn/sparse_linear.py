"""A connection through a fixed set of synapses, whose weights are one vector."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_finite, check_integers, check_tensors
from lightning_accum._state import CheckedState
from lightning_accum.sparse.events import Events, publish_events
from lightning_accum.sparse.library import has_kernel
from lightning_accum.sparse.search import first_of_each, stable_order
from lightning_accum.sparse.synapses import Synapses, transmit
from lightning_accum.updates import Updatable

_BUILD_BYTES = 32  # of a synapse, that it takes to draw and sort them, beyond what is kept
_INDEX_BYTES = 12  # of a synapse, that is kept
_BLOCK = 1 << 22  # synapses that are drawn at a time


@final
class SparseLinear(Updatable, CheckedState):
    r"""Connects inputs to outputs by a fixed set of synapses.

    .. math:: y_o = b_o + \sum_{i : (o, i) \in S} w_{oi}\, x_i

    It equals a ``Linear`` whose other weights are zero, and takes time and memory in proportion to
    synapses: 16 bytes for each in float32. Only the synapses of inputs that are not zero are
    visited, on a CPU for which the package has its kernel. Rules train ``weight``, as that of a
    ``Linear``: all that sum products of both sides, or decay. A rule whose change of a weight
    depends on other weights, such as :class:`~lightning_accum.rules.Sanger`, is rejected.

    ``weight`` has an entry for each synapse, sorted by input and then by output. The state dict has
    ``weight``, ``starts``, ``outputs`` and ``bias``.

    Args:
        in_features: size of the input.
        out_features: size of the output.
        density: the share of inputs that each output is connected to. Each output has the same
            number of synapses, at least one, from inputs that are drawn at random without
            replacement.
        indices: the synapses instead, ``[2, synapses]``, in any order: their outputs, and their
            inputs. Those of a mask ``[out, in]`` are ``mask.nonzero().T``.
        bias: whether to add a learned bias.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Attributes:
        weight: ``[synapses]``.
        starts: ``[in_features + 1]`` int64, the first synapse of each input.
        outputs: ``[synapses]`` int32, the output of each synapse.
        starts_of_outputs: ``[out_features + 1]`` int64, the first synapse of each output in the
            order of outputs and then of inputs.
        order: ``[synapses]`` int32, the place of each in ``weight``, in that order.
        inputs: ``[synapses]`` int32, the input of each, in that order.

    Raises:
        ValueError: if not exactly one of ``density`` and ``indices`` is given, or it does not fit.
        MemoryError: if the synapses would not fit in memory.

    Example:
        >>> import torch
        >>> connection = SparseLinear(1000, 500, density=0.1, bias=False)
        >>> connection.weight.shape
        torch.Size([50000])
        >>> connection(torch.rand(100, 8, 1000) < 0.02).shape
        torch.Size([100, 8, 500])
    """

    starts: Tensor
    outputs: Tensor
    starts_of_outputs: Tensor
    order: Tensor
    inputs: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        density: float | None = None,
        indices: Tensor | None = None,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_sizes(in_features=in_features, out_features=out_features)
        if (density is None) == (indices is None):
            raise ValueError(
                "Arguments `density` and `indices` should not both be given, or both be left out."
                f" Found `density = {density}`, and `indices` {'not ' * (indices is None)}given."
            )
        self.in_features, self.out_features = in_features, out_features
        if indices is None:
            assert density is not None
            each = _each_of(density, in_features)
            _check_memory(each * out_features, dtype)
            inputs = _drawn(each, in_features, out_features)
            outputs = torch.arange(out_features, dtype=torch.int32).repeat_interleave(each)
        else:
            _check_indices(indices, out_features, in_features)
            _check_memory(indices.shape[1], dtype)
            outputs, inputs = indices.cpu()
        self._set(outputs, inputs)
        self.weight = nn.Parameter(torch.empty(len(self.outputs), dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_features, dtype=dtype)) if bias else None
        self.reset_parameters()
        self.to(device)

    def reset_parameters(self) -> None:
        """Draws weights and biases as ``torch.nn.Linear`` does for as many inputs as there are."""
        each = self.starts_of_outputs.diff().clamp(min=1)
        bound = each.to(self.weight).rsqrt()
        with torch.no_grad():
            self.weight.uniform_(-1, 1).mul_(bound.index_select(0, self.outputs))
            if self.bias is not None:
                self.bias.uniform_(-1, 1).mul_(bound)

    @property
    def by_input(self) -> Synapses:
        """The synapses sorted by input, as their weights are."""
        return Synapses(self.starts, self.outputs)

    @property
    def by_output(self) -> Synapses:
        """The synapses sorted by output."""
        return Synapses(self.starts_of_outputs, self.inputs, self.order)

    def outputs_of(self, name: str) -> tuple[Tensor, int] | None:
        """Returns the output of each entry of a parameter, and their number, for a constraint."""
        return (self.outputs, self.out_features) if name == "weight" else None

    @property
    def indices(self) -> Tensor:
        """The outputs and the inputs of all weights, ``[2, synapses]`` int32."""
        return torch.stack((self.outputs, _owners(self.starts)))

    def forward(self, x: Tensor) -> Tensor:
        """Transmits a batch.

        Args:
            x: input of any dtype, e.g. boolean spikes, shape ``[..., in_features]``.

        Returns:
            Weighted sums, shape ``[..., out_features]``.
        """
        check_tensors(x=x)
        if x.ndim == 0 or x.shape[-1] != self.in_features:
            raise ValueError(
                f"Argument `x` should have shape [..., {self.in_features}]. Found shape"
                f" {list(x.shape)}."
            )
        raster, events = x.reshape(-1, self.in_features), None
        if x.dtype == torch.bool and has_kernel(x.device, self.weight.dtype):
            events = Events(raster)
            publish_events(x, events)
        elif x.dtype != torch.bool:
            raster = raster.to(self.weight.dtype)
        out = transmit(raster, self.weight, self.by_input, self.by_output, events)
        out = out if self.bias is None else out + self.bias
        return out.reshape(*x.shape[:-1], self.out_features)

    def dense(self) -> Tensor:
        """Returns the weights as a matrix ``[out, in]``, zero where there is no synapse."""
        matrix = self.weight.new_zeros(self.out_features, self.in_features)
        return matrix.index_put((self.outputs.long(), _owners(self.starts).long()), self.weight)

    def _set(self, outputs: Tensor, inputs: Tensor) -> None:
        """Sets the synapses, in any order; both indices are made anew."""
        outputs, inputs = outputs.int(), inputs.int()
        order = _sorted(outputs, self.out_features, _sorted(inputs, self.in_features))
        # first by output, within it by input; then by input, within it by output
        self._place("inputs", inputs.index_select(0, order))
        outputs = outputs.index_select(0, order)
        self._place("starts_of_outputs", _starts(outputs, self.out_features))
        by_input = _sorted(self.inputs, self.in_features)
        self._place("outputs", outputs.index_select(0, by_input), persistent=True)
        sources = self.inputs.index_select(0, by_input)
        self._place("starts", _starts(sources, self.in_features), persistent=True)
        places = torch.arange(len(order), dtype=torch.int32, device=order.device)
        self._place("order", torch.empty_like(places).index_copy_(0, by_input.long(), places))

    def _place(self, name: str, index: Tensor, persistent: bool = False) -> None:
        """Registers a buffer, or writes over one of the same shape."""
        known = self._buffers.get(name)
        if known is None or known.shape != index.shape:
            self.register_buffer(name, index, persistent)
        else:
            known.copy_(index)

    def check_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Raises an error if :meth:`load_state_dict` would; loads nothing.

        Args:
            state_dict: the result of ``state_dict()``.
            strict: whether the keys have to match.

        Raises:
            TypeError: if it is not a mapping.
            RuntimeError: if it does not fit.
        """
        super().check_state_dict(state_dict, strict)
        if reason := self._why_not(state_dict, ""):
            raise RuntimeError(reason)

    def _why_not(self, state: Mapping[str, Any], prefix: str) -> str | None:
        """Returns what is wrong with the synapses of a state, ``None`` for nothing."""
        starts, outputs = (state.get(f"{prefix}{name}") for name in ("starts", "outputs"))
        if starts is None and outputs is None:
            return None
        found = "only one of both" if starts is None or outputs is None else ""
        if starts is not None and outputs is not None:
            if starts.shape != self.starts.shape or outputs.shape != self.outputs.shape:
                return None  # torch says so
            if not _are_sorted(starts, outputs, self.out_features):
                found = "others"
        if not found:
            return None
        return (
            "The state of `SparseLinear` should hold the first synapse of each input as `starts`,"
            " and the output of each synapse, in order within an input, as `outputs`. Found"
            f" {found}."
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Loads synapses, and makes the index by output again."""
        if reason := self._why_not(state_dict, prefix):
            rest[-1].append(f"`{prefix[:-1] or type(self).__name__}`: {reason}")
            return
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._set(*self.indices)

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        sizes = f"{self.in_features}, {self.out_features}, synapses={len(self.weight)}"
        return f"{sizes}, bias={self.bias is not None}"


def _check_sizes(**sizes: int) -> None:
    """Raises an error unless arguments, passed by their names, are sizes of a layer."""
    check_integers(**sizes)
    for name, size in sizes.items():
        if not 0 < size < 2**31:
            raise ValueError(
                f"Argument `{name}` should be a size from 1 to 2^31 - 1. Found `{name} = {size}`."
            )


def _each_of(density: float, inputs: int) -> int:
    """Returns the number of synapses of each output, after a check of the density."""
    check_finite(density=density)
    if not 0 < density <= 1:
        raise ValueError(
            "Argument `density` should be a share of inputs, above 0 and at most 1. Found"
            f" `density = {density}`."
        )
    return max(1, round(density * inputs))


def _check_indices(indices: Tensor, outputs: int, inputs: int) -> None:
    """Raises an error unless these are synapses of a connection, each of them once."""
    check_tensors(indices=indices)
    fits = indices.ndim == 2 and len(indices) == 2 and indices.dtype in (torch.int32, torch.int64)
    if fits and indices.numel():
        ends = torch.tensor([[outputs], [inputs]], device=indices.device)
        fits = bool(((indices >= 0) & (indices < ends)).all())
    if not fits:
        raise ValueError(
            "Argument `indices` should be integers of shape [2, synapses]: the output of each"
            f" synapse, below {outputs}, and its input, below {inputs}. Found {indices.dtype} of"
            f" shape {list(indices.shape)}: those of a mask [out, in] are `mask.nonzero().T`."
        )
    keys = indices[0].long() * inputs + indices[1]
    if len(keys.unique()) != len(keys):
        raise ValueError(
            "Argument `indices` should have each synapse once. Found"
            f" {len(keys) - len(keys.unique())} of {len(keys)} again: call `indices.unique(dim=1)`."
        )


def _check_memory(synapses: int, dtype: torch.dtype | None) -> None:
    """Raises a ``MemoryError`` if synapses would not fit in memory."""
    size = (dtype or torch.get_default_dtype()).itemsize + _INDEX_BYTES
    needed, free = synapses * (size + _BUILD_BYTES), _free_memory()
    if synapses >= 2**31 or needed > free:
        raise MemoryError(
            "The synapses of a SparseLinear should be fewer than 2^31, and fit in memory. Found"
            f" {synapses:,} of {size} bytes each, {synapses * size / 1e9:.1f} GB, and"
            f" {needed / 1e9:.1f} GB while they are made, with {free / 1e9:.1f} GB free: give it a"
            " lower `density`, or fewer neurons."
        )


def _free_memory() -> float:
    """Returns the bytes of memory that are free; infinite where that is not known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = dict(line.split(":", 1) for line in lines)["MemAvailable"]
        return 1024.0 * int(free.split()[0])
    except (OSError, KeyError, ValueError):
        return math.inf


def _drawn(each: int, inputs: int, outputs: int) -> Tensor:
    """Returns ``[outputs * each]`` inputs, of each output in order, drawn without replacement."""
    if 2 * each > inputs:  # draw those that are left out
        blocks = max(1, _BLOCK // inputs)
        parts = []
        for start in range(0, outputs, blocks):
            size = min(blocks, outputs - start)
            kept = torch.ones(size, inputs, dtype=torch.bool)
            if each < inputs:
                kept.scatter_(1, _distinct(inputs - each, inputs, size), False)
            parts.append(kept.nonzero()[:, 1].int())
        return torch.cat(parts)
    blocks = max(1, _BLOCK // each)
    sizes = [min(blocks, outputs - start) for start in range(0, outputs, blocks)]
    return torch.cat([_distinct(each, inputs, size).flatten().int() for size in sizes])


def _distinct(each: int, inputs: int, outputs: int) -> Tensor:
    """Returns ``[outputs, each]`` numbers below ``inputs``, distinct and in order in each row."""
    rows = torch.arange(outputs).repeat_interleave(each)
    keys: Tensor = rows * inputs + torch.randint(inputs, rows.shape)
    while True:  # those that were drawn twice are drawn again
        keys = torch.unique(keys)
        missing = each - torch.bincount(keys // inputs, minlength=outputs)
        rows = torch.arange(outputs).repeat_interleave(missing)
        if not len(rows):
            return keys.remainder_(inputs).view(outputs, each)
        keys = torch.cat((keys, rows * inputs + torch.randint(inputs, rows.shape)))


def _sorted(neurons: Tensor, count: int, before: Tensor | None = None) -> Tensor:
    """Returns the order that sorts synapses by a neuron, and keeps the order before within it."""
    if before is None:
        return stable_order(neurons, count).int()
    return before.index_select(0, stable_order(neurons.index_select(0, before), count).int())


def _starts(ordered: Tensor, count: int) -> Tensor:
    """Returns ``[count + 1]``, the first place of each neuron."""
    ends = torch.tensor([len(ordered)], device=ordered.device)
    return torch.cat((first_of_each(ordered, count).long(), ends))


def _owners(starts: Tensor) -> Tensor:
    """Returns ``[synapses]`` int32, the neuron that each synapse belongs to."""
    each = torch.arange(len(starts) - 1, dtype=torch.int32, device=starts.device)
    return each.repeat_interleave(starts.diff())


def _are_sorted(starts: Tensor, outputs: Tensor, count: int) -> bool:
    """Returns whether synapses are sorted by input, each with its outputs in order."""
    whole = all(not each.is_floating_point() and each.ndim == 1 for each in (starts, outputs))
    if not whole or starts[0] != 0 or starts[-1] != len(outputs) or (starts.diff() < 0).any():
        return False
    if len(outputs) and (outputs.min() < 0 or outputs.max() >= count):
        return False
    keys = _owners(starts).long() * count + outputs
    return bool((keys.diff() > 0).all())
