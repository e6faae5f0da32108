"""Code written for speed, all of it private: spike indices, buffers, and the cost model."""

__all__: list[str] = []
