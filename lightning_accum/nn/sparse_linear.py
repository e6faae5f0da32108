"""A connection through a fixed set of synapses, whose weights are one vector."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, final
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import Self

from lightning_accum._checked_state import CheckedState
from lightning_accum._checks import (
    check_finite,
    check_integers,
    check_tensors,
    check_value,
)
from lightning_accum._compat.torch_internals import is_traced, version
from lightning_accum.nn._arguments import check_sizes
from lightning_accum.nn._synapse_draws import draw_distinct, drawn_synapses, uniform
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_library import has_kernel
from lightning_accum.sparse.synapse_products import Synapses, transmit
from lightning_accum.updates import Updatable
from lightning_accum.updates.atomic_changes import call_uninterrupted

_BUILD_BYTES = 32  # of a synapse, that it takes to draw and sort them, beyond what is kept
_REPLACE_BYTES = 48  # the same, when some are replaced
_INDEX_BYTES = 16  # of a synapse, that is kept
_INDEX = "starts", "outputs", "order", "inputs", "starts_of_outputs"


class Replacement(NamedTuple):
    """A replacement of synapses that is computed, and not made yet."""

    keys: Tensor  # of all synapses then, in order
    new: Tensor  # [synapses] bool, those that are new
    weight: Tensor  # [synapses], what the weight will be
    calls: list[partial[Any]]  # functions written in C, which make it


@final
class SparseLinear(Updatable, CheckedState):
    r"""Connects inputs to outputs by a fixed set of synapses.

    .. math:: y_o = b_o + \sum_{i : (o, i) \in S} w_{oi}\, x_i

    It equals a ``Linear`` whose other weights are zero, and takes time and memory in proportion to
    synapses: 20 bytes for each in float32. Only the synapses of inputs that are not zero are
    visited, on a CPU for which the package has its kernel. Rules train ``weight``, as that of a
    ``Linear``: all that sum products of both sides, or decay. A rule whose change of a weight
    depends on other weights, such as :class:`~lightning_accum.rules.Sanger`, is rejected.

    ``weight`` has an entry for each synapse, sorted by input and then by output. The state dict has
    ``weight``, ``starts``, ``outputs`` and ``bias``. Weights and biases begin as those of a
    ``Linear`` with as many inputs as the output has synapses, evenly drawn from
    :math:`\pm 1 / \sqrt{n_o}`.

    Args:
        in_features: size of the input.
        out_features: size of the output.
        density: the share of inputs that each output is connected to. Each output has the same
            number of synapses, at least one, from inputs that are drawn at random without
            replacement.
        indices: the synapses instead, ``[2, synapses]``, in any order: their outputs, and their
            inputs. Those of a mask ``[out, in]`` are ``mask.nonzero().T``.
        bias: whether to add a learned bias.
        seed: draws synapses and first weights by this seed, for each output by itself, so that they
            do not depend on ``targets``. Synapses are then replaced by others of the same output.
        targets: the outputs that this connection has, by default all: a share of a large
            connection, such as :func:`~lightning_accum.cells.own_neurons` for
            :class:`~lightning_accum.Populations` in several processes. ``density`` needs a
            ``seed`` then, and ``indices`` still have the outputs of the whole, of which the others
            are left out.

    Attributes:
        out_features: number of outputs that this connection has.
        weight: ``[synapses]``.
        starts: ``[in_features + 1]`` int64, the first synapse of each input.
        outputs: ``[synapses]`` int32, the output of each synapse.

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

    # The index is no buffer, because averages of models round buffers that are integers. What DDP
    # sends to all processes is `index`, which has starts, outputs and their checksum.
    index: Tensor
    starts: Tensor
    outputs: Tensor
    # In the order of outputs and then of inputs: the first synapse of each output, the place of
    # each synapse in `weight`, and its input.
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
        seed: int | None = None,
        targets: range | None = None,
    ) -> None:
        super().__init__()
        check_sizes(in_features=in_features, out_features=out_features)
        _check_share(out_features, targets, seed, density)
        if (density is None) == (indices is None):
            raise ValueError(
                "Arguments `density` and `indices` should not both be given, or both be left out."
                f" Found `density = {density}`, and `indices` {'not ' * (indices is None)}given."
            )
        own = range(out_features) if targets is None else targets
        self.seed, self.targets = seed, targets if seed is None else own
        self.first, self.total, out_features = own.start, out_features, len(own)
        self.in_features, self.out_features = in_features, out_features
        if indices is None:
            assert density is not None
            check_finite(density=density)
            should = "a share of inputs, above 0 and at most 1"
            check_value(0 < density <= 1, "density", density, should)
            each = min(in_features, max(1, round(density * in_features)))
            _check_memory(each * out_features)
            with torch.device("cpu"):  # the same synapses on every device
                keys = drawn_synapses(each, in_features, out_features, seed, own.start)
        else:
            _check_indices(indices, self.total, in_features)
            inside = (indices[0] >= own.start) & (indices[0] < own.stop)
            _check_memory(int(inside.sum()))
            keys = (indices[1].long() * out_features + indices[0] - own.start)[inside]
        self.weight = nn.Parameter(torch.empty(len(keys)))
        self._set(keys.sort()[0].to(self.weight.device))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights and biases as ``torch.nn.Linear`` does for as many inputs as there are."""
        bound = self.starts_of_outputs.diff().clamp(min=1).to(self.weight).rsqrt()
        with torch.no_grad():
            if self.seed is None:
                self.weight.uniform_(-1, 1)
            else:
                self.weight.copy_(self.draw(self.seed) * 2 - 1)
            self.weight.mul_(bound.index_select(0, self.outputs))
            if self.bias is None:
                return
            if self.seed is None:
                self.bias.uniform_(-1, 1)
            else:
                places = torch.arange(len(bound), device=bound.device) + self.first
                self.bias.copy_(uniform(self.seed, places, dtype=bound.dtype) * 2 - 1)
            self.bias.mul_(bound)

    def draw(self, seed: int) -> Tensor:
        """Draws a number from 0 to below 1 for each synapse, by the seed and its two neurons.

        In :class:`~lightning_accum.Populations` that several processes divide, first weights and
        delays of such numbers do not depend on the number of processes.

        Args:
            seed: of the numbers.

        Returns:
            ``[synapses]``, in the dtype of the weight.
        """
        check_integers(seed=seed)
        ends = self.outputs.long() + self.first, _owners(self.starts).long()
        return uniform(seed, *ends, dtype=self.weight.dtype)

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
        if x.ndim == 0 or x.shape[-1] != self.in_features or x.is_complex():
            raise ValueError(
                f"Argument `x` should be real, of shape [..., {self.in_features}]. Found {x.dtype}"
                f" of shape {list(x.shape)}."
            )
        if self._seen != math.inf and not is_traced() and version(self.index) != self._seen:
            self._receive()
        self._check_sizes()
        raster, events = x.reshape(x.shape[:-1].numel(), self.in_features), None
        if x.dtype == torch.bool:
            events = Events(raster) if has_kernel(x.device, self.weight.dtype) else None
        else:
            raster = raster.to(self.weight.dtype)
        out = transmit(raster, self.weight, self.by_input, self.by_output, events)
        out = out if self.bias is None else out + self.bias
        return out.reshape(*x.shape[:-1], self.out_features)

    def _check_sizes(self) -> None:
        """Raises a ``ValueError`` if the weight or a size is not that of the synapses any more."""
        sizes = len(self.starts) - 1, len(self.starts_of_outputs) - 1
        if (
            self.weight.shape != self.outputs.shape
            or (self.in_features, self.out_features) != sizes
        ):
            raise ValueError(
                "The weight of a SparseLinear should have an entry for each synapse, shape"
                f" {list(self.outputs.shape)}, from {sizes[0]} inputs to {sizes[1]} outputs. Found"
                f" shape {list(self.weight.shape)}, from {self.in_features} to {self.out_features}:"
                " make another connection, with `indices`."
            )

    def dense(self) -> Tensor:
        """Returns the weights as a matrix ``[out, in]``, zero where there is no synapse."""
        matrix = self.weight.new_zeros(self.out_features, self.in_features)
        return matrix.index_put((self.outputs.long(), _owners(self.starts).long()), self.weight)

    @property
    def followers(self) -> WeakSet[Any]:
        """The updaters and rules that have values for each synapse."""
        found: WeakSet[Any] = self.__dict__.setdefault("_followers", WeakSet())
        return found

    def __getstate__(self) -> dict[str, Any]:
        # A copy has followers of its own.
        return {name: value for name, value in self.__dict__.items() if name != "_followers"}

    @torch.no_grad()
    def replace(
        self,
        removed: Tensor,
        generator: torch.Generator | None = None,
        optimizers: Iterable[torch.optim.Optimizer] = (),
    ) -> Tensor:
        """Replaces synapses by others, drawn evenly from all pairs that have none then.

        What updaters, rules, the gradient and optimizers have for a synapse stays with it, and is
        zero for a new one, as is its weight.

        Args:
            removed: ``[synapses]`` bool, those to remove.
            generator: draws the new ones, on the CPU; that of torch if ``None``.
            optimizers: all that have a state for the weight.

        Returns:
            ``[synapses]`` bool, those that are new, in the order that weights have then.

        Raises:
            ValueError: if ``removed`` does not fit.
            MemoryError: if there is too little memory for both sets of synapses.
        """
        made = self.replacement(removed, generator, optimizers)
        call_uninterrupted(*made.calls)
        return made.new

    @torch.no_grad()
    def replacement(
        self,
        removed: Tensor,
        generator: torch.Generator | None = None,
        optimizers: Iterable[torch.optim.Optimizer] = (),
        weight: Tensor | None = None,
    ) -> Replacement:
        """Computes what :meth:`replace` does, of other weights if they are given; changes nothing.

        Raises:
            ValueError: if ``removed`` or the weights do not fit.
            MemoryError: if there is too little memory for both sets of synapses.
        """
        check_tensors(removed=removed)
        self._check_sizes()
        if removed.dtype != torch.bool or removed.shape != self.weight.shape:
            raise ValueError(
                f"Argument `removed` should be booleans of shape {list(self.weight.shape)}, one for"
                f" each synapse. Found {removed.dtype} of shape {list(removed.shape)}."
            )
        weight = self.weight if weight is None else weight
        check_tensors(weight=weight)
        should = f"of shape {list(removed.shape)}, a value for each synapse"
        check_value(weight.shape == removed.shape, "weight", list(weight.shape), should)
        _check_memory(len(removed), _REPLACE_BYTES)
        kept = removed.logical_not().nonzero().flatten()
        keys, count = keys_of(self).index_select(0, kept), len(removed) - len(kept)
        if self.targets is None:
            drawn = self._drawn_anywhere(keys, count, generator)
        else:
            drawn = self._drawn_by_target(removed, generator)
        keys, order = torch.cat((keys, drawn)).sort()

        def move(value: Tensor) -> Tensor:
            new = value.new_zeros(*value.shape[:-1], count)
            return torch.cat((value.index_select(-1, kept), new), -1).index_select(-1, order)

        moved, values = move(weight), [self.weight.grad]
        for optimizer in optimizers:
            values += optimizer.state.get(self.weight, {}).values()
        calls = [partial(self.weight.copy_, moved)]
        tensors = [value for value in values if isinstance(value, Tensor)]
        own = [value for value in tensors if value.shape == self.weight.shape]
        calls += [partial(value.copy_, move(value)) for value in own]
        index = self._index(keys)
        index["index"] = _packed(index)
        calls += [partial(getattr(self, name).copy_, value) for name, value in index.items()]
        followers: set[Any] = {*self.followers}
        if self.updater is not None:  # a copy of which has not followed yet
            followers.add(self.updater.changes)
        for follower in followers:
            calls += follower.rearranging(self, move)
        return Replacement(keys, order >= len(kept), moved, calls)

    def _drawn_anywhere(
        self, keys: Tensor, count: int, generator: torch.Generator | None
    ) -> Tensor:
        """Returns keys of so many synapses, which are none of the sorted ones."""
        places = torch.arange(len(keys), device=keys.device)
        free = self.in_features * self.out_features - len(keys)
        drawn = draw_distinct([count], free, generator).to(keys.device)
        # the pairs before each
        return drawn + torch.searchsorted(keys - places, drawn, right=True)

    def _drawn_by_target(self, removed: Tensor, generator: torch.Generator | None) -> Tensor:
        """Returns keys of as many new synapses of each output as are removed."""
        seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
        keys = _owners(self.starts_of_outputs).long() * self.in_features + self.inputs
        kept = keys[removed.logical_not().index_select(0, self.order)].cpu()
        each = torch.bincount(self.outputs[removed], minlength=self.out_features).tolist()
        drawn = draw_distinct(each, self.in_features, seed=seed, first=self.first, taken=kept)
        drawn = drawn.to(removed.device)
        return drawn % self.in_features * self.out_features + drawn // self.in_features

    def _index(self, keys: Tensor) -> dict[str, Tensor]:
        """Returns the index of synapses, by their keys in order."""
        ends = torch.arange(self.in_features + 1, device=keys.device) * self.out_features
        starts, outputs = torch.searchsorted(keys, ends), (keys % self.out_features).int()
        # those of one output keep the order of inputs
        sizes = self.in_features, self.out_features
        synapses = Events.known(_owners(starts), outputs, None, sizes)
        order = synapses.order().int()
        inputs, firsts = synapses.ordered()
        firsts = F.pad(firsts.long(), (0, 1), value=len(keys))
        return dict(zip(_INDEX, (starts, outputs, order, inputs, firsts), strict=True))

    def _set(self, keys: Tensor) -> None:
        """Sets the synapses, by their keys in order."""
        index = self._index(keys)
        for name, value in index.items():
            setattr(self, name, value)
        self.register_buffer("index", _packed(index), persistent=False)
        self._seen = version(self.index)

    def _receive(self) -> None:
        """Takes the synapses that DDP has written; an average of several leaves what is known."""
        # It looks once on an accelerator, which would wait, and where writes are not counted.
        counts = self.index.is_cpu and not self.index.is_inference()
        self._seen = version(self.index) if counts else math.inf
        starts, outputs, _ = self.index.split([len(self.starts), len(self.outputs), 1])
        given = {"starts": starts.long(), "outputs": outputs}
        if torch.equal(self.index, _packed(given)) and not torch.equal(
            self.index, _packed({name: getattr(self, name) for name in given})
        ):
            keys = _owners(given["starts"]).long() * self.out_features + outputs
            for name, value in self._index(keys).items():
                setattr(self, name, value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in _INDEX:
            setattr(self, name, fn(getattr(self, name)))
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Saves the synapses too."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in ("starts", "outputs"):
            destination[prefix + name] = getattr(self, name)

    def _why_not(self, state: Mapping[str, Any], prefix: str) -> str:
        """Returns what is wrong with the synapses of a state; of other shapes, torch says it."""
        if getattr(state.get(f"{prefix}weight"), "ndim", 1) == 2 and f"{prefix}starts" not in state:
            return (
                "The state of `SparseLinear` should hold the weights of its synapses. Found that of"
                " a dense connection: load it into a `Linear`, and copy its weights at `indices`."
            )
        names = "starts", "outputs"
        starts, outputs = (state.get(f"{prefix}{name}", getattr(self, name)) for name in names)
        shapes = [getattr(each, "shape", None) for each in (starts, outputs)]
        fits = shapes == [self.starts.shape, self.outputs.shape]
        if fits and _are_sorted(starts, outputs, self.out_features):
            return ""
        return (
            "The state of `SparseLinear` should hold the first synapse of each input as `starts`,"
            " and the output of each synapse, in order within an input, as `outputs`. Found others."
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, *lists: list[str]
    ) -> None:
        """Loads synapses, and makes the index by output again."""
        missing, unexpected, errors = lists
        known = len(errors)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *lists)
        keys = [prefix + name for name in ("starts", "outputs")]
        unexpected[:] = [key for key in unexpected if key not in keys]
        missing += [key for key in keys if strict and key not in state_dict]
        if len(errors) == known:
            own = zip(keys, (self.starts, self.outputs), strict=True)
            starts, outputs = (state_dict.get(key, value).to(value) for key, value in own)
            self._set(_owners(starts).long() * self.out_features + outputs)

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        sizes = f"{self.in_features}, {self.out_features}, synapses={len(self.weight)}"
        share = "" if self.targets in (None, range(self.total)) else f", targets={self.targets}"
        return f"{sizes}, bias={self.bias is not None}{share}"


def _check_share(
    outputs: int, targets: range | None, seed: int | None, density: float | None
) -> None:
    """Raises an error unless these may be the outputs and the seed of a connection."""
    if seed is not None:
        check_integers(seed=seed)
    if targets is not None:
        fits = isinstance(targets, range) and targets.step == 1
        fits = fits and 0 <= targets.start < targets.stop <= outputs
        should = f"a range of the {outputs} outputs, of at least one, in steps of one"
        check_value(fits, "targets", targets, should)
        should, how = "given with `density` and `targets`", "each share would draw its own synapses"
        check_value(seed is not None or density is None, "seed", seed, should, f"otherwise {how}")


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


def _check_memory(synapses: int, more: int = _BUILD_BYTES) -> None:
    """Raises a ``MemoryError`` if synapses would not fit in memory."""
    size = torch.get_default_dtype().itemsize + _INDEX_BYTES
    here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # processes of this machine, by torchrun
    needed, free = synapses * (size + more), _free_memory() / here
    if synapses >= 2**31 or needed > free:
        raise MemoryError(
            "The synapses of a SparseLinear should be fewer than 2^31, and fit in memory. Found"
            f" {synapses:,} of {size} bytes each, {synapses * size / 1e9:.1f} GB, and"
            f" {needed / 1e9:.1f} GB while they are made, with {free / 1e9:.1f} GB free"
            f"{f' for each of {here} processes' * (here > 1)}: give it a"
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


def keys_of(connection: SparseLinear) -> Tensor:
    """Returns ``[synapses]`` int64, ``input * out_features + output`` of each, in order."""
    return _owners(connection.starts).long() * connection.out_features + connection.outputs


@torch.no_grad()
def part_of(connection: SparseLinear, chosen: Tensor) -> SparseLinear:
    """Returns a connection with copies of some synapses, those where ``chosen`` is true."""
    check_value(connection.bias is None, "bias", connection.bias, "None if delays divide synapses")
    outputs, inputs = connection.indices[:, chosen.to(connection.outputs.device)].long()
    sizes = connection.in_features, connection.total
    ends = torch.stack((outputs + connection.first, inputs))
    made = SparseLinear(*sizes, indices=ends, bias=False, targets=connection.targets)
    made.seed = connection.seed
    made.to(connection.weight)
    made.weight.copy_(connection.weight[chosen])
    made.weight.requires_grad_(connection.weight.requires_grad)
    return made


def _owners(starts: Tensor) -> Tensor:
    """Returns ``[synapses]`` int32, the neuron that each synapse belongs to."""
    each = torch.arange(len(starts) - 1, dtype=torch.int32, device=starts.device)
    return each.repeat_interleave(starts.diff())


def _packed(index: Mapping[str, Tensor]) -> Tensor:
    """Returns starts, outputs and a checksum of both, int32."""
    both = torch.cat((index["starts"], index["outputs"]))
    largest = 2**31 - 1
    checksum = (both * torch.arange(1, len(both) + 1, device=both.device) % largest).sum() % largest
    return torch.cat((both, checksum[None])).int()


def _are_sorted(starts: Tensor, outputs: Tensor, count: int) -> bool:
    """Returns whether synapses are sorted by input, each with its outputs in order."""
    whole = all(not each.is_floating_point() and each.ndim == 1 for each in (starts, outputs))
    if not whole or starts[0] != 0 or starts[-1] != len(outputs) or (starts.diff() < 0).any():
        return False
    if len(outputs) and (outputs.min() < 0 or outputs.max() >= count):
        return False
    return bool(((_owners(starts).long() * count + outputs).diff() > 0).all())
