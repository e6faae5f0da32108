"""Windows, which a rule sees, terms, which it returns, and how terms change a parameter."""

from lightning_accum.engine.activity_window import Window
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.state_keys import StateKey
from lightning_accum.engine.terms import Change, CustomChange, Term
from lightning_accum.functional.bounds import Room

__all__ = ["Change", "CustomChange", "Room", "Signal", "StateKey", "Term", "Window"]
