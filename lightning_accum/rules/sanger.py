"""Hebb's rule for several neurons in order: the principal components."""

from typing_extensions import Self

from lightning_accum.cells.cell import Cell
from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule
from lightning_accum.engine.vjp import kind_of_vjp


class Sanger(Rule):
    r"""Applies Oja's rule to several neurons, each to the input that earlier ones do not explain.

    .. math::
        \Delta w_i = \eta \sum_t y_i(t) \left( x(t) - \sum_{k \le i} y_k(t)\, w_k \right)

    Linear neurons converge to the principal components in order, the generalized Hebbian algorithm.

    Args:
        lr: rate.

    Raises:
        ValueError: if the parameter is not the matrix of a linear connection.

    Example:
        >>> import torch
        >>> from lightning_accum import Sanger, change_of
        >>> x, w = torch.tensor([[[1.0, 0.0]]]), torch.ones(2, 2)
        >>> change_of(Sanger(lr=1.0), x, x @ w.T, w)  # one neuron explains the input, then both
        tensor([[[ 0., -1.],
                 [-1., -2.]]])

    Source:
        Sanger 1989, "Optimal unsupervised learning in a single-layer linear feedforward neural
        network", doi:10.1016/0893-6080(89)90044-0, eq. 3.
    """

    spikes = False

    lr: float

    def terms(self, window: Window) -> tuple[Term, Term]:
        """Returns Hebb's product, less the input that this neuron and the earlier ones explain."""
        post, param = window.post.values(), window.param
        by_earlier = Term(-self.lr, post, post, lambda x: x.tril() @ param.to(x.dtype))
        return Term(self.lr, post, window.pre), by_earlier

    def of_cell(self, name: str, cell: Cell) -> Self:
        """Returns the rule; raises a ``ValueError`` if the connection is not linear."""
        if not kind_of_vjp(cell.connection, "weight").is_matrix:
            raise ValueError(
                f"The connection of cell `{name}` should have the weight of a torch.nn.Linear,"
                f" whose outputs have an order. Found a {type(cell.connection).__name__}: use"
                " `Oja`, which does not need one."
            )
        return self
