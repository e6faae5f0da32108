"""How the pages are built: `make docs`."""

from __future__ import annotations

import doctest
import hashlib
import importlib
import importlib.metadata
import os
import sys
from logging import getLogger
from pathlib import Path
from typing import Any

from sphinx.util import logging

import lightning_accum
from lightning_accum import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
importlib.import_module("page_environment")  # also for the tutorials

logger = logging.getLogger(__name__)

project = "lightning_accum"
author = "The lightning_accum authors"
copyright = f"2026, {author}"
release = version = __version__

extensions = [
    "gallery",
    "mathml",
    "summary",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "_ext"]
autosummary_generate = False
html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {}
# With the repository's address, each page links to its source there.
_urls = dict(
    url.split(", ", 1) for url in importlib.metadata.metadata(project).get_all("Project-URL", [])
)
if "Repository" in _urls:
    html_theme_options = {
        "source_repository": _urls["Repository"],
        "source_branch": "main",
        "source_directory": "docs/",
    }
html_math_renderer = "mathml"

# What is copied are the statements: neither prompts nor what they print.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Names of these libraries are links if their inventories can be had, which the build says where: it
# fetches none by itself, so that it ends alike with internet and without.
#     INVENTORIES=online make docs     # or a folder with torch.inv, lightning.inv, ...
_inventories = os.environ.get("INVENTORIES", "online" if "READTHEDOCS" in os.environ else "")
_libraries = {
    "python": "https://docs.python.org/3/",
    "torch": "https://docs.pytorch.org/docs/stable/",
    "lightning": "https://lightning.ai/docs/pytorch/stable/",
    "torchmetrics": "https://lightning.ai/docs/torchmetrics/stable/",
}
intersphinx_timeout = 10
intersphinx_mapping = {
    name: (address, None if _inventories == "online" else str(Path(_inventories) / f"{name}.inv"))
    for name, address in _libraries.items()
    if _inventories == "online" or (Path(_inventories) / f"{name}.inv").is_file()
}


# The tutorials' kernel has settings of its own, and none of whoever builds the pages.
IPYTHON = HERE / "_build" / "ipython"
(IPYTHON / "profile_default").mkdir(parents=True, exist_ok=True)
(IPYTHON / "profile_default" / "ipython_kernel_config.py").write_text(
    "c.IPKernelApp.log_level = 'ERROR'\n"
)
os.environ["IPYTHONDIR"] = str(IPYTHON)
# What runs a notebook tells so, on stderr, where a quiet build prints warnings.
getLogger("traitlets").setLevel("WARNING")


def _source_digest() -> str:
    """Changes with the package: what the tutorials print depends on it as on their own code."""
    digest = hashlib.sha256()
    for path in sorted(Path(lightning_accum.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# The tutorials run when the pages are built, once for each state of theirs and of the package. A
# cell that raises fails the build. They run in an empty folder; what Lightning and progress bars
# write to stderr is left out of the pages.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "tutorials" / _source_digest())
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"

napoleon_numpy_docstring = False
# Attributes as fields of their class: as entries of their own they would stand twice in the index.
napoleon_use_ivar = True

# The packages' `__all__` says what is public, in the order of the source.
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    # What torch calls, and no reader does.
    "exclude-members": "extra_repr, get_extra_state, set_extra_state",
}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# What a base class in torch or Lightning says of its method stands in their docs, in their markup.
autodoc_inherit_docstrings = False

# A name in single backticks is a link to what it names.
default_role = "py:obj"
# A reference into this package has to lead somewhere; other packages' pages are not looked up.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!lightning_accum\b).*"),
    # The engine makes signals and windows of them; a rule never does.
    (
        r"py:class",
        r"lightning_accum\.engine\.(source\.Source|vjp\.base\.WeightVJP|state\.StateKey)",
    ),
    (r"py:class", r"lightning_accum\.engine\.recording\.Recording"),
    (r"py:class", r"lightning_accum\.sparse\.events\.Events"),
    (r"py:class", r"lightning_accum\.cells\.registry\.CellRegistry"),
    # What trainers make of cells and keep of them; users never make one.
    (r"py:class", r"lightning_accum\.cells\.(tally\.Tally|state\.CellState)"),
    (r"py:class", r"lightning_accum\.cells\.independent\.RegisteredCell"),
    (r"py:class", r"lightning_accum\.observe\.monitor\.MonitorConstructor"),
    # Files that are private to their folder, which name the types of methods that nobody calls.
    (r"py:class", r"lightning_accum\.(\w+\.)+_[a-z]\w*\.\w+"),
]

# The pages' own code runs here; pytest runs the docstrings', with their modules' names in scope.
doctest_test_doctest_blocks = ""
doctest_global_setup = "import page_environment; page_environment.enter(); del page_environment"
doctest_global_cleanup = "import page_environment; page_environment.leave()"
# Sphinx would not compare the messages of exceptions, of which the pages show some.
doctest_default_flags = (
    doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.DONT_ACCEPT_TRUE_FOR_1
)

_PACKAGES = (
    *("functional", "updates", "observe", "accumulators", "optim"),
    *("nn", "engine", "cells", "rules", "metrics", "callbacks"),
)


def _public(name: str) -> str | None:
    """Where the reference has what ``name``, a path into this package, is: its public path."""
    for package in _PACKAGES:
        module = importlib.import_module(f"lightning_accum.{package}")
        head, _, tail = name.rpartition(".")
        for path, member in ((name, ""), (head, f".{tail}")):
            last = path.rpartition(".")[2]
            if last in module.__all__:
                return f"{module.__name__}.{last}{member}"
    return None


def _resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Finds what is referred to by another path than the reference's, such as the top level's."""
    target = str(node.get("reftarget", ""))
    ours = target.startswith("lightning_accum.")
    found = _public(target if ours else f"lightning_accum.{target}")
    if node.get("refdomain") != "py" or found in (None, target) or not (ours or "." not in target):
        return None
    return env.get_domain("py").resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], found, node, content
    )


def _show_public_bases(app: Any, name: str, cls: type, options: Any, bases: list[Any]) -> None:
    """Shows in place of a base that is not public the bases that it has itself."""
    shown: list[Any] = []
    waiting = list(bases)
    while waiting:
        base = waiting.pop(0)
        ours = getattr(base, "__module__", "").startswith("lightning_accum")
        if ours and _public(f"{base.__module__}.{base.__qualname__}") is None:
            waiting = [*base.__bases__, *waiting]
        else:
            shown.append(base)
    bases[:] = shown


# Methods that parts of the package call on each other: those of pipes and of optimizers.
_BETWEEN_PARTS = {
    *("link", "keep_local", "compute_over", "add_data", "attach_to", "bind_as", "bind_stages"),
    *("begin", "check", "ends", "forget", "settle", "as_branch", "send"),
    *("ready_state", "step_groups"),
}


def _offer_notebook(app: Any, name: str, source: list[str]) -> None:
    """Puts below a tutorial's title the link to it as a notebook, which its page was made of."""
    if name.startswith("tutorials/") and "{code-cell}" in source[0]:
        file = name.rpartition("/")[2]
        head, title, text = source[0].partition("\n# ")
        title, end, text = (title + text).partition("\n\n")
        link = f"Download this page as a notebook, {{nb-download}}`{file}.ipynb`."
        source[0] = f"{head}{title}{end}{link}\n\n{text}"


def _skip_fields(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leaves out fields of named tuples, and methods that parts of the package call."""
    module = getattr(obj, "__module__", None) or ""  # which is None for some members
    inner = module.split(".")[1:2] in (["accumulators"], ["optim"])
    if type(obj).__name__ == "_tuplegetter" or (inner and name in _BETWEEN_PARTS):
        return True
    return None


def _check_complete(app: Any, env: Any) -> None:
    """Warns of public names that the reference lacks; of those that it has twice, Sphinx does."""
    described = env.get_domain("py").objects
    for package in _PACKAGES:
        for name in importlib.import_module(f"lightning_accum.{package}").__all__:
            if f"lightning_accum.{package}.{name}" not in described:
                logger.warning(
                    "The reference should describe every public name. Found no"
                    f" `lightning_accum.{package}.{name}`: describe it in `api/{package}.md`."
                )


def setup(app: Any) -> None:
    """Connects the functions above."""
    app.connect("env-check-consistency", _check_complete)
    app.connect("missing-reference", _resolve)
    app.connect("autodoc-process-bases", _show_public_bases)
    app.connect("autodoc-skip-member", _skip_fields)
    app.connect("source-read", _offer_notebook)
