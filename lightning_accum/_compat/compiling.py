"""Private names of torch about tracing and compiling."""

from __future__ import annotations

import functools
import inspect
import sys
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from lightning_accum._compat.fallback import lacking


def in_backward() -> bool:
    """Whether a backward pass runs: what is called in it is computed again, as by checkpointing.

    Example:
        >>> in_backward()
        False
    """
    if torch.compiler.is_compiling():
        return False
    try:
        return torch._C._current_graph_task_id() != -1
    except AttributeError as error:
        raise lacking("torch", error) from error


def forget_compiled(model: nn.Module) -> None:
    """Has ``torch.compile`` compile the code of a model's modules again, with their hooks.

    What is compiled calls no hook that was registered later, and torch does not look whether there
    are any. ``torch.compiler.reset()`` would forget what is compiled of everything else too.

    Args:
        model: whose own functions, those of the modules in it, and what their decorators wrap are
            forgotten; functions of the same code, as of other objects of the classes, are too.
    """
    conversion: Any = sys.modules.get("torch._dynamo.convert_frame")  # or nothing is compiled
    if conversion is None:
        return
    compiler: Any = sys.modules["torch._dynamo.eval_frame"]
    wrapper: Any = sys.modules["torch._dynamo.external_utils"]
    # A function may go on behind a graph break in code of its own, which begins at a later line.
    lines: set[tuple[str, int]] = set()
    for function in _functions(model):
        lines |= _lines(function.__code__)
    lines |= _lines(wrapper.wrap_inline(len).__code__)  # around modules of torch's own
    for seen in (*conversion.input_codes.seen, *conversion.output_codes.seen):
        code = seen()
        if code is not None and (code.co_filename, code.co_firstlineno) in lines:
            compiler.reset_code(code)


def _functions(model: nn.Module) -> set[FunctionType]:
    """The functions of a model's modules and of their classes, and those that these wrap."""
    owners = {base for module in model.modules() for base in type(module).__mro__}
    values = [value for owner in (*owners, *model.modules()) for value in vars(owner).values()]
    found: set[FunctionType] = set()
    while values:
        value: Any = values.pop()
        if isinstance(value, (MethodType, classmethod, staticmethod)):
            values.append(value.__func__)
        elif isinstance(value, functools.partial):
            values.append(value.func)
        elif isinstance(value, FunctionType) and value not in found:
            found.add(value)
            values += inspect.getclosurevars(value).nonlocals.values()  # what a decorator was given
    return found


def _lines(code: CodeType) -> set[tuple[str, int]]:
    """The lines of a function, by file and number, and those of what is nested in it."""
    found = {(code.co_filename, line) for _, _, line in code.co_lines() if line is not None}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _lines(constant)
    return found | {(code.co_filename, code.co_firstlineno)}


def is_traced() -> bool:
    """Returns whether the running code is compiled, or transformed as by ``torch.func.vmap``.

    Views of another dtype and conditions on values do not work there. ``torch.compiler`` tells
    about compilation; no public function tells whether a transform of ``torch.func`` runs.

    Example:
        >>> is_traced()
        False
    """
    return torch.compiler.is_compiling() or _transform_level() is not None


_functorch = getattr(torch._C, "_functorch", None)
_transform_level = getattr(_functorch, "maybe_current_level", lambda: None)


def in_dispatch_mode() -> bool:
    """Returns whether a mode, such as that of fake tensors, takes the operations on tensors.

    What is deleted while something is compiled should not compute with its tensors: the mode would
    refuse them. No public function tells whether there is a mode.

    Example:
        >>> in_dispatch_mode()
        False
    """
    return _is_in_mode()


_dispatch = getattr(torch.utils, "_python_dispatch", None)
_is_in_mode = getattr(_dispatch, "is_in_torch_dispatch_mode", lambda: False)


def compiled_from(module: nn.Module) -> nn.Module:
    """Returns the module that ``torch.compile`` was called with; another module itself.

    The module that ``torch.compile`` returns is of a private class, and holds the one that it was
    made from under a private name.

    Example:
        >>> fc = nn.Linear(2, 1)
        >>> compiled_from(torch.compile(fc)) is compiled_from(fc) is fc
        True
    """
    try:
        children = module._modules
    except AttributeError as error:
        raise lacking("torch", error) from error
    return children["_orig_mod"] if "_orig_mod" in children else module  # type: ignore[return-value]


def is_compiler_failure(error: BaseException) -> bool:
    """Returns whether ``torch.compile`` raised an error because its backend could not compile.

    Only a private class tells it from an error of the compiled code itself. It is looked up, as an
    import takes long, and it is loaded if anything was compiled.

    Args:
        error: the error that a compiled function raised.

    Example:
        >>> is_compiler_failure(RuntimeError())
        False
    """
    errors: Any = sys.modules.get("torch._dynamo.exc")
    return errors is not None and isinstance(error, errors.BackendCompilerFailed)
