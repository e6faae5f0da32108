import math
from dataclasses import fields

import pytest

from lightning_accum.functional import ExponentialKernel, GaussianKernel


def test_a_kernel_takes_finite_numbers_and_positive_times():
    good = {ExponentialKernel: {"lr_post": 1.0, "lr_pre": 1.0}, GaussianKernel: {"lr": 1.0}}
    for kind, name in [(each, field.name) for each in good for field in fields(each)]:
        times = (0.0, -1.0) if name.startswith("tc") or name == "width" else ()
        for value in (math.nan, math.inf, -math.inf, *times):
            with pytest.raises(ValueError, match=f"`{name}` should be (finite|a positive time)"):
                kind(**{**good[kind], name: value})
