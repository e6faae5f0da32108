"""Vector-Jacobian products: how products of activity change a parameter, by kind of connection."""

from lightning_accum.engine.vjp.base import WeightVJP
from lightning_accum.engine.vjp.choose import kind_of_vjp, unit_dim_of, vjp_of

__all__ = ["WeightVJP", "kind_of_vjp", "unit_dim_of", "vjp_of"]
