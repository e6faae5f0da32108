"""Published optimizers to compare with, where they are installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

Make = Callable[..., torch.optim.Optimizer]


def published(lr: float, decay: float) -> dict[str, Make]:
    """AdaBelief and RAdam of pytorch_optimizer and timm, by name."""
    found: dict[str, Make] = {}
    if importlib.util.find_spec("pytorch_optimizer"):
        library: Any = importlib.import_module("pytorch_optimizer")
        belief = partial(library.AdaBelief, rectify=False)
        found["pytorch_optimizer AdaBelief"] = partial(belief, lr=lr, weight_decay=decay)
        found["pytorch_optimizer RAdam"] = partial(library.RAdam, lr=lr)
    if bare("timm", "timm.optim"):
        belief = partial(importlib.import_module("timm.optim.adabelief").AdaBelief, rectify=False)
        found["timm AdaBelief"] = partial(belief, lr=lr, weight_decay=decay)
    return found


def bare(*packages: str) -> bool:
    """Stands in for packages whose own imports, torchvision for one, are not wanted here.

    An empty package over the same folder: its modules are found, its ``__init__`` is not run.
    """
    if packages[0] in sys.modules:
        return True
    spec = importlib.util.find_spec(packages[0])
    if spec is None or spec.origin is None:
        return False
    root = Path(spec.origin).parent
    for package in packages:
        module = types.ModuleType(package)
        module.__path__ = [str(root.joinpath(*package.split(".")[1:]))]
        sys.modules[package] = module
    return True
