"""Random synapses: distinct inputs of each output."""

import torch
from torch import Tensor

from lightning_accum.functional.hashing import hashed

_BLOCK = 1 << 22  # synapses that are drawn at a time


def drawn_synapses(
    each: int, inputs: int, outputs: int, seed: int | None, targets: range | None
) -> Tensor:
    """Returns the keys of as many random synapses of each output, in any order."""
    few = 2 * each <= inputs  # otherwise those that are left out are drawn
    rows = max(1, _BLOCK // max(1, each if few else inputs))
    blocks = [torch.empty(0, dtype=torch.int64)]
    for start in range(0, outputs, rows):
        size = min(rows, outputs - start)
        draws = None
        if seed is not None:
            assert targets is not None
            numbers = torch.arange(size) + (targets.start + start)
            draws = RowDraws(seed, numbers, torch.full_like(numbers, inputs))
        places = draw_distinct([each if few else inputs - each] * size, inputs, draw=draws)
        if not few:
            kept = torch.ones(size * inputs, dtype=torch.bool)
            kept[places] = False
            places = kept.nonzero().flatten()
        ends = places // inputs
        blocks.append((places - ends * inputs) * outputs + ends + start)
    return torch.cat(blocks)


class RowDraws:
    """Draws numbers for rows; those of a row depend on the seed and its own number only.

    Args:
        seed: of all numbers.
        numbers: ``[rows]`` int64, by which rows differ.
        below: ``[rows]`` int64, the numbers of a row are below it.
    """

    def __init__(self, seed: int, numbers: Tensor, below: Tensor) -> None:
        self._seed, self._numbers, self._below = seed, numbers, below
        self._made = torch.zeros_like(numbers)

    def __call__(self, each: Tensor, rows: Tensor) -> Tensor:
        """Draws ``each[row]`` more numbers for each row; ``rows`` has them in order."""
        first = each.cumsum(0) - each
        at = torch.arange(len(rows), device=rows.device) + (self._made - first)[rows]
        self._made = self._made + each
        return hashed(self._seed, self._numbers[rows], -1 - at) % self._below[rows]


def draw_distinct(
    each: list[int],
    count: int,
    generator: torch.Generator | None = None,
    draw: RowDraws | None = None,
) -> Tensor:
    """Draws numbers below ``count``, so many distinct ones for each row; adds ``row * count``."""
    device = None if generator is None else generator.device
    missing = torch.tensor(each, device=device)
    keys = more = missing[:0]
    while missing.any():  # those that were drawn before are drawn again
        rows = torch.arange(len(each), device=device).repeat_interleave(missing)
        if draw is None:
            drawn = torch.randint(count, rows.shape, generator=generator, device=device)
        else:
            drawn = draw(missing, rows)
        new = torch.unique(rows * count + drawn)
        if len(keys):
            known = keys[torch.searchsorted(keys, new).clamp(max=len(keys) - 1)] == new
            new = new[~(known | torch.isin(new, more))]
            more = torch.cat((more, new))
        else:
            keys = new
        missing -= torch.bincount(new // count, minlength=len(each))
    return torch.cat((keys, more))


def unused(keys: Tensor, drawn: Tensor) -> Tensor:
    """Returns the numbers that are not among ``keys``, which are in order, by their place."""
    places = torch.arange(len(keys), device=keys.device)
    return drawn + torch.searchsorted(keys - places, drawn, right=True)  # the keys before it
