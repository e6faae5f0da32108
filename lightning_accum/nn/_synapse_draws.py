"""Random synapses: distinct inputs of each output; and numbers that depend on a place only."""

import torch
from torch import Tensor

_BLOCK = 1 << 22  # synapses that are drawn at a time
_STEP = -7046029254386353131  # 2**64 over the golden ratio, as the constants of SplitMix64
_FACTORS = (30, -4658895280553007687), (27, -7723592293110705685)


def drawn_synapses(each: int, inputs: int, outputs: int, seed: int | None, first: int) -> Tensor:
    """Returns the keys of as many random synapses of each output, in any order."""
    few = 2 * each <= inputs  # otherwise those that are left out are drawn
    rows = max(1, _BLOCK // max(1, each if few else inputs))
    blocks = [torch.empty(0, dtype=torch.int64)]
    for start in range(0, outputs, rows):
        size = min(rows, outputs - start)
        counts = [each if few else inputs - each] * size
        places = draw_distinct(counts, inputs, seed=seed, first=first + start)
        if not few:
            kept = torch.ones(size * inputs, dtype=torch.bool)
            kept[places] = False
            places = kept.nonzero().flatten()
        ends = places // inputs
        blocks.append((places - ends * inputs) * outputs + ends + start)
    return torch.cat(blocks)


def draw_distinct(
    each: list[int],
    count: int,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    first: int = 0,
    taken: Tensor | None = None,
) -> Tensor:
    """Draws numbers below ``count``, so many distinct ones for each row; adds ``row * count``."""
    # By a `seed`, those of a row depend on it and on `first + row` only. `taken` has numbers that
    # are not drawn, in order.
    device = torch.device("cpu") if generator is None else generator.device
    missing = torch.tensor(each, device=device)
    more, made = missing[:0], torch.zeros_like(missing)
    keys = more if taken is None else taken
    while missing.any():  # those that were drawn before are drawn again
        rows = torch.arange(len(each), device=device).repeat_interleave(missing)
        if seed is None:
            drawn = torch.randint(count, rows.shape, generator=generator, device=device)
        else:
            at = torch.arange(len(rows), device=device) + (made + missing - missing.cumsum(0))[rows]
            drawn, made = hashed(seed, rows + first, -1 - at) % count, made + missing
        new = torch.unique(rows * count + drawn)
        if len(keys):
            known = keys[torch.searchsorted(keys, new).clamp(max=len(keys) - 1)] == new
            new = new[~(known | torch.isin(new, more))]
            more = torch.cat((more, new))
        else:
            keys = new
        missing -= torch.bincount(new // count, minlength=len(each))
    return more if taken is not None and len(taken) else torch.cat((keys, more))


def hashed(seed: int, *places: Tensor) -> Tensor:
    """Returns an integer from 0 to 2**62 - 1 for each place, by its integer coordinates."""
    # Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators",
    # doi:10.1145/2660193.2660195.
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
