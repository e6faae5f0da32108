"""Imports the installed package as its user does, and checks what a checkout cannot show."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.resources
import pkgutil
import sys

import lightning_accum

LIGHTNING = {"lightning", "lightning_fabric", "pytorch_lightning"}

loaded = LIGHTNING & set(sys.modules)
assert not loaded, f"`import lightning_accum` imports {loaded}; only `callbacks` may."

files = importlib.resources.files(lightning_accum)
assert "site-packages" in str(files), f"Expected the installed package. Found {files}."
assert (files / "py.typed").is_file(), "The wheel lacks `py.typed`."

version = importlib.metadata.version("lightning-accum")
assert version == lightning_accum.__version__, f"{version} != {lightning_accum.__version__}"

names = [m.name for m in pkgutil.walk_packages(lightning_accum.__path__, "lightning_accum.")]
for name in names:
    importlib.import_module(name)
print(f"lightning_accum {version}: {len(names)} modules of the wheel import")
