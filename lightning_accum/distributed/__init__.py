"""Several processes: who they are, what they exchange, and parameters that they share out."""

__all__: list[str] = []
