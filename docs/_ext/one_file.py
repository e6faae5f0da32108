"""An example as one file, which can be pasted: what it imports from its folder is in it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


class Part(NamedTuple):
    """A statement, with the comments above it."""

    text: str
    defines: set[str]
    uses: set[str]


def beside(module: str | None) -> bool:
    """Whether a module is a file of the examples."""
    return module is not None and (EXAMPLES / f"{module}.py").exists()


@cache
def _read(name: str) -> tuple[str, dict[str, tuple[str | None, str]], list[Part]]:
    """A file's docstring, the modules and names of what it imports, and its other statements."""
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    lines, (first, *body) = source.splitlines(), ast.parse(source).body
    end = first.end_lineno or 0
    docstring, imports, parts = "\n".join(lines[:end]), {}, []
    for node in body:
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for each in node.body if isinstance(node, ast.If) and typing else [node]:
            for alias in each.names if isinstance(each, (ast.Import, ast.ImportFrom)) else ():
                module = each.module if isinstance(each, ast.ImportFrom) else None
                bound = alias.asname or alias.name.partition(".")[0]
                imports[bound] = (module, ast.unparse(alias))
        names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        defines = {each.id for each in names if isinstance(each.ctx, ast.Store)}
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defines = {node.name}
        if not typing and not isinstance(node, (ast.Import, ast.ImportFrom)):
            text = "\n".join(lines[end : node.end_lineno]).strip("\n")
            parts.append(Part(text, defines, {each.id for each in names}))
        end = node.end_lineno or 0
    return docstring, imports, parts


def one_file(name: str) -> str:
    """Returns an example's source without imports of other examples."""
    taken: dict[str, set[int]] = {}
    lines: set[str] = set()
    modules: dict[str, set[str]] = {}

    def take(file: str, wanted: set[str] | None) -> None:
        """Takes the statements of a file that define names, and all that they use."""
        _, imports, parts = _read(file)
        if file not in taken:
            for module in sorted({str(each) for each, _ in imports.values() if beside(each)}):
                take(module, set())  # first: what a file imports stands above it
            taken[file] = set()
        for index, part in enumerate(parts):
            if index in taken[file] or not (wanted is None or wanted & part.defines):
                continue
            taken[file].add(index)
            for used in sorted(part.uses):
                module, alias = imports.get(used, (file, used))
                if beside(module):
                    take(str(module), {alias})
                elif module is None:
                    lines.add(f"import {alias}")
                else:
                    modules.setdefault(module, set()).add(alias)

    take(name, None)
    froms = [f"from {module} import {', '.join(sorted(modules[module]))}" for module in modules]
    head = "\n\n".join([_read(name)[0], "from __future__ import annotations"])
    bodies = ["\n".join([head, "", *sorted(lines), *sorted(froms)])]
    for file, indices in taken.items():
        texts = [_read(file)[2][index].text for index in sorted(indices)]
        bodies += [f"# ---- of examples/{file}.py", *texts] if texts else []
    return "\n\n\n".join(bodies) + "\n"
