"""Shows all public names in the reference, under their public paths.

On the other pages, code that is a public name, such as ``STDP``, becomes a link to it.
``.. summary:: lightning_accum.rules`` is a table of a package's names, each with its first line.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.ext.autosummary import Autosummary
from sphinx.ext.intersphinx import missing_reference
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

logger = logging.getLogger(__name__)

_PACKAGES = (
    *("functional", "plot", "updates", "observe", "accumulators", "optim"),
    *("nn", "engine", "cells", "nir", "rules", "metrics", "health", "callbacks"),
)


def _public(name: str) -> str | None:
    """Returns the public path of ``name``, a path into this package; ``None`` without one."""
    for package in _PACKAGES:
        module = importlib.import_module(f"lightning_accum.{package}")
        head, _, tail = name.rpartition(".")
        for path, member in ((name, ""), (head, f".{tail}")):
            last = path.rpartition(".")[2]
            if last in module.__all__:
                return f"{module.__name__}.{last}{member}"
    return None


def _resolve_others(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Finds a name of another library that its reference has under a shorter path."""
    target = str(node.get("reftarget", ""))
    *path, last = target.split(".")
    for length in range(len(path) - 1, 0, -1):
        node["reftarget"] = ".".join([*path[:length], last])
        found = missing_reference(app, env, node, content)
        if found is not None:
            return found
    node["reftarget"] = target
    return None


def _resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Finds what is referred to by another path than the reference's, such as the top level's."""
    target = str(node.get("reftarget", ""))
    ours = target.startswith("lightning_accum.")
    found = _public(target if ours else f"lightning_accum.{target}")
    if node.get("refdomain") != "py":
        return None
    if not ours and "." in target:
        return _resolve_others(app, env, node, content)
    if found in (None, target):
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


# Methods that parts of the package call on each other, by package, or in any.
_BETWEEN_PARTS = {
    "accumulators": {"begin", "check", "check_selected", "ending", "forget", "send"},
    "callbacks": {"add_watcher", "prefix_in"},
    "cells": {"check_params", "default_events"},
    "engine": {"expand", "is_named", "is_pair", "parse", "signals", "source", "with_data"},
    "nn": {"constant_threshold", "gradient"},
    "observe": {"events", "observe", "receive", "why_missing"},
    "optim": {"ids", "ready_state", "step_groups"},
    "": {
        *("check_extra_state", "get_extra_state", "set_extra_state"),
        *("loop_constants", "begin_loop", "end_loop", "finish_batch", "updater_of", "released"),
    },
}
# Methods of callbacks and strategies that Lightning calls, without those that begin with `on_`.
_LIGHTNING = {"configure_ddp", "setup", "state_key", "teardown"}


def _skip_fields(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leaves out fields of named tuples, hooks of Lightning, and methods that parts call."""
    owner = getattr(obj, "fget", obj)  # a property has no module of its own
    module = getattr(owner, "__module__", None) or ""  # which is None for some members
    package = module.split(".")[1:2] if module.startswith("lightning_accum.") else []
    inner = package != [] and any(name in _BETWEEN_PARTS.get(each, ()) for each in (*package, ""))
    hook = package == ["callbacks"] and (name.startswith("on_") or name in _LIGHTNING)
    if type(obj).__name__ == "_tuplegetter" or inner or hook:
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


_HOOKS = ("terms", "states", "reads", "prepare", "check", "of_cell")  # that authors of rules write


def _write_pages(app: Any) -> None:
    """Writes a page for each name of ``rules``; that of ``Rule`` has what authors write apart."""
    folder = Path(app.srcdir) / "api" / "rules"
    folder.mkdir(exist_ok=True)
    module = importlib.import_module("lightning_accum.rules")
    for name in module.__all__:
        kind = "class" if isinstance(getattr(module, name), type) else "function"
        path = f"lightning_accum.rules.{name}"
        lines = [f"# {name}", "", "```{eval-rst}", f".. auto{kind}:: {path}"]
        if name == "Rule":
            lines += [
                f"   :exclude-members: {', '.join(_HOOKS)}",
                "```",
                "",
                "## For authors of rules",
            ]
            lines += ["", "```{eval-rst}", *(f".. automethod:: {path}.{hook}" for hook in _HOOKS)]
        page, text = folder / f"{name}.md", "\n".join([*lines, "```", ""])
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


class LinkNames(SphinxTransform):
    """Links inline code that is a public name, or a method of one, to its entry."""

    default_priority = 500

    def apply(self, **options: Any) -> None:
        """Wraps such code in a link, as a role would, unless it is in one."""
        for code in list(self.document.findall(nodes.literal)):
            name, _, member = code.astext().partition(".")
            package = _owners().get(name)
            inside = isinstance(code.parent, (nodes.reference, addnodes.pending_xref))
            if package is None or inside or isinstance(code.parent.parent, addnodes.pending_xref):
                continue
            value = getattr(importlib.import_module(package), name)
            if member and not hasattr(value, member):
                continue
            target = f"{package}.{code.astext()}"
            link = addnodes.pending_xref(refdomain="py", reftype="obj", reftarget=target)
            link["refdoc"] = self.env.docname
            code.replace_self(link)
            link += code


@cache
def _owners() -> dict[str, str]:
    """The package of each public name that only one package has."""
    found: dict[str, list[str]] = {}
    for package in (f"lightning_accum.{name}" for name in _PACKAGES):
        for name in importlib.import_module(package).__all__:
            found.setdefault(name, []).append(package)
    return {name: packages[0] for name, packages in found.items() if len(packages) == 1}


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
    """Connects the functions above; of autosummary, it takes the tables, and no pages."""
    app.setup_extension("sphinx.ext.autosummary")
    app.add_directive("summary", Summary)
    app.add_transform(LinkNames)
    app.connect("builder-inited", _write_pages)
    app.connect("env-check-consistency", _check_complete)
    app.connect("missing-reference", _resolve)
    app.connect("autodoc-process-bases", _show_public_bases)
    app.connect("autodoc-skip-member", _skip_fields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
