"""The inputs of a rule, taken from the result of ``training_step``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def inputs_from(outputs: Any, keys: Mapping[str, str]) -> dict[str, Any]:
    """Returns the inputs of a rule, by name.

    Args:
        outputs: what ``training_step`` returned.
        keys: by the name of each input, the key under which ``outputs`` holds it; for a reward,
            ``{"reward": reward_key}``.

    Raises:
        KeyError: if ``outputs`` does not hold one of the keys.

    Example:
        >>> inputs_from({"loss": 0.5, "hits": 3}, {"reward": "hits"})
        {'reward': 3}
    """
    known = outputs if isinstance(outputs, Mapping) else {}
    for name, key in keys.items():
        if key not in known:
            found = list(known) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise KeyError(
                f"Argument `{name}_key` should be a key of what `training_step` returns. Found"
                f" `{name}_key = {key!r}` and {found}."
            )
    return {name: known[key] for name, key in keys.items()}
