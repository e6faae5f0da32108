"""Reducers, which keep what a monitor sees, or a summary of it."""

__all__: list[str] = []
