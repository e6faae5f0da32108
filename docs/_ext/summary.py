"""``.. summary:: lightning_accum.rules``: a table of a package's public names, each with a line."""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.ext.autosummary import Autosummary


class Summary(Autosummary):
    """An autosummary of what a package's ``__all__`` lists, without the signatures."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """Lists the names, and lets autosummary find their first lines."""
        package = self.arguments[0]
        names = sorted(importlib.import_module(package).__all__, key=str.lower)
        self.options["nosignatures"] = None
        self.content = StringList([f"~{package}.{name}" for name in names], source=package)
        return super().run()


def setup(app: Any) -> dict[str, bool]:
    """Adds the directive, and autosummary without the pages that it can write."""
    app.setup_extension("sphinx.ext.autosummary")
    app.add_directive("summary", Summary)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
