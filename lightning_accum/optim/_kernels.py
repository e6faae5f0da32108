"""The arithmetic of a step: the plain form on one tensor, and fast forms on many tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_, itemgetter
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from lightning_accum._compat.torch_internals import foreach, fused_adam
from lightning_accum.optim.weight_decay import Number
from lightning_accum.sparse import moment_steps as lists


def count_versions(tensors: Sequence[Tensor]) -> None:
    """Increments the versions of tensors: a backward pass that needs old values then raises."""
    torch.autograd.graph.increment_version(tensors)  # type: ignore[arg-type, unused-ignore]


_add, _add_, _sub, _neg, _sqrt = map(foreach, ("add", "add_", "sub", "neg", "sqrt"))
_mul_, _lerp_, _maximum_ = map(foreach, ("mul_", "lerp_", "maximum_"))
_addcmul_, _addcdiv_ = map(foreach, ("addcmul_", "addcdiv_"))

# Elements of a piece, which stays in the cache with all its columns and a work buffer.
_PIECE = 1 << 17


class StepCoefficients(NamedTuple):
    r"""The coefficients of one step: numbers, 0-dim tensors, or elements of one tensor.

    .. math::
        g &\leftarrow \text{sign} \cdot g + \text{penalty} \cdot \theta \\
        \theta &\leftarrow \text{decay} \cdot \theta
            - \text{size} \cdot m / (\text{root} \cdot \sqrt v + \text{floor})
    """

    sign: Any
    decay: Any
    penalty: Any
    beta1: Any
    beta2: Any
    inner: Any
    size: Any
    root: Any
    floor: Any


def pure_pass(
    param: Tensor, grad: Tensor, moments: Sequence[Tensor], k: StepCoefficients, belief: bool
) -> list[Tensor]:
    """Computes a step on one tensor, of any layout, in the dtype of its moments."""
    mean, square, *maxima = moments
    wide = param.to(mean.dtype)
    grad = k.sign * grad.to(mean.dtype) + k.penalty * wide
    # `grad - mean` of the new mean, without its rounding error, which is all of it for a β₁ of 0
    seen = k.beta1 * (grad - mean) if belief else grad
    mean = k.beta1 * mean + (1.0 - k.beta1) * grad
    square = k.beta2 * square + (1.0 - k.beta2) * (seen * seen)
    square = square + k.inner if belief else square
    maxima = [torch.maximum(own, square) for own in maxima]
    divisor = maxima[0] if maxima else square
    change = k.size * mean / (k.root * divisor.sqrt() + k.floor)
    return [k.decay * wide - change, mean, square, *maxima]


def _listed_pass(columns: lists.Columns, k: StepCoefficients, belief: bool) -> None:
    """Steps many tensors of one dtype, in place, operation by operation."""
    params, grads, means, squares = columns[:4]
    if k.decay != 1:
        _mul_(params, k.decay)
    if k.sign < 0:
        grads = list(_neg(grads))
    if k.penalty:
        grads = list(_add(grads, params, alpha=k.penalty))
    seen, share = grads, 1 - k.beta2
    if belief:  # as in `pure_pass`
        seen, share = list(_sub(grads, means)), share * k.beta1**2
    _lerp_(means, grads, 1 - k.beta1)
    _mul_(squares, k.beta2)
    _addcmul_(squares, seen, seen, share)
    if k.inner:
        _add_(squares, k.inner)
    if len(columns) > 4:
        _maximum_(columns[4], squares)
        squares = columns[4]
    if k.root:
        divisors = _sqrt(squares)
        if k.root != 1:
            _mul_(divisors, k.root)
        _add_(divisors, k.floor)
        _addcdiv_(params, means, divisors, -k.size)
    elif k.size:
        _add_(params, means, alpha=-k.size / k.floor)


def _parts(columns: lists.Columns, most: float) -> Iterator[lists.Columns]:
    """Yields tensors of up to so many elements together, and others in pieces."""
    rows = [*zip(*columns, strict=True)]
    if few := [row for row in rows if row[0].numel() <= most]:
        yield [[*column] for column in zip(*few, strict=True)]
    for row in rows if len(few) < len(rows) else ():
        if (n := row[0].numel()) > most:
            flat = n > _PIECE and all(map(lists.dense, row))  # pieces in their order in memory
            lines = [e.as_strided((n,), (1,)).split(_PIECE) if flat else [e] for e in row]
            yield from ([[piece] for piece in pieces] for pieces in zip(*lines, strict=True))


def fused_step(
    columns: lists.Columns,
    steps: list[Tensor],
    group: dict[str, Any],
    rate: Number,
    eps: float,
    staged: bool,
) -> None:
    """Steps many tensors by torch's kernel of Adam, in one pass over memory."""
    decay, decouple = group["weight_decay"], group["weight_decouple"]
    kernel = fused_adam(decouple)
    absolute = decouple and group["absolute"]

    count_versions(columns[0])  # The kernel does not tell autograd.
    most = _PIECE if columns[0][0].is_cpu else float("inf")
    for part in _parts(columns, most) if staged else [columns]:
        with lists.staging(part) if staged else nullcontext(part) as ready:
            if absolute and decay:
                _mul_(ready[0], 1 - decay)
            kernel(
                *ready[:4],
                ready[4] if len(ready) > 4 else [],
                steps[: len(ready[0])],
                lr=rate,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=0.0 if absolute else decay,
                eps=eps,
                amsgrad=len(ready) > 4,
                maximize=group["maximize"],
            )


def check_sizes(columns: lists.Columns) -> None:
    """Raises a ``RuntimeError`` if gradients or moments differ in size from their parameters."""
    # The fused kernel does not on the CPU, and `.data = ...` may have changed a tensor since.
    sizes = list(map(Tensor.numel, columns[0]))
    for column in columns[1:]:
        found = list(map(Tensor.numel, column))
        if found != sizes:
            raise RuntimeError(
                f"Gradients and moments should be as large as their parameters, of {sizes}"
                f" elements. Found {found}: after a parameter has changed its shape, call"
                " `zero_grad()` and make the optimizer again."
            )


Backend = Literal["fused", "listed", "single"]


@dataclass
class StepGroup:
    """Parameters of one device, dtype and count of steps that one backend steps."""

    backend: Backend
    staged: bool  # whether they differ from their moments in dtype or layout
    device: torch.device
    names: tuple[str, ...]  # of the moments
    params: list[Tensor] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    index: list[int] = field(default_factory=list)  # of their gradients in the parameter group
    found: bool = False  # whether `places` has all memory, at this step

    def __post_init__(self) -> None:
        # The moments that were checked, a list for each name.
        self.moments: list[list[Tensor]] = [[] for _ in self.names]

    def add(self, index: int, param: Tensor, state: dict[str, Any]) -> None:
        self.index.append(index)
        self.params.append(param)
        self.states.append(state)
        for name, column in zip(self.names, self.moments, strict=True):
            column.append(state[name])

    @cached_property
    def is_flat(self) -> bool:
        """Whether the backend goes over the tensors as flat memory of the CPU, without copies."""
        direct = self.backend != "single" and not self.staged and bool(self.names)
        return direct and self.device.type == "cpu"

    @cached_property
    def places(self) -> lists.Places:
        """The memory of the parameters, their gradients and their moments."""
        return lists.Places(self.params, self.moments)

    def find(self, grads: list[Tensor]) -> bool:
        """Finds the memory of the tensors, and returns whether its backend may go over it."""
        self.found = self.is_flat and self.places.find(grads)
        return self.found

    def stands(self) -> bool:
        """Returns whether the states have one count, and hold the moments that were checked."""
        counts = [state.get("step") for state in self.states]
        if isinstance(counts[0], int) and counts.count(counts[0]) < len(counts):
            return False
        try:
            for name, known in zip(self.names, self.moments, strict=True):
                if not all(map(is_, known, map(itemgetter(name), self.states))):
                    return False
        except KeyError:
            return False
        return True

    def columns(self, grads: list[Tensor]) -> lists.Columns:
        """Returns the parameters, their gradients and their moments."""
        columns = [self.params, grads, *self.moments]
        if self.backend == "fused" and self.device.type == "cpu" and not self.found:
            check_sizes(columns)
        return columns

    def step_by_kernel(self, k: StepCoefficients, belief: bool) -> bool:
        """Steps by the compiled kernel, in one pass over memory; returns whether it can."""
        if not self.found:
            return False
        count_versions(self.params)  # The kernel does not tell autograd.
        return lists.step_moments(self.params[0].dtype, self.places, k, belief)

    def step_by_torch(
        self,
        group: dict[str, Any],
        grads: list[Tensor],
        k: StepCoefficients,
        belief: bool,
        rate: Number,
        step: int,
    ) -> None:
        """Steps parameters of one count by torch's operations or its fused kernel."""
        columns = self.columns(grads)
        if self.backend == "fused":
            # All share one count tensor, since one for each would cost more than the kernel.
            count = torch.full((), float(step), dtype=torch.float32, device=self.device)
            eps = group["eps"]
            if group["optimized_update"]:  # from ε added to √v to ε added to √v̂
                eps /= (1.0 - group["betas"][1] ** step) ** 0.5
            fused_step(columns, [count] * len(self.params), group, rate, eps, self.staged)
        else:
            most = _PIECE if self.device.type == "cpu" else float("inf")
            if group["foreach"] is not None:
                most = float("inf") if group["foreach"] else 0.0
            for part in _parts(columns, most):
                with lists.staging(part) if self.staged else nullcontext(part) as ready:
                    _listed_pass(ready, k, belief)
