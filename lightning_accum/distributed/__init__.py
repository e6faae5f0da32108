"""Training in several processes: their ranks, their exchange of data, and sharded parameters."""

__all__: list[str] = []
