"""Private names of torch, and what to do without one."""

import ctypes
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import optimizer as optimizers


def in_backward() -> bool:
    """Whether a backward pass runs: what is called in it is computed again, as by checkpointing."""
    if torch.compiler.is_compiling():
        return False
    try:
        return torch._C._current_graph_task_id() != -1
    except AttributeError as error:
        raise lacking("torch", error) from error


def parallel_region() -> int | None:
    """Returns the address of the entry to OpenMP's regions in torch's process, ``None`` if none."""
    try:
        found = ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (AttributeError, OSError):
        return None
    return ctypes.cast(found, ctypes.c_void_p).value


def is_traced() -> bool:
    """Returns whether the running code is compiled, or transformed as by ``torch.func.vmap``."""
    return torch.compiler.is_compiling() or transform_level() is not None


_functorch: Any = getattr(torch._C, "_functorch", None)
transform_level = getattr(_functorch, "maybe_current_level", lambda: None)  # `None` outside


def values_under_vmap(tensor: object) -> Tensor | None:
    """Returns the values of all calls of ``torch.func.vmap``; ``None`` if all have the same."""
    level = None if torch.compiler.is_compiling() else transform_level()
    if level is None or not isinstance(tensor, Tensor):
        return None
    values, mapped = tensor, False
    while _functorch.is_functorch_wrapped_tensor(values):
        mapped = mapped or _functorch.is_batchedtensor(values)
        values = _functorch.get_unwrapped(values)
    return values if mapped else None


def in_dispatch_mode() -> bool:
    """Returns whether a mode, such as that of fake tensors, takes the operations on tensors."""
    # What is deleted while something is compiled should not compute: the mode would refuse it.
    return _is_in_mode()


_dispatch = getattr(torch.utils, "_python_dispatch", None)
_is_in_mode = getattr(_dispatch, "is_in_torch_dispatch_mode", lambda: False)


def compiled_from(module: nn.Module) -> nn.Module:
    """Returns the module that ``torch.compile`` was called with; another module itself."""
    try:
        children = module._modules
    except AttributeError as error:
        raise lacking("torch", error) from error
    return children["_orig_mod"] if "_orig_mod" in children else module  # type: ignore[return-value]


def is_compiler_failure(error: BaseException) -> bool:
    """Returns whether ``torch.compile`` raised an error because its backend could not compile."""
    # Looked up, as an import takes long; it is loaded if anything was compiled.
    errors: Any = sys.modules.get("torch._dynamo.exc")
    return errors is not None and isinstance(error, errors.BackendCompilerFailed)


T = TypeVar("T")


def attempt(borrowed: Callable[..., T], *args: Any, otherwise: T) -> T:
    """Calls a function of this package, or returns a fallback if the private name has changed."""
    try:
        return borrowed(*args)
    except MemoryError:
        raise
    except Exception:
        return otherwise


def lacking(package: str, name: object) -> RuntimeError:
    """Returns the error of a function that cannot do without a private name."""
    return RuntimeError(
        f"{package} should have a private name that lightning_accum needs. Found version"
        f" {metadata.version(package)}, and {name}: install an earlier version of {package}, or a"
        " later one of lightning-accum."
    )


def foreach(name: str) -> Any:
    """Returns the operation that applies ``name`` to each tensor of a list, in few kernels."""
    # It runs no line of Python, so that an interrupt cannot strike between two tensors.
    try:
        return getattr(torch, f"_foreach_{name}")
    except AttributeError as error:
        raise lacking("torch", error) from error


def fused_adam(decoupled: bool) -> Any:
    """Returns torch's kernel that steps lists of tensors by Adam, in one pass over memory."""
    # The public `torch.optim.adam.adam` sorts the tensors by device and dtype at every call.
    try:
        return torch._fused_adamw_ if decoupled else torch._fused_adam_
    except AttributeError as error:
        raise lacking("torch", error) from error


def step_is_watched(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether anything sees the steps of an optimizer: hooks, a scheduler, a profiler."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or optimizers._global_optimizer_pre_hooks
        or optimizers._global_optimizer_post_hooks
        or "step" in vars(optimizer)
        or torch.autograd.profiler._is_profiler_enabled
    )


def version(tensor: torch.Tensor) -> float:
    """Returns how often a tensor was written to in place; NaN for one that does not count it."""
    # A new NaN each time: tuples and lists take the same one for equal.
    return float("nan") if tensor.is_inference() else tensor._version


def forward_methods(module: nn.Module) -> list[str]:
    """Returns the Python module of each method with which a torch module computes its output."""
    # A convolution computes in `_conv_forward`, which a subclass may override instead.
    found = []
    for name in ("forward", "_conv_forward"):
        method = getattr(type(module), name, None)
        if name in vars(module):
            found.append("<object>")
        elif method is not None:
            found.append(method.__module__)
    return found


def hooks_around(module: nn.Module) -> tuple[list[Any], list[Any]]:
    """Returns a module's hooks on its input, and those on its output."""
    # torch has no public name for them.
    after = module._forward_hooks, module._backward_hooks, module._backward_pre_hooks
    return [*module._forward_pre_hooks.values()], [h for hooks in after for h in hooks.values()]


def hook_count(module: nn.Module) -> int:
    """Returns how many hooks a module's calls run."""
    return sum(map(len, hooks_around(module)))


def own_tensor(module: nn.Module, name: str) -> Tensor | None:
    """Returns a module's own parameter or buffer of a name; ``None`` if it has none."""
    # `getattr` runs properties and parametrizations, which compute a tensor.
    try:
        found = module._parameters.get(name)
        return module._buffers.get(name) if found is None else found
    except AttributeError as error:
        raise lacking("torch", error) from error


def ignore_in_ddp(module: nn.Module, names: list[str]) -> None:
    """Has DDP neither send these parameters and buffers to other processes, nor reduce them."""
    if not names:
        return
    try:
        of = torch.nn.parallel.DistributedDataParallel
        of._set_params_and_buffers_to_ignore_for_model(module, names)
    except AttributeError as error:
        raise lacking("torch", error) from error
