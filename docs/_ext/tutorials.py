"""How the tutorials run: with nobody's own settings, and anew when the package has changed."""

from __future__ import annotations

import hashlib
import os
from logging import getLogger
from pathlib import Path
from typing import Any

import lightning_accum

DOCS = Path(__file__).resolve().parent.parent

# The tutorials' kernel has settings of its own, and none of whoever builds the pages.
IPYTHON = DOCS / "_build" / "ipython"
(IPYTHON / "profile_default").mkdir(parents=True, exist_ok=True)
(IPYTHON / "profile_default" / "ipython_kernel_config.py").write_text(
    "c.IPKernelApp.log_level = 'ERROR'\n"
)
os.environ["IPYTHONDIR"] = str(IPYTHON)
# What runs a notebook tells so, on stderr, where a quiet build prints warnings.
getLogger("traitlets").setLevel("WARNING")


def source_digest() -> str:
    """Changes with the package: what the tutorials print depends on it as on their own code."""
    digest = hashlib.sha256()
    for path in sorted(Path(lightning_accum.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _offer_notebook(app: Any, name: str, source: list[str]) -> None:
    """Puts below a tutorial's title the link to it as a notebook, which its page was made of."""
    if name.startswith("tutorials/") and "{code-cell}" in source[0]:
        file = name.rpartition("/")[2]
        head, title, text = source[0].partition("\n# ")
        title, end, text = (title + text).partition("\n\n")
        link = f"Download this page as a notebook, {{nb-download}}`{file}.ipynb`."
        source[0] = f"{head}{title}{end}{link}\n\n{text}"


def setup(app: Any) -> dict[str, bool]:
    """Connects the function above."""
    app.connect("source-read", _offer_notebook)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
