"""A stage that selects items of the result of a step, by name."""

from __future__ import annotations

from typing import Any

from torch import nn

from lightning_accum.accumulators._arguments import Selection
from lightning_accum.accumulators._links import Link
from lightning_accum.accumulators._stage import Stage


class Select(Stage, nn.Module):
    """Selects items by index or key, and names them.

    A single item is passed on unchanged. Of several items, each becomes the argument of its name in
    the next stage, and items of other names fill the remaining arguments in order: for
    ``update(preds, target)``, both ``Select(pred=1, target=2)`` and ``Select(target=2, pred=1)``
    mean the same.

    Args:
        **items: for each name an index, or a key if steps return dictionaries.

    Raises:
        ValueError: if no item is named.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Mean, Select
        >>> loss = Select(value=0, weight=2) ** Mean()
        >>> loss((torch.tensor(1.0), "logits", 32))
        >>> loss((torch.tensor(4.0), "logits", 16))
        >>> loss.end()
        tensor(2.)
    """

    def __init__(self, **items: Any) -> None:
        super().__init__()
        if not items:
            raise ValueError(
                "Argument `items` should name at least one item. Found none: give a name and an"
                " index, as in `Select(pred=1)`."
            )
        self.items = items

    def forward(self, data: Any) -> Any:
        """Returns the selected item, or a dictionary of several.

        Args:
            data: the result of a step: a sequence, or a dictionary.

        Raises:
            ValueError: if it lacks an item.
        """
        try:
            found = Selection((name, data[place]) for name, place in self.items.items())
        except (LookupError, TypeError) as error:
            raise ValueError(
                f"Argument `data` should have the items that are selected, {self.items}. Found"
                f" `{type(data).__name__}`, which lacks one: {error}."
            ) from error
        return found if len(found) > 1 else found.popitem()[1]

    def link(self) -> Link:
        """Returns a part that only computes."""
        return Link(self, Select.forward, only_computes=True)

    def extra_repr(self) -> str:
        """Returns the items."""
        return ", ".join(f"{name}={place!r}" for name, place in self.items.items())
