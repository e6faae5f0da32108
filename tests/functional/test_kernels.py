from __future__ import annotations

import math
from dataclasses import fields

import pytest

from lightning_accum.functional import ExponentialKernel, GaussianKernel


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [ExponentialKernel, GaussianKernel])
def test_a_kernel_takes_finite_numbers(kind, value):
    good = {"lr_post": 1.0, "lr_pre": 1.0} if kind is ExponentialKernel else {"lr": 1.0}
    kind(**good)
    for field in fields(kind):
        with pytest.raises(ValueError, match=f"Argument `{field.name}` should be finite"):
            kind(**(good | {field.name: value}))
