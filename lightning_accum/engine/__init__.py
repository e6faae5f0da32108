"""What a rule sees of a window and returns of it, and how that becomes a change of a parameter."""

from lightning_accum.engine.signal import Signal
from lightning_accum.engine.terms import Change, CustomChange, Term
from lightning_accum.engine.window import Window

__all__ = ["Change", "CustomChange", "Signal", "Term", "Window"]
