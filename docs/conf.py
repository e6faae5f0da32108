"""How the pages are built: `make docs`."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import os
import sys
from pathlib import Path

from lightning_accum import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
importlib.import_module("page_environment")  # also for the tutorials
tutorials = importlib.import_module("tutorials")

project = "lightning_accum"
author = "The lightning_accum authors"
copyright = f"2026, {author}"
release = version = __version__

extensions = [
    "alone",
    "gallery",
    "offline",
    "reference",
    "tutorials",
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


# The tutorials run when the pages are built, once for each state of theirs and of the package. A
# cell that raises fails the build. They run in an empty folder; what Lightning and progress bars
# write to stderr is left out of the pages.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "tutorials" / tutorials.source_digest())
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"

napoleon_numpy_docstring = False
# Attributes as fields of their class: as entries they would be twice in the index.
napoleon_use_ivar = True

# The packages' `__all__` says what is public, in the order of the source.
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    # Methods that only torch calls.
    "exclude-members": "extra_repr, get_extra_state, set_extra_state",
}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# Docstrings of torch's and Lightning's methods are in their documentation, and in their markup.
autodoc_inherit_docstrings = False

# A name in single backticks is a link to what it names.
default_role = "py:obj"
# A reference into this package has to lead somewhere; other packages' pages are not looked up.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!lightning_accum\b).*"),
    # The engine makes these; a rule never does.
    (r"py:class", r"lightning_accum\.engine\.(vjp\.WeightVJP|rule_inputs\.Recording)"),
    (r"py:class", r"lightning_accum\.rules\.stllr\.Derivative"),
    (r"py:class", r"lightning_accum\.sparse\.(events\.Events|synapse_products\.Synapses)"),
    (r"py:class", r"lightning_accum\.sparse\.neurons\.(LoopTerms|SpikingNeurons)"),
    (r"py:class", r"lightning_accum\.nn\.sparse_linear\.Replacement"),
    (r"py:class", r"lightning_accum\.functional\.(kernels\.Coefficients|reductions\.Reduction)"),
    (r"py:class", r"lightning_accum\.metrics\.update_statistics\.AdditiveMetric"),
    # Trainers make these; users never do.
    (r"py:class", r"lightning_accum\.cells\.cell\.CellRegistry"),
    (r"py:class", r"lightning_accum\.cells\.state\.(CellState|RunOptions)"),
    (r"py:class", r"lightning_accum\.cells\.rule_trainer\.RegisteredCell"),
    (r"py:class", r"lightning_accum\.observe\.monitor\.MonitorConstructor"),
    (r"py:class", r"lightning_accum\.health\.watch\.Clock"),
    # Files that are private to their folder, which name the types of methods that nobody calls.
    (r"py:class", r"lightning_accum\.(\w+\.)*_[a-z]\w*\.\w+"),
]

# The pages' own code runs here; pytest runs the docstrings', with their modules' names in scope.
doctest_test_doctest_blocks = ""
doctest_global_setup = "import page_environment; page_environment.enter(); del page_environment"
doctest_global_cleanup = "import page_environment; page_environment.leave()"
# Sphinx would not compare the messages of exceptions, of which the pages show some.
doctest_default_flags = (
    doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.DONT_ACCEPT_TRUE_FOR_1
)
