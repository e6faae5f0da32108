"""The pages need nothing from elsewhere.

Formulas are MathML, which browsers render by themselves, and a page that loads a script, a style
or a picture from another site fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)
# Commands that the converter does not know, written by others that it does.
_REPLACED = {r"\arg": r"\operatorname{arg}"}


def _mathml(formula: str, node: nodes.Node, display: str) -> str:
    for command, known in _REPLACED.items():
        formula = re.sub(re.escape(command) + r"(?![a-zA-Z])", lambda _, to=known: to, formula)
    result = convert(formula, display=display).replace(r"\_", "_")
    if re.search(r"[\\&]", re.sub(r"<[^>]*>|&#?\w+;", "", result)) or "linebreak" in result:
        logger.warning(
            f"Formulas should have no command left. Found one in `{formula}`: write it with another"
            " one, or add it to `docs/_ext/offline.py`.",
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
    # Lines that end in a double backslash, with marks to align them at; the converter's name of the
    # environment for them is "split".
    lines = re.sub(r"(begin|end)\{aligned\}", r"\1{split}", node.astext())
    if r"\\" in lines and r"\begin" not in lines:
        lines = rf"\begin{{split}}{lines}\end{{split}}"
    self.body.append(_mathml(lines, node, "block"))
    self.body.append("</div>")
    raise nodes.SkipNode


# What a browser loads by itself; where a link leads is the reader's to choose.
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc=["']((?:https?:)?//[^"']+)"""
    r"""|<link\b(?=[^>]*stylesheet)[^>]*\bhref=["']((?:https?:)?//[^"']+)"""
)


def _check(app: Any, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    for page in sorted(Path(app.outdir).rglob("*.html")):
        found = _LOADED.search(page.read_text(encoding="utf-8"))
        if found:
            raise ExtensionError(
                "Pages should load nothing from elsewhere. Found"
                f" {found[1] or found[2]} in {page.name}: put a copy into `docs/_static`."
            )


def setup(app: Any) -> dict[str, bool]:
    """Makes ``html_math_renderer = "mathml"`` known, and checks what was built."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
