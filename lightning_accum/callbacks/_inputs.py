"""The inputs of a rule, taken from the result of ``training_step``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import names_in

_EACH, _FEW = 16, 3  # batches that are looked at in any case; fewer batches tell nothing
_SIGNALS = {
    "reward": "a reward that is always the same does not tell good from bad; look at how"
    " `training_step` computes it, or take a rule without reward",
    "error": "weights learn nothing from it; look at how `training_step` computes it",
}


class InputWatch:
    """Notices a reward or an error that is the same number in all batches, and waits for no device.

    It looks at the first batches, and then at every batch whose number is a power of two, until a
    value differs.

    Example:
        >>> watch = InputWatch()
        >>> for _ in range(5):
        ...     watch.note({"reward": torch.ones(8), "error": torch.arange(3.0)})
        >>> [line.split(":")[0] for line in watch.lines()]
        ['Each value of `reward` was 1, in all 5 batches that were looked at']
    """

    def __init__(self) -> None:
        self._first: dict[str, Tensor] = {}
        self._varies: dict[str, Tensor] = {}
        self._batches = self._looks = 0

    def note(self, inputs: Mapping[str, Any]) -> None:
        """Looks at the inputs of a batch.

        Args:
            inputs: the inputs of the rule, by name.
        """
        self._batches += 1
        if not inputs or (self._batches > _EACH and self._batches & (self._batches - 1)):
            return
        self._looks += 1
        for name in _SIGNALS:
            known = self._varies.get(name)
            if name not in inputs or (known is not None and known.is_cpu and bool(known)):
                continue
            value = torch.as_tensor(inputs[name]).detach()
            if value.numel():
                first = self._first.setdefault(name, value.reshape(-1)[0].clone())
                varies = (value != first.to(value.device)).any()
                self._varies[name] = varies if known is None else varies | known.to(value.device)

    def lines(self) -> list[str]:
        """Returns lines of advice for the summary; waits for the device."""
        same = [n for n, varies in self._varies.items() if self._looks >= _FEW and not bool(varies)]
        return [
            f"Each value of `{name}` was {float(self._first[name]):g}, in all {self._looks} batches"
            f" that were looked at: {_SIGNALS[name]}."
            for name in same
        ]


def keys_by_input(keys: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Returns by the name of each input its key in what ``training_step`` returns.

    Args:
        keys: keys that are the names of inputs too, or a mapping from names to keys.

    Raises:
        TypeError: if a name or a key is not a string.
    """
    if isinstance(keys, Mapping):
        names_in("input_keys", [*keys, *keys.values()])
        return dict(keys)
    return {name: name for name in names_in("input_keys", keys)}


def inputs_from(outputs: Any, keys: Mapping[str, str]) -> dict[str, Any]:
    """Returns the inputs of a rule, by name.

    Args:
        outputs: what ``training_step`` returned.
        keys: by the name of each input, the key under which ``outputs`` holds it.

    Raises:
        KeyError: if ``outputs`` does not hold one of the keys.

    Example:
        >>> inputs_from({"loss": 0.5, "hits": 3}, {"reward": "hits"})
        {'reward': 3}
    """
    known = outputs if isinstance(outputs, Mapping) else {}
    for key in keys.values():
        if key not in known:
            found = list(known) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise KeyError(
                "Argument `input_keys` should hold keys of what `training_step` returns. Found"
                f" {key!r} and {found}: return a dictionary that has the key."
            )
    return {name: known[key] for name, key in keys.items()}
