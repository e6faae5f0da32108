"""Compares what the package computes on another device with the CPU, in float32.

Rules change a linear layer and a convolution in two windows each, and each public class runs as in
``tests/test_contract.py``. A row has the largest difference from the CPU, relative to the largest
number there. The status is 1 if one exceeds the tolerance.

    pip install torch==2.9.0 torch_xla==2.9.0
    PJRT_DEVICE=CPU python scripts/second_device.py --device xla

PyTorch/XLA makes a device of the CPU, but its tensors have no memory that a compiled kernel could
read. What runs there does not assume a CPU. It shows nothing of speed, and nothing of a GPU.
"""

from __future__ import annotations

import argparse
import importlib
import math
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import lightning_accum as la
from lightning_accum import nn as lann

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "_support"))
contract = importlib.import_module("contract_cases")

CPU = torch.device("cpu")
STEPS, SAMPLES = 5, 4
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], set[str]]] = {
    "Linear": (lambda: lann.Linear(100, 50, bias=False), (100,), set()),
    "Conv2d": (
        lambda: lann.Conv2d(2, 4, 3, bias=False),
        (2, 8, 8),
        {"STDP", "TripletSTDP", "Hebb", "Oja", "BCM", "MSTDP"},
    ),
}


def main() -> None:
    """Prints a row for each comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="xla", help="such as xla (default), cuda or mps")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="default: 1e-5")
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose names contain a word")
    args = parser.parse_args()
    device, start = find(args.device), time.monotonic()
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # float32 is to be float32
    found: list[float] = []
    for name, run in comparisons():
        if any(word in name for word in args.only):
            why = contract.why_apart(name, device.type)
            if why is None:
                try:
                    found.append(difference(run, device))
                    why = f"{found[-1]:.1e}"
                except Exception as error:
                    found.append(math.inf)
                    why = f"{type(error).__name__}: {error}"
            else:
                why = f"not compared: {why}"
            print(f"{name:<32} {why}", flush=True)
    failed = sum(not each <= args.tolerance for each in found)
    print(
        f"\n{len(found)} compared, {failed} differ by more than {args.tolerance:g}; the largest "
        f"difference is {max(found, default=math.nan):.1e}.\ntorch {torch.__version__}, device "
        f"{device}, Python {platform.python_version()}, {time.monotonic() - start:.0f} s"
    )
    sys.exit(failed > 0 or not found)


def find(name: str) -> torch.device:
    """Returns a device of this name; ends the program if there is none."""
    remedy = "Pass a `--device` that this machine has"
    try:
        if name.startswith("xla"):
            remedy = "Run `pip install torch==2.9.0 torch_xla==2.9.0`, and set `PJRT_DEVICE=CPU`"
            importlib.import_module("torch_xla")
        return torch.ones(1, device=name).device
    except Exception as error:
        sys.exit(f"Expected a device `{name}`. Found {type(error).__name__}: {error}. {remedy}.")


def comparisons() -> Iterator[tuple[str, Callable[[torch.device], Iterable[Any]]]]:
    """Yields names, and functions that return what is to be the same on each device."""
    for layer, (make, size, names) in LAYERS.items():
        for rule in contract.ALONE:
            if type(rule).__name__ in names or not names:
                yield f"{type(rule).__name__}, {layer}", partial(learned, rule, make, size)
    for name, case in contract.CASES.items():
        yield name, partial(steps, case)


def difference(run: Callable[[torch.device], Iterable[Any]], device: torch.device) -> float:
    """Returns the largest difference between a device and the CPU, relative to the largest number.

    Raises:
        ValueError: if nothing on the CPU is other than zero, so that nothing could differ.
    """
    found, expected = (tree_leaves(list(run(each))) for each in (device, CPU))
    most, largest = 0.0, 0.0
    for one, other in zip(found, expected, strict=True):
        a, b = (torch.as_tensor(each).detach().cpu().double() for each in (one, other))
        if a.shape != b.shape or not torch.equal(a.isfinite(), b.isfinite()):
            return math.inf
        if a.numel():
            gap, size = (each.nan_to_num().abs().max() for each in (a - b, b))
            most, largest = max(most, float(gap)), max(largest, float(size))
    if not largest:
        raise ValueError("Expected results that are not all zero. Found only zeros on the CPU")
    return most / largest


def learned(
    rule: la.Rule, make: Callable[[], nn.Module], size: tuple[int, ...], device: torch.device
) -> Iterator[Tensor]:
    """Yields the change of the same weights by each of two windows, with traces carried."""
    generator = torch.Generator("cpu").manual_seed(0)
    with device:
        model = la.Serial(make(), contract.Spike())
        trainer = la.RuleTrainer(rule, time_dim=0)
    weight = model.connection.get_parameter("weight")
    # With these, about a fifth of the currents exceed the threshold.
    start = torch.rand(weight.shape, generator=generator).to(device) * 3.5 / weight[0].numel()
    updater = la.attach_updater(model.connection)
    trainer.register_cell("cell", model.cell)
    for i in range(2):
        weight.data.copy_(start)
        inputs = torch.rand(STEPS, SAMPLES, *size, generator=generator) < 0.2
        model(inputs.to(device))
        with device:
            trainer(**contract.inputs_of(trainer, i))
        updater()
        yield weight.detach() - start


def steps(case: Any, device: torch.device) -> Iterator[Any]:
    """Yields what an object of a case returns in three steps, from the state of one on the CPU."""
    torch.manual_seed(0)
    with CPU:
        original = case.make()
    with device:
        obj = case.make()
    if isinstance(obj, nn.Module):
        obj.load_state_dict(original.state_dict())
    for i in range(3):
        with device:
            yield case.run(obj, i)


if __name__ == "__main__":
    main()
