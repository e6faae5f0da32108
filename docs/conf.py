"""How the pages are built: `make docs`."""

from __future__ import annotations

from lightning_accum import __version__

project = "lightning_accum"
author = "The lightning_accum authors"
copyright = f"2026, {author}"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"{project} {release}"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

napoleon_numpy_docstring = False
# Attributes as fields of their class: as entries of their own they would stand twice in the index.
napoleon_use_ivar = True

# The packages' `__all__` says what is public, in the order of the source.
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# What a base class in torch or Lightning says of its method stands in their docs, in their markup.
autodoc_inherit_docstrings = False

# The pages' own code runs here; pytest runs the docstrings', with their modules' names in scope.
doctest_test_doctest_blocks = ""
