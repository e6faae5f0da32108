"""Installs the libraries of some extras, or some of them, with what they import.

A plain ``pip install`` of them also brings torchvision, of which the registry has no CPU build, and
which breaks beside a torch of another build, or compilers and codecs of hundreds of megabytes. What
is used here of them does without; so each library is installed alone, with the few packages that it
imports. One that cannot be installed is left out, for its tests, examples and benchmarks skip where
it is missing.

    .venv/bin/python scripts/install_extras.py neurons bindsnet
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"

# What importing them takes beside torch, NumPy and Matplotlib.
IMPORTS: dict[str, dict[str, tuple[str, ...]]] = {
    "neurons": {
        "snntorch": (),
        "norse": ("nir", "nirtorch", "h5py"),
        "spikingjelly": ("loguru",),
    },
    "events": {
        "tonic": ("importRosbag", "tqdm", "scipy", "h5py", "requests"),
    },
    "speech": {
        "aeon": (),
    },
    "rivals": {
        "pytorch_optimizer": (),
        "timm": (),
        "inferno-ai": ("einops",),
        "bindsnet": (),
    },
}


def main(names: list[str]) -> None:
    """Installs libraries, or those of an extra, by pyproject.toml, and says which are left out."""
    libraries: dict[str, tuple[str, ...]] = {}
    for extra, contents in IMPORTS.items():
        libraries |= {key: contents[key] for key in contents if {extra, key} & {*names}}
    text = PYPROJECT.read_text(encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for library, imports in libraries.items():
        wanted = re.search(rf'"({library}>=[^"]+)"', text)
        if wanted is None:
            sys.exit(f"Expected a requirement `{library}>=VERSION` in {PYPROJECT}. Found none.")
        print(f"Installing {wanted[1]}.", flush=True)
        done = subprocess.run([*pip, "--no-deps", wanted[1], *imports], check=False)
        if done.returncode != 0:
            print(f"{library} could not be installed: what tries it will be skipped.", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [*IMPORTS, *(library for contents in IMPORTS.values() for library in contents)]
    parser.add_argument("names", nargs="+", choices=known, metavar="NAME", help=", ".join(known))
    main(parser.parse_args().names)
