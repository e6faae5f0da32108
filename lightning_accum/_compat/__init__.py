"""Private names of torch, torchmetrics and Lightning: one function each, one test each."""

__all__: list[str] = []
