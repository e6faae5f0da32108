"""Rejects attributes that an object does not have, and that nothing would read."""

from __future__ import annotations


def check_known(owner: object, name: str, label: str, remedy: str) -> None:
    """Raises an ``AttributeError`` if an attribute is set that is public and new.

    Args:
        owner: the object; its instance has no such attribute yet.
        name: the name of the attribute.
        label: names the object in the message.
        remedy: the attributes that there are.
    """
    if not (name.startswith("_") or hasattr(type(owner), name)):
        raise AttributeError(
            f"An attribute of `{type(owner).__name__}` that is set should be one that it has."
            f" Found `{name}` assigned to that of {label}, which would have no effect: {remedy}."
        )
