"""Runs the tutorials without the user's settings, and again when the package has changed."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import sys
from collections.abc import Iterable
from logging import getLogger
from pathlib import Path
from typing import Any

import lightning_accum

DOCS = Path(__file__).resolve().parent.parent

# The tutorials' kernel reads these settings, and not those of the user who builds the pages.
IPYTHON = DOCS / "_build" / "ipython"
(IPYTHON / "profile_default").mkdir(parents=True, exist_ok=True)
(IPYTHON / "profile_default" / "ipython_kernel_config.py").write_text(
    "c.IPKernelApp.log_level = 'ERROR'\n"
)
os.environ["IPYTHONDIR"] = str(IPYTHON)
# The runner of notebooks writes to stderr, which a quiet build reserves for warnings.
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


_LINK = re.compile(r"\[([^\]]*)\]\(([\w./-]*?)\.(?:md|py)\)")
_NEEDS = re.compile(r"`pip install ([\w -]+)`")
_INSTALL = "# In a new environment, such as Colab:\n# %pip install lightning-accum "


def plain(cells: list[Any], site: str) -> list[Any]:
    """Returns a notebook's cells as Jupyter shows them: links to the site, and how to install."""

    def link(found: re.Match[str]) -> str:
        words, path = found.groups()
        page = posixpath.normpath(f"tutorials/{path}").replace("../examples", "gallery")
        return f"[{words}]({site}/{page}.html)" if site else f"*{words}*"

    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            source = re.sub(r"Download this page as a notebook.*\n+", "", source)
            cell["source"] = _LINK.sub(link, source)
    needs = _NEEDS.search("".join(cells[0]["source"]))
    install = _INSTALL + (needs[1] if needs else "matplotlib scikit-learn")
    first = {"cell_type": "code", "id": "install", "metadata": {}, "execution_count": None}
    return [*cells[:1], {**first, "outputs": [], "source": install}, *cells[1:]]


def write_plain(paths: Iterable[Path], site: str = "") -> None:
    """Rewrites notebooks that were made of pages."""
    for path in paths:
        book = json.loads(path.read_text(encoding="utf-8"))
        if not any(cell.get("id") == "install" for cell in book["cells"]):
            book["cells"] = plain(book["cells"], site)
            path.write_text(json.dumps(book, indent=1), encoding="utf-8")


def _offered(app: Any, failed: Exception | None) -> None:
    write_plain(Path(app.outdir).glob("_downloads/*/*.ipynb"), app.config.html_baseurl.rstrip("/"))


def setup(app: Any) -> dict[str, bool]:
    """Connects the functions above."""
    app.connect("source-read", _offer_notebook)
    app.connect("build-finished", _offered)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    write_plain(map(Path, sys.argv[1:]))
