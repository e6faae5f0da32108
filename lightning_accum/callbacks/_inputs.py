"""The inputs of a rule, taken from the result of ``training_step``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_accum._checks import names_in
from lightning_accum.cells.trainer import CellTrainer


def keys_by_input(keys: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Returns, for the name of each input, its key in the result of ``training_step``.

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


def inputs_for(trainer: CellTrainer, outputs: Any, keys: Mapping[str, str]) -> dict[str, Any]:
    """Returns the inputs of a rule for a batch; none if the batch was left out.

    Args:
        trainer: the rule.
        outputs: what ``training_step`` returned; Lightning makes an empty dictionary of ``None``.
        keys: by the name of each input, the key under which ``outputs`` holds it.

    Raises:
        KeyError: if ``outputs`` does not hold one of the keys, and the rule recorded activity.
    """
    if keys and (outputs is None or (isinstance(outputs, dict) and not outputs)):
        steps = [trainer.recorded_steps(name) for name, _ in trainer.named_cells]
        if not any(each is None or each for each in steps):
            return {}
    return inputs_from(outputs, keys)


def check_keywords(call: str, inputs: Mapping[str, Any], recorded: bool, begun: bool) -> None:
    """Raises a ``TypeError`` if a method of a FabricCellTrainer got inputs that nothing takes.

    Args:
        call: the name of the method.
        inputs: the inputs.
        recorded: whether a batch is recorded that they are for.
        begun: whether any batch was recorded before.
    """
    if "lr" not in inputs and inputs and not begun:
        raise TypeError(
            f"Keywords of `{call}` should be inputs of the rule, for a batch that was recorded."
            f" Found {sorted(inputs)}, and no batch yet: run the module inside"
            " `with learner.batch():`."
        )
    if "lr" in inputs or (inputs and not recorded):
        raise TypeError(
            f"Keywords of `{call}` should be inputs of the rule, for a batch that is not"
            f" evaluated yet. Found {sorted(inputs)}, which nothing takes: pass inputs to"
            " `accumulate` if you call it, and `scale` to `step` for a factor of the rates."
        )
