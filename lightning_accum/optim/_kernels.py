"""The arithmetic of a step: the plain form on one tensor, and fast forms on many tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightning_accum._compat import foreach, fused_adam
from lightning_accum.functional.optimization import (
    Number,
    belief_moment,
    first_moment,
    moment_step,
    second_moment,
)
from lightning_accum.sparse.tensor_lists import (
    CHUNK,
    SERIAL,
    Columns,
    Places,
    chunks,
    flat_alias,
    single_threaded,
    staging,
    step_moments,
)

# Before, it takes one tensor only.
_TAKES_LISTS = torch.__version__ >= "2.6"


def count_versions(tensors: Sequence[Tensor]) -> None:
    """Increments the versions of tensors: a backward pass that needs old values then raises."""
    if _TAKES_LISTS:
        torch.autograd.graph.increment_version(tensors)  # type: ignore[arg-type, unused-ignore]
        return
    for tensor in tensors:
        torch.autograd.graph.increment_version(tensor)


_add, _add_, _sub, _neg, _sqrt = map(foreach, ("add", "add_", "sub", "neg", "sqrt"))
_mul_, _lerp_, _maximum_ = map(foreach, ("mul_", "lerp_", "maximum_"))
_addcmul_, _addcdiv_ = map(foreach, ("addcmul_", "addcdiv_"))

# Number of elements from which a compiled call is faster than seven operations.
COMPILED = 1 << 14


class Coefficients(NamedTuple):
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
    param: Tensor, grad: Tensor, moments: Sequence[Tensor], k: Coefficients, belief: bool
) -> list[Tensor]:
    """Computes a step on one tensor, of any layout, in the dtype of its moments."""
    mean, square, *maxima = moments
    wide = param.to(mean.dtype)
    grad = k.sign * grad.to(mean.dtype) + k.penalty * wide
    mean = first_moment(mean, grad, k.beta1)
    if belief:
        square = belief_moment(square, grad, mean, k.beta2, k.inner)
    else:
        square = second_moment(square, grad, k.beta2)
    maxima = [torch.maximum(own, square) for own in maxima]
    divisor = maxima[0] if maxima else square
    change = moment_step(mean, divisor, k.size, k.root, k.floor)
    return [k.decay * wide - change, mean, square, *maxima]


def _listed_pass(columns: Columns, k: Coefficients, belief: bool) -> None:
    """Steps many tensors of one dtype, in place, operation by operation."""
    params, grads, means, squares = columns[:4]
    if k.decay != 1:
        _mul_(params, k.decay)
    if k.sign < 0:
        grads = list(_neg(grads))
    if k.penalty:
        grads = list(_add(grads, params, alpha=k.penalty))
    _lerp_(means, grads, 1 - k.beta1)
    seen = list(_sub(grads, means)) if belief else grads
    _mul_(squares, k.beta2)
    _addcmul_(squares, seen, seen, 1 - k.beta2)
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


def listed_step(
    columns: Columns, k: Coefficients, belief: bool, staged: bool, together: float
) -> None:
    """Steps many tensors, in chunks."""
    for chunk in chunks(columns, together):
        with staging(chunk) if staged else nullcontext(chunk) as ready:
            _listed_pass(ready, k, belief)


def kernel_step(params: list[Tensor], places: Places, k: Coefficients, belief: bool) -> bool:
    """Steps many dense tensors by the compiled kernel, in one pass over memory, if there is one."""
    count_versions(params)  # The kernel does not tell autograd.
    return step_moments(params[0].dtype, places, k, belief)


def fused_step(
    columns: Columns,
    steps: list[Tensor],
    group: dict[str, Any],
    rate: Number,
    eps: float,
    staged: bool,
) -> None:
    """Steps many tensors by torch's kernel of Adam, in one pass over memory."""
    near = columns[0][0].is_cpu
    decay, decouple = group["weight_decay"], group["weight_decouple"]
    kernel = fused_adam(decouple)
    absolute = decouple and group["absolute"]

    def run(ready: Columns) -> None:
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

    count_versions(columns[0])  # The kernel does not tell autograd.
    if staged:
        for chunk in chunks(columns, CHUNK if near else float("inf")):
            with staging(chunk) as ready:
                run(ready)
    elif near and columns[0][0].numel() < SERIAL:
        single_threaded(lambda: run(columns))
    else:
        run(columns)


def check_sizes(columns: Columns) -> None:
    """Raises a ``RuntimeError`` if gradients or moments differ in size from their parameters.

    The fused kernel does not check sizes on the CPU. The plan did, but ``.data = ...`` or
    ``resize_`` may have changed a tensor since.
    """
    sizes = list(map(Tensor.numel, columns[0]))
    for column in columns[1:]:
        found = list(map(Tensor.numel, column))
        if found != sizes:
            raise RuntimeError(
                f"Gradients and moments should be as large as their parameters, of {sizes}"
                f" elements. Found {found}: after a parameter has changed its shape, call"
                " `zero_grad()` and make the optimizer again."
            )


def compiled_step(columns: Columns, k: Coefficients, belief: bool) -> None:
    """Steps large dense tensors of one device by compiled code, each in one pass over memory."""
    run = _compiled(belief)
    # In a tensor, other coefficients do not cause a recompilation.
    numbers = torch.tensor(k, dtype=torch.float64, device=columns[0][0].device)
    try:
        for param, grad, *moments in zip(*columns, strict=True):
            run(
                flat_alias(param),
                flat_alias(grad),
                [flat_alias(moment) for moment in moments],
                numbers,
            )
    finally:
        count_versions(columns[0])


@cache
def _compiled(belief: bool) -> Callable[..., None]:
    def run(param: Tensor, grad: Tensor, moments: list[Tensor], numbers: Tensor) -> None:
        new = pure_pass(param, grad, moments, Coefficients(*numbers.unbind()), belief)
        for old, value in zip((param, *moments), new, strict=True):
            old.copy_(value)

    return torch.compile(run, dynamic=True)
