"""What a report of a problem should name: versions, devices, and the compiled kernel."""

import platform
from importlib import metadata

import torch

from lightning_accum.sparse.kernel_library import library, why_not

_PACKAGES = ("torch", "lightning", "torchmetrics", "tensorboard", "numpy")


def show_versions() -> None:
    """Prints what a report of a problem should name.

    These are the versions of this package and of what it needs, the machine, its GPU, and whether
    the compiled kernel is in use, with the reason if it is not.

    Example:
        >>> from lightning_accum import show_versions
        >>> show_versions()
        lightning_accum ...
        Python ...
    """
    lines = {"lightning_accum": _version("lightning-accum"), "Python": platform.python_version()}
    lines |= {name: _version(name) for name in _PACKAGES}
    gpu = torch.cuda.is_available()
    lines |= {
        "platform": platform.platform(),
        "GPU": torch.cuda.get_device_name() if gpu else "none",
    }
    kernel = library(torch.float32)
    lines["compiled kernel"] = f"none: {why_not()}" if kernel is None else f"for {kernel.level}"
    for name, value in lines.items():
        print(f"{name:<16} {value}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
