"""The parts of all pictures: matplotlib, and activity as a matrix of one sample."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lightning_accum._checks import check_finite, check_integers, check_tensors


def pyplot(caller: str) -> Any:
    """Returns ``matplotlib.pyplot``.

    Args:
        caller: the function or method that draws, for the message.

    Raises:
        ModuleNotFoundError: if matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"`{caller}` draws with matplotlib, which is not installed. Install it with"
            " `pip install matplotlib`."
        ) from error
    return pyplot


def one_sample(name: str, values: Tensor, sample: int) -> Tensor:
    """Returns what one sample did, ``[T, N]``, detached and on the CPU.

    Args:
        name: name of the argument, for the message.
        values: ``[T, N]`` of a single sample, or ``[T, B, ...]``.
        sample: which sample of the batch.

    Raises:
        TypeError: if the values are not a tensor.
        ValueError: if there are no steps, or the sample does not exist.
    """
    check_tensors(**{name: values})
    check_integers(sample=sample)
    if values.ndim < 2 or not values.numel():
        raise ValueError(
            f"Argument `{name}` should have shape [T, N], or [T, B, ...]. Found"
            f" `{name}.shape = {tuple(values.shape)}`."
        )
    if values.ndim > 2:
        if not -values.shape[1] <= sample < values.shape[1]:
            raise ValueError(
                f"Argument `sample` should be one of the {values.shape[1]} samples in `{name}`."
                f" Found `sample = {sample}`."
            )
        values = values[:, sample].flatten(1)
    return values.detach().cpu()


def check_step(dt: float) -> None:
    """Raises an error unless ``dt`` is a step in ms."""
    check_finite(dt=dt)
    if not dt > 0:
        raise ValueError(f"Argument `dt` should be a positive step in ms. Found `dt = {dt}`.")


def check_steps(name: str, values: Tensor, steps: int, other: str) -> None:
    """Raises a ``ValueError`` unless the values have as many steps as another argument."""
    if len(values) != steps:
        raise ValueError(
            f"Argument `{name}` should have the {steps} steps of `{other}`. Found"
            f" {len(values)} steps."
        )


def open_sides(ax: Any) -> None:
    """Removes the frame's upper and right side."""
    ax.spines[["top", "right"]].set_visible(False)


def count_rows(ax: Any) -> None:
    """Marks whole numbers only on the vertical axis."""
    from matplotlib.ticker import MaxNLocator

    ax.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
