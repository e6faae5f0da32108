"""Random numbers that depend on a seed and a place only, so that each place draws its own."""

import torch
from torch import Tensor

_STEP = -7046029254386353131  # 2**64 over the golden ratio, as the constants of SplitMix64
_FACTORS = (30, -4658895280553007687), (27, -7723592293110705685)


def hashed(seed: int, *places: Tensor) -> Tensor:
    """Returns an integer from 0 to 2**62 - 1 for each place, by its integer coordinates.

    Source:
        Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators",
        doi:10.1145/2660193.2660195.
    """
    x = torch.full_like(places[0], (seed + 2**63) % 2**64 - 2**63, dtype=torch.int64)
    for place in places:
        x = x + (place + 1) * _STEP
        for shift, factor in _FACTORS:
            x = (x ^ _shifted(x, shift)) * factor
        x = x ^ _shifted(x, 31)
    return _shifted(x, 2)


def uniform(seed: int, *places: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a number from 0 to below 1 for each place, of which every bit is random."""
    bits = {torch.float64: 53, torch.float32: 24}.get(dtype, 8)
    return (hashed(seed, *places) >> (62 - bits)).to(dtype) / (1 << bits)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shifts to the right as unsigned integers are."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
