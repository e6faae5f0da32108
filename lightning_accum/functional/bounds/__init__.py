r"""Bounds, which scale an update by the distance of the parameter from its limits.

An update comes in two parts, both non-negative: the potentiating part moves a parameter towards its
upper limit, the depressing one towards its lower limit. A bound multiplies each part by a function
of the *room*, the distance to the limit it moves towards. Each of the five functions below comes as
an upper half, a lower half, and a full form, :math:`\Delta w = b_+(w)\,u_+ - b_-(w)\,u_-`.

The room is clamped at zero: a weight beyond a limit takes none of the part that would move it
further out. The formula without a clamp would change the sign, or give NaN for a fractional power.

All functions are pure. They compute in the wider of the two dtypes, so that the room of a bfloat16
weight is not rounded to bfloat16, and the result has that dtype.
"""

from lightning_accum.functional.bounds._room import FullBounding, HalfBounding
from lightning_accum.functional.bounds.multiplicative import (
    bound_lower_multiplicative,
    bound_lower_scaled_multiplicative,
    bound_multiplicative,
    bound_scaled_multiplicative,
    bound_upper_multiplicative,
    bound_upper_scaled_multiplicative,
)
from lightning_accum.functional.bounds.power import (
    bound_lower_power,
    bound_power,
    bound_upper_power,
)
from lightning_accum.functional.bounds.scaled_power import (
    bound_lower_scaled_power,
    bound_scaled_power,
    bound_upper_scaled_power,
)
from lightning_accum.functional.bounds.sharp import (
    bound_lower_sharp,
    bound_sharp,
    bound_upper_sharp,
)

__all__ = [
    "FullBounding",
    "HalfBounding",
    "bound_lower_multiplicative",
    "bound_lower_power",
    "bound_lower_scaled_multiplicative",
    "bound_lower_scaled_power",
    "bound_lower_sharp",
    "bound_multiplicative",
    "bound_power",
    "bound_scaled_multiplicative",
    "bound_scaled_power",
    "bound_sharp",
    "bound_upper_multiplicative",
    "bound_upper_power",
    "bound_upper_scaled_multiplicative",
    "bound_upper_scaled_power",
    "bound_upper_sharp",
]
