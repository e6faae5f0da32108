"""Code written for speed, all of it private: spike indices, gathers, and the compiled kernel."""

__all__: list[str] = []
