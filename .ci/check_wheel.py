"""Imports the installed package as its user does, and checks what a checkout cannot show.

python check_wheel.py kernel     or `plain`, for a wheel that was built without a compiler
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.resources
import pkgutil
import sys

import torch

import lightning_accum
from lightning_accum.sparse.event_sums import event_matmul
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_library import library, why_not

LIGHTNING = {"lightning", "lightning_fabric", "pytorch_lightning"}

loaded = LIGHTNING & set(sys.modules)
assert not loaded, f"`import lightning_accum` imports {loaded}; only `callbacks` may."

files = importlib.resources.files(lightning_accum)
assert "site-packages" in str(files), f"Expected the installed package. Found {files}."
assert (files / "py.typed").is_file(), "The wheel lacks `py.typed`."

version = importlib.metadata.version("lightning-accum")
assert version == lightning_accum.__version__, f"{version} != {lightning_accum.__version__}"

lightning_accum.show_versions()
spikes, table = torch.ones(2, 3, dtype=torch.bool), torch.ones(3, 1)
assert event_matmul(Events(spikes), table).tolist() == [[3], [3]]
has_kernel = library(torch.float32) is not None
assert has_kernel == (sys.argv[1] == "kernel"), f"Expected {sys.argv[1]}. Found: {why_not()}"

names = [m.name for m in pkgutil.walk_packages(lightning_accum.__path__, "lightning_accum.")]
for name in names:
    importlib.import_module(name)
print(f"lightning_accum {version}: {len(names)} modules of the wheel import")
