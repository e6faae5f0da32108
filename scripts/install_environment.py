"""``pip install ARGS``, with PyTorch settled first, into the environment that runs this script.

A plain ``pip install torch`` brings several gigabytes of CUDA libraries on Linux, GPU or not. So
this installs a CPU build where there is no NVIDIA GPU, and holds whatever torch is there while pip
installs the rest. It does nothing to a torch that is already there and new enough.

    .venv/bin/python scripts/install_environment.py -e '.[dev]'
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TORCH = "2.13.0"
UV = "0.13.9"
PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def pip(*args: str) -> bool:
    """Runs pip in this environment; returns whether it succeeded."""
    return subprocess.run([sys.executable, "-m", "pip", *args], check=False).returncode == 0


def numbers(version: str) -> tuple[int, ...]:
    """Returns the release part of a version, comparable: ``2.13.0+cpu`` is ``(2, 13, 0)``."""
    return tuple(int(n) for n in re.findall(r"\d+", re.split(r"[^\d.]", version, maxsplit=1)[0]))


def versions() -> dict[str, str]:
    """Returns the version of every distribution here, as this moment's file system has it."""
    found = {}
    for dist in importlib.metadata.distributions():
        found[dist.metadata["Name"].lower()] = dist.version
    return found


def torch_works() -> bool:
    """Tells whether torch imports here, in a process of its own, and is new enough."""
    floor = re.search(r'"torch>=([\d.]+)', PYPROJECT.read_text(encoding="utf-8"))
    if floor is None:
        sys.exit(f"Expected a requirement `torch>=VERSION` in {PYPROJECT}. Found none.")
    imports = subprocess.run([sys.executable, "-c", "import torch"], stderr=subprocess.DEVNULL)
    return imports.returncode == 0 and numbers(versions()["torch"]) >= numbers(floor[1])


def has_nvidia_gpu() -> bool:
    """Tells whether the NVIDIA driver lists a GPU."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and b"GPU" in listed.stdout


def install_torch(cpu_build: bool) -> bool:
    """Installs torch: the registry's own build, or a CPU build; returns whether it succeeded."""
    if not cpu_build:
        return pip("install", "torch")
    print(f"No NVIDIA GPU found: installing the CPU build of torch {TORCH}.", flush=True)
    # pip finds a CPU build only where it is configured to look; uv knows PyTorch's own index.
    wheel = [sys.executable, "-m", "pip", "install", f"torch=={TORCH}+cpu"]
    if subprocess.run(wheel, capture_output=True, check=False).returncode == 0:
        return True
    print("pip knows of no CPU build; asking uv, which does.", flush=True)
    if not pip("install", "--quiet", f"uv=={UV}"):
        return False
    uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    wanted = ["--torch-backend=cpu", f"torch=={TORCH}"]
    return subprocess.run([*uv, *wanted], check=False).returncode == 0


def install_rest(args: list[str]) -> bool:
    """Runs ``pip install ARGS`` with torch held at the version that is here."""
    with tempfile.TemporaryDirectory() as folder:
        held = Path(folder) / "constraints.txt"
        held.write_text(f"torch=={versions()['torch']}\n", encoding="utf-8")
        print(f"Installing {' '.join(args)} (a minute or two).", flush=True)
        return pip("install", "--quiet", "--constraint", str(held), *args)


def main(args: list[str]) -> None:
    """Installs torch where it is missing, then what the arguments name."""
    if sys.version_info < (3, 10):  # noqa: UP036 - the place where an older one is turned away
        sys.exit(
            f"Expected Python 3.10 or newer. Found {platform.python_version()}. "
            "Run `make clean`, then `make setup PYTHON=python3.11` or another that you have."
        )
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"

    cpu_build = sys.platform == "linux" and not has_nvidia_gpu()
    before = set(versions())
    if not torch_works() and not install_torch(cpu_build):
        sys.exit(
            "torch could not be installed. Install any build of it into this environment by hand "
            f"(its Python is {sys.executable}), and run the same command again."
        )
    if not install_rest(args):
        sys.exit("pip could not install the rest; its own message stands above.")
    cuda = sorted(name for name in set(versions()) - before if name.startswith("nvidia-"))
    if cpu_build and cuda:
        sys.exit(f"Expected no CUDA libraries on a machine without a GPU. Found {cuda}.")


if __name__ == "__main__":
    main(sys.argv[1:])
