"""Milliseconds of a step, and memory beyond the state, of the optimizers here and torch's.

All step equal parameters by equal gradients, interleaved in one process, after a check that they
end where torch's do. Memory is the peak of what one step allocates.

    python benchmarks/optimizers.py [--smoke]
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from _measure import bandwidth, middle, setting, table, timed
from _rival_optimizers import published
from torch import nn
from torch.profiler import ProfilerActivity, profile

from lightning_accum.optim import (
    AdaBelief,
    Adam,
    AMSGrad,
    RAdam,
)
from lightning_accum.sparse.kernel_library import library
from lightning_accum.sparse.moment_steps import Places, step_moments

Make = Callable[..., torch.optim.Optimizer]
Shapes = list[tuple[int, ...]]

LR, DECAY = 1e-5, 0.01
BASE = "torch AdamW fused"


def resnet50() -> Shapes:
    """The parameters of ResNet-50, in its order."""
    shapes: Shapes = [(64, 3, 7, 7), (64,), (64,)]
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            wide = 4 * width
            shapes += [(width, channels, 1, 1), (width,), (width,)]
            shapes += [(width, width, 3, 3), (width,), (width,)]
            shapes += [(wide, width, 1, 1), (wide,), (wide,)]
            if block == 0:
                shapes += [(wide, channels, 1, 1), (wide,), (wide,)]
            channels = wide
    return [*shapes, (1000, channels), (1000,)]


# name: shapes, steps that are measured
LOADS: dict[str, tuple[Shapes, int]] = {
    "one tensor of 10 million": ([(10_000_000,)], 31),
    "ResNet-50, 161 tensors, 25.6 million": (resnet50(), 31),
    "1,000 tensors of 1,000": ([(1000,)] * 1000, 101),
}
SMOKE: dict[str, tuple[Shapes, int]] = {
    "tiny": ([(7,), (3, 5), (1000,), (160, 130)], 3),
    "ResNet-50, a sixteenth": ([tuple(max(1, n // 4) for n in s) for s in resnet50()], 2),
}

TORCH_ADAMW = functools.partial(torch.optim.AdamW, lr=LR, weight_decay=DECAY)
TORCH_RADAM = functools.partial(torch.optim.RAdam, lr=LR)
FORMS: dict[str, Make] = {
    BASE: functools.partial(TORCH_ADAMW, fused=True),
    "torch AdamW foreach": functools.partial(TORCH_ADAMW, foreach=True),
    "Adam": functools.partial(Adam, lr=LR, weight_decay=DECAY),
    "torch AdamW amsgrad fused": functools.partial(TORCH_ADAMW, fused=True, amsgrad=True),
    "AMSGrad": functools.partial(AMSGrad, lr=LR, weight_decay=DECAY),
    "torch RAdam foreach": functools.partial(TORCH_RADAM, foreach=True),
    "torch RAdam loop": functools.partial(TORCH_RADAM, foreach=False),
    "RAdam": functools.partial(RAdam, lr=LR),
    "AdaBelief": functools.partial(AdaBelief, lr=LR, weight_decay=DECAY),
    **published(LR, DECAY),
}
# what has to end where
EQUAL = {
    "Adam": BASE,
    "AMSGrad": "torch AdamW amsgrad fused",
    "RAdam": "torch RAdam loop",
}


def parameters(shapes: Shapes, dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    options: dict[str, Any] = {"generator": torch.Generator().manual_seed(0), "dtype": dtype}
    params = [nn.Parameter(torch.randn(shape, **options)) for shape in shapes]
    for param in params:
        param.grad = torch.randn(param.shape, **options)
    return params


def end(form: str, shapes: Shapes) -> torch.Tensor:
    params = parameters(shapes, torch.float64)  # the change is small beside the parameter
    optimizer = FORMS[form](params)
    for _ in range(10):  # RAdam begins to rectify in the sixth
        optimizer.step()
    return torch.cat([param.detach().flatten() for param in params])


def agree(shapes: Shapes) -> None:
    begin = torch.cat([param.detach().flatten() for param in parameters(shapes, torch.float64)])
    for form, other in EQUAL.items():
        moved = end(other, shapes) - begin
        error = (end(form, shapes) - begin - moved).abs().max() / moved.abs().max()
        if not error < 1e-6:
            raise AssertionError(f"Form `{form}` differs from `{other}` by {error:.1e}.")


@contextmanager
def quiet() -> Iterator[None]:
    """Without what the profiler, from its C++, tells the terminal of its starts and stops."""
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)


def extra_memory(step: Callable[[], object]) -> float:
    """MB that a step has allocated at its peak, beyond what was there."""
    with quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak / 2**20


def parts_of(
    optimizer: torch.optim.Optimizer, params: list[nn.Parameter]
) -> list[Callable[[], object]]:
    """How RAdam finds its memory, and its arithmetic alone; none where there is no kernel."""
    if library(torch.float32) is None:
        return []
    moments = [[optimizer.state[p][m] for p in params] for m in ("exp_avg", "exp_avg_sq")]
    grads = [param.grad for param in params if param.grad is not None]
    places = Places(list(params), moments)
    numbers = (1.0, 1.0, 0.0, 0.9, 0.999, 0.0, LR, 1.0, 1e-8)
    return [
        lambda: places.find(grads),
        lambda: step_moments(torch.float32, places, numbers, False),
    ]


def measure(name: str, shapes: Shapes, steps: int) -> None:
    agree(shapes if len(shapes) < 100 else shapes[:20])
    params = parameters(shapes)
    optimizers = {form: make(params) for form, make in FORMS.items()}
    for optimizer in optimizers.values():  # states are begun, code is compiled, RAdam rectifies
        for _ in range(8):
            optimizer.step()
    times: dict[str, list[float]] = {form: [] for form in FORMS}
    parts = parts_of(optimizers["RAdam"], params)
    of_parts: list[list[float]] = [[] for _ in parts]
    for _ in range(steps):
        for form, optimizer in optimizers.items():
            times[form].append(timed(optimizer.step))
        optimizers["Adam"].step()  # as before each step: another's state is in the cache
        for own, part in zip(of_parts, parts, strict=True):
            own.append(timed(part))
    base = statistics.median(times[BASE])
    print(f"\n### {name}\n")
    most, numbers = bandwidth(), sum(param.numel() for param in params)
    least = 1e3 * 28 * numbers / most / 1e9
    print(f"Reading and writing Adam's 7 numbers for each parameter takes {least:.2f} ms here.\n")
    rows = []
    for form, optimizer in optimizers.items():
        median = statistics.median(times[form])
        memory = extra_memory(optimizer.step)
        rows.append([form, middle(times[form], 2), f"{median / base:.2f}", f"{memory:.1f}"])
    if parts:
        whole = statistics.median(times["RAdam"])
        find, step = map(statistics.median, of_parts)
        print(
            f"RAdam's step takes {find:.2f} ms ({find / whole:.0%}) to find its tensors in memory,"
            f" and {step:.2f} ms ({step / whole:.0%}) for the arithmetic.\n"
        )
    table(["optimizer", "ms a step", f"of {BASE}", "extra MB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny loads, just to see it run")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(setting())
    for name, (shapes, steps) in (SMOKE if args.smoke else LOADS).items():
        measure(name, shapes, steps)


if __name__ == "__main__":
    main()
