"""Formulas as MathML, which browsers render by themselves: no script, no font from elsewhere."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)
# What the converter does not know, in words that it does.
_REPLACED = {r"\arg": r"\operatorname{arg}"}


def _mathml(formula: str, node: nodes.Node, display: str) -> str:
    for command, known in _REPLACED.items():
        formula = re.sub(re.escape(command) + r"(?![a-zA-Z])", lambda _, to=known: to, formula)
    result = convert(formula, display=display).replace(r"\_", "_")
    if "\\" in re.sub(r"<[^>]*>", "", result):
        logger.warning(
            f"Formulas should have no command left. Found one in `{formula}`: write it with another"
            " one, or add it to `docs/_ext/mathml.py`.",
            location=node,
        )
    return result


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(_mathml(node.astext(), node, "inline"))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math notranslate"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})</span>')
    # Lines that end in a double backslash, with or without marks to align them at.
    lines = node.astext()
    if r"\\" in lines and r"\begin" not in lines:
        lines = rf"\begin{{aligned}}{lines}\end{{aligned}}"
    self.body.append(_mathml(lines, node, "block"))
    self.body.append("</div>")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Makes ``html_math_renderer = "mathml"`` known."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
