"""Each block of code of a page runs alone, in a namespace and a folder of its own.

Only what a page tells its readers to save, as in "Save this as ``patterns.py``", is in the folder
of the later blocks, which import it. The tutorials are notebooks, and run from top to bottom.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

_SAVED = re.compile(r"\bSave this block as\s+(\w+\.py)\b")


def set_apart(document: nodes.document) -> None:
    """Gives each block a group of its own, which the doctest builder runs by itself."""
    group, saved = "", ""
    for node in [*document.findall(lambda node: "testnodetype" in getattr(node, "attributes", ()))]:
        if node["testnodetype"] != "testoutput":  # which belongs to the block before it
            group = f"line {node.line}"
        node["groups"] = [group]
        if node["testnodetype"] == "testoutput":
            continue
        if saved:
            before = nodes.comment(saved, saved, testnodetype="testsetup", groups=[group])
            before.line, before.source = node.line, node.source
            node.parent.insert(node.parent.index(node), before)
        above = node.parent[: node.parent.index(node)]
        text = next((each.astext() for each in reversed(above) if not _is_comment(each)), "")
        for name in _SAVED.findall(text):
            saved += f"open({name!r}, 'w').write({node.astext()!r})\n"


def _is_comment(node: nodes.Node) -> bool:
    return isinstance(node, nodes.comment)


def setup(app: Any) -> dict[str, bool]:
    """Connects it."""
    app.connect("doctree-read", lambda _, document: set_apart(document))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
