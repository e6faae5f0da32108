"""Running moments of a gradient, and the step of an adaptive optimizer."""

from __future__ import annotations

from torch import Tensor

Number = float | Tensor


def first_moment(mean: Tensor, grad: Tensor, beta: Number) -> Tensor:
    r"""Updates the mean gradient, :math:`m \leftarrow \beta_1 m + (1 - \beta_1) g`.

    Args:
        mean: :math:`m`, of any shape.
        grad: :math:`g`, of the same shape.
        beta: :math:`\beta_1`, a number or a 0-dim tensor.

    Returns:
        The new average, as a new tensor.

    Example:
        >>> import torch
        >>> first_moment(torch.zeros(2), torch.tensor([1.0, 2.0]), 0.5)
        tensor([0.5000, 1.0000])

    Source:
        Kingma & Ba (2015), arXiv:1412.6980, algorithm 1.
    """
    return mean + (1.0 - beta) * (grad - mean)


def second_moment(square: Tensor, grad: Tensor, beta: Number) -> Tensor:
    r"""Updates the mean squared gradient, :math:`v \leftarrow \beta_2 v + (1 - \beta_2) g^2`.

    Args:
        square: :math:`v`, of any shape.
        grad: :math:`g`, of the same shape.
        beta: :math:`\beta_2`, a number or a 0-dim tensor.

    Returns:
        The new average, as a new tensor.

    Example:
        >>> import torch
        >>> second_moment(torch.ones(2), torch.tensor([1.0, 3.0]), 0.5)
        tensor([1., 5.])

    Source:
        Kingma & Ba (2015), arXiv:1412.6980, algorithm 1.
    """
    return beta * square + (1.0 - beta) * (grad * grad)


def belief_moment(
    spread: Tensor, grad: Tensor, mean: Tensor, beta: Number, eps: Number
) -> Tensor:  # fmt: skip
    r"""Updates the moving average of the squared deviation of the gradient from its mean.

    .. math:: s \leftarrow \beta_2 s + (1 - \beta_2)(g - m)^2 + \epsilon

    Args:
        spread: :math:`s`, of any shape.
        grad: :math:`g`, of the same shape.
        mean: :math:`m`, the first moment, which already includes this gradient.
        beta: :math:`\beta_2`, a number or a 0-dim tensor.
        eps: :math:`\epsilon`, which is added at every step.

    Returns:
        The new average, as a new tensor.

    Example:
        >>> import torch
        >>> belief_moment(torch.zeros(2), torch.ones(2), torch.tensor([1.0, 3.0]), 0.5, 0.25)
        tensor([0.2500, 2.2500])

    Source:
        Zhuang et al. (2020), arXiv:2010.07468, algorithm 2.
    """
    return second_moment(spread, grad - mean, beta) + eps


def bias_correction(beta: Number, step: Number) -> Number:
    r"""Returns the total weight in a moving average that began at zero, :math:`1 - \beta^t`.

    Args:
        beta: :math:`\beta`, a number or a 0-dim tensor.
        step: :math:`t \ge 1`, a number or a 0-dim tensor.

    Returns:
        The weight; the average is divided by it.

    Example:
        >>> bias_correction(0.5, 2)
        0.75
    """
    return 1.0 - beta**step


def moment_step(mean: Tensor, square: Tensor, size: Number, root: Number, floor: Number) -> Tensor:
    r"""Returns the step for given moments, :math:`a \, m / (b \sqrt{v} + c)`.

    With :math:`b = 0, c = 1` it is that of momentum, :math:`a \, m`.

    Args:
        mean: :math:`m`, of any shape.
        square: :math:`v \ge 0`, of the same shape.
        size: :math:`a`, the rate with its corrections, a number or a 0-dim tensor.
        root: :math:`b`, a number or a 0-dim tensor.
        floor: :math:`c`, a number or a 0-dim tensor.

    Returns:
        The step, to be subtracted from the parameter, as a new tensor.

    Example:
        >>> import torch
        >>> moment_step(torch.ones(2), torch.tensor([4.0, 16.0]), 0.5, 0.5, 0.0)
        tensor([0.5000, 0.2500])
    """
    return size * mean / (root * square.sqrt() + floor)
