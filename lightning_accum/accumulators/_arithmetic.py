"""Sums and moments of long streams."""

from __future__ import annotations

from torch import Tensor


def two_sum(total: Tensor, rest: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    r"""Adds to a sum that is kept as two numbers, so that no small value is lost.

    .. math:: t = \mathrm{fl}(s + x), \qquad r \leftarrow r + (s + x - t)

    with the error of the addition computed exactly. :math:`t + r` is the sum of a stream to about
    one rounding, where plain addition loses as much as a rounding in every step.

    Args:
        total: the sum :math:`s`, of any shape.
        rest: what it lacks, of the same shape.
        value: what is added, of the same shape, or of any for a sum without dimensions.

    Returns:
        The new sum and what it lacks.

    Source:
        Knuth, The Art of Computer Programming 2, 4.2.2, theorem B.
    """
    added = total + value
    shift = added - total
    return added, rest + ((total - (added - shift)) + (value - shift))


def finished(total: Tensor, rest: Tensor) -> Tensor:
    """The sum that :func:`two_sum` keeps as two numbers; an infinite one leaves no rest."""
    return total + rest.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def merge_moments(
    first: tuple[int, Tensor, Tensor], second: tuple[int, Tensor, Tensor]
) -> tuple[int, Tensor, Tensor]:
    r"""Joins the moments of two streams.

    .. math::
        \delta = \bar b - \bar a, \qquad
        \bar{ab} = \bar a + \delta \frac{n_b}{n_a + n_b}, \qquad
        M_{ab} = M_a + M_b + \delta^2 \frac{n_a n_b}{n_a + n_b}

    Args:
        first: number of values :math:`n_a`, mean, and sum of squared deviations :math:`M_a`.
        second: those of the other stream.

    Returns:
        Those of both.

    Source:
        Chan, Golub & LeVeque (1979), Stanford STAN-CS-79-773, eq. 2.1.
    """
    (count_a, mean_a, squares_a), (count_b, mean_b, squares_b) = first, second
    count = count_a + count_b
    delta = mean_b - mean_a
    mean = mean_a + delta * (count_b / count)
    squares = squares_a + squares_b + delta * delta * (count_a * count_b / count)
    return count, mean, squares
