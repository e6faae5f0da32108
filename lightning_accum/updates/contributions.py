"""The checks of the shapes and types of contributions to a pending change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers, check_tensors
from lightning_accum.updates.products import Product, product_shape


def checked_contribution(
    label: str, value: Tensor | None, shape: torch.Size | None, pending: torch.Size | None
) -> Tensor | None:
    """Returns a contribution in the parameter's shape; ``None`` stays ``None``.

    Args:
        label: the names of the parameter and of the part, for messages.
        value: the contribution.
        shape: the parameter's shape, if it is known.
        pending: the shape of what the part holds already; ``None`` for an empty part.

    Raises:
        TypeError: if it is not a dense tensor of real numbers.
        ValueError: if it does not fit the parameter's shape.
    """
    if value is None:
        return None
    if not isinstance(value, Tensor):
        raise TypeError(
            f"A contribution to `{label}` should be a tensor or None."
            f" Found `{type(value).__name__}`: wrap it with `torch.as_tensor`."
        )
    if value.is_complex():
        raise TypeError(
            f"A contribution to `{label}` should be real. Found `{value.dtype}`: take its real"
            " part, or its magnitude."
        )
    if value.layout is not torch.strided:
        raise TypeError(
            f"A contribution to `{label}` should be dense. Found `{value.layout}`: pass its"
            " `to_dense()`."
        )
    _check_shape(label, value.shape, shape, pending)
    return value if shape is None else value.expand(shape)


def checked_products(
    label: str,
    post: Tensor | Sequence[Tensor],
    pre: Tensor | Sequence[Tensor],
    scale: float | Sequence[float],
    shape: torch.Size | None,
    pending: torch.Size | None,
) -> list[Product]:
    """Returns products that can be added to a part, as one contribution.

    Args:
        label: the names of the parameter and of the part, for messages.
        post: ``[K, out]``, or a sequence of such tensors.
        pre: ``[K, in]``, or a sequence of such tensors.
        scale: a factor for all products, or a sequence with one for each.
        shape: the parameter's shape, if it is known.
        pending: the shape of what the part holds already; ``None`` for an empty part.

    Raises:
        TypeError: if a side is not a tensor, or a factor is not a number.
        ValueError: if the sequences differ in length, or a product does not have the shape.
    """
    posts: list[Any] = list(post) if isinstance(post, (list, tuple)) else [post]
    pres: list[Any] = list(pre) if isinstance(pre, (list, tuple)) else [pre]
    scales = list(scale) if isinstance(scale, Sequence) else [scale] * len(posts)
    for factor in scales:
        if type(factor) is not float:
            check_numbers(**{f"scale[{i}]": scale for i, scale in enumerate(scales)})
    for left in posts:
        if not isinstance(left, Tensor):
            check_tensors(post=left)
    for right in pres:
        if not isinstance(right, Tensor):
            check_tensors(pre=right)
    if not len(posts) == len(pres) == len(scales):
        raise ValueError(
            "Arguments `post`, `pre` and `scale` should be as many as each other. Found"
            f" {len(posts)}, {len(pres)} and {len(scales)}."
        )
    products = list(zip(posts, pres, scales, strict=True))
    for product in products:
        left, right, _ = product
        if left.ndim != 2 or right.ndim != 2 or left.shape[0] != right.shape[0]:
            raise ValueError(
                "Arguments `post` and `pre` should be matrices `[K, out]` and `[K, in]`."
                f" Found shapes {tuple(left.shape)} and {tuple(right.shape)}."
            )
        if shape is None:
            shape = product_shape(product)
            _check_shape(label, shape, None, pending)
        elif (left.shape[1], right.shape[1]) != shape:
            raise ValueError(
                f"A product added to `{label}` should have the shape {tuple(shape)}. Found shape"
                f" {tuple(product_shape(product))}."
            )
    return products


def fitted_part(name: str, param: Tensor, value: Tensor | None) -> Tensor | None:
    """Expands a reduced part to the shape of a parameter, on its device.

    Args:
        name: the parameter's name, for the message.
        param: the parameter.
        value: the reduced part, ``None`` if it is empty.

    Raises:
        ValueError: if it does not fit.
    """
    if value is None:
        return None
    if value.shape != param.shape:
        try:
            value = value.expand(param.shape)
        except RuntimeError:
            raise ValueError(
                f"The change pending for `{name}` should fit the parameter's shape"
                f" {tuple(param.shape)}. Found shape {tuple(value.shape)}: drop it with `clear()`"
                " and add contributions of the parameter's shape."
            ) from None
    return value.to(param.device)


def _check_shape(
    label: str, found: torch.Size, shape: torch.Size | None, pending: torch.Size | None
) -> None:
    """Raises a ``ValueError`` unless a shape broadcasts to the parameter's, or with the pending."""
    whose, expected = "the parameter's", shape
    if shape is None:
        whose, expected = "the pending contributions'", pending
    if expected is None or found == expected:
        return
    try:
        joined = torch.broadcast_shapes(found, expected)
    except RuntimeError:
        joined = None
    if joined is None or (shape is not None and joined != expected):
        raise ValueError(
            f"A contribution to `{label}` should have, or broadcast to, {whose} shape"
            f" {tuple(expected)}. Found shape {tuple(found)}."
        )
