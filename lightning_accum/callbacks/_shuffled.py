"""The advice not to shuffle the samples of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

_RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def shuffled_stream(trainer: pl.Trainer) -> Iterator[str]:
    """Yields advice if a loader shuffles the samples, although batches are pieces of one stream.

    Args:
        trainer: the Lightning trainer.
    """
    given: Any = trainer.train_dataloader
    loaders = [*given.values()] if isinstance(given, dict) else given
    for loader in loaders if isinstance(loaders, (list, tuple)) else [loaders]:
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, _RANDOM) or getattr(sampler, "shuffle", False) is True:
            yield (
                "Batches are pieces of one stream (`carry=True`), and the loader shuffles them:"
                " each sample goes on with the traces of one that it does not follow. Load in order"
                " (`shuffle=False`), or leave out `carry`, unless samples may come in any order."
            )
            return
