"""Reducers: what of the observations of a monitor is kept, and how."""

__all__: list[str] = []
