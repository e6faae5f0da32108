"""Private names of torch, torchmetrics and Lightning: one function each, one test each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn


def in_backward() -> bool:
    """Whether a backward pass runs: what is called in it is computed again, as by checkpointing.

    Example:
        >>> in_backward()
        False
    """
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def forget_compiled(model: nn.Module) -> None:
    """Has ``torch.compile`` compile the code of a model's modules anew, with the hooks they have.

    What is compiled calls no hook that was registered later, and torch does not look whether there
    are any. ``torch.compiler.reset()`` would forget what is compiled of everything else too.

    Args:
        model: whose own functions, and those of the modules in it, are forgotten; functions of the
            same code, as of other objects of the classes, are too.
    """
    conversion: Any = sys.modules.get("torch._dynamo.convert_frame")  # or nothing is compiled
    if conversion is None:
        return
    compiler: Any = sys.modules["torch._dynamo.eval_frame"]
    wrapper: Any = sys.modules["torch._dynamo.external_utils"]
    # A function may go on behind a graph break in code of its own, which begins at a later line.
    lines: set[tuple[str, int]] = set()
    for kind in {type(module) for module in model.modules()}:
        for code in _methods(kind):
            lines |= _lines(code)
    lines |= _lines(wrapper.wrap_inline(len).__code__)  # around modules of torch's own
    for seen in (*conversion.input_codes.seen, *conversion.output_codes.seen):
        code = seen()
        if code is not None and (code.co_filename, code.co_firstlineno) in lines:
            compiler.reset_code(code)


def _methods(kind: type) -> Iterator[CodeType]:
    for base in kind.__mro__:
        for member in vars(base).values():
            code = getattr(getattr(member, "__func__", member), "__code__", None)
            if isinstance(code, CodeType):
                yield code


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


_transform_level = torch._C._functorch.maybe_current_level


def forward_methods(module: nn.Module) -> list[str]:
    """Returns the Python module of each method with which a torch module computes its output.

    A convolution computes in ``_conv_forward``, which a subclass may override instead of
    ``forward``; torch has no public name for it. A method that was assigned to the object itself
    is listed as ``"<object>"``.

    Args:
        module: the torch module.

    Example:
        >>> forward_methods(nn.Conv2d(1, 1, 1))
        ['torch.nn.modules.conv', 'torch.nn.modules.conv']
    """
    found = []
    for name in ("forward", "_conv_forward"):
        method = getattr(type(module), name, None)
        if name in vars(module):
            found.append("<object>")
        elif method is not None:
            found.append(method.__module__)
    return found


def compiled_from(module: nn.Module) -> nn.Module:
    """Returns the module that ``torch.compile`` was called with; another module itself.

    The module that ``torch.compile`` returns is of a private class, and holds the one that it was
    made from under a private name.

    Example:
        >>> fc = nn.Linear(2, 1)
        >>> compiled_from(torch.compile(fc)) is compiled_from(fc) is fc
        True
    """
    return dict(module.named_children()).get("_orig_mod", module)


def own_tensor(module: nn.Module, name: str) -> Tensor | None:
    """Returns a module's own parameter or buffer of a name; ``None`` if it has none.

    ``getattr`` and ``get_parameter`` run properties and parametrizations, which compute a tensor,
    and ``named_parameters`` collects all of them in microseconds; this is called in every batch.

    Example:
        >>> fc = nn.Linear(2, 1)
        >>> own_tensor(fc, "weight") is fc.weight, own_tensor(fc, "gain")
        (True, None)
    """
    found = module._parameters.get(name)
    return module._buffers.get(name) if found is None else found


def foreach_subtract(values: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    """Subtracts lists of tensors element by element, in few kernels.

    Public functions subtract one pair at a time.

    Example:
        >>> foreach_subtract([torch.ones(1), torch.ones(2)], [torch.ones(1), torch.zeros(2)])
        [tensor([0.]), tensor([1., 1.])]
    """
    return list(torch._foreach_sub(values, others))


def foreach_add_call(targets: list[Tensor], values: list[Tensor], alpha: float) -> partial[None]:
    """Returns a call that adds ``alpha · values`` to the targets, in place and in few kernels.

    The call runs no line of Python, so that an interrupt cannot strike in between. Public functions
    add to one tensor at a time.

    Example:
        >>> target = torch.ones(1)
        >>> _ = foreach_add_call([target], [torch.ones(1)], 0.5)()
        >>> target
        tensor([1.5000])
    """
    return partial(torch._foreach_add_, targets, values, alpha=alpha)


def foreach(name: str) -> Any:
    """Returns the operation that applies ``name`` to each tensor of a list, in few kernels.

    ``torch.optim`` itself steps by these operations. They are documented as a beta and have
    private names only, such as ``torch._foreach_add_``.

    Args:
        name: name of the operation on one tensor, such as ``"add_"``.

    Example:
        >>> counts = [torch.zeros(()), torch.ones(())]
        >>> _ = foreach("add_")(counts, 1)
        >>> counts
        [tensor(1.), tensor(2.)]
    """
    return getattr(torch, f"_foreach_{name}")


def fused_adam(decoupled: bool) -> Any:
    """Returns torch's kernel that steps lists of tensors by Adam, in one pass over memory.

    ``torch.optim.adam.adam(..., fused=True)`` calls the kernel too, but sorts the tensors by
    device and dtype at every call, and counts each tensor's steps in a tensor of its own.

    Args:
        decoupled: whether the weight decay is AdamW's.
    """
    return torch._fused_adamw_ if decoupled else torch._fused_adam_


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


def batches_that_stepped(trainer: Any) -> int:
    """Returns how many training batches have passed, by the count on a logger's x axis.

    Lightning's own callbacks log at this count; ``trainer.global_step`` counts optimizer steps.

    Args:
        trainer: a Lightning ``Trainer`` in a fit.
    """
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def logs_now(trainer: Any) -> bool:
    """Returns whether Lightning passes values that are logged in this batch to the loggers.

    The public ``log_every_n_steps`` does not tell: Lightning also logs the batch in which training
    stops.

    Args:
        trainer: a Lightning ``Trainer`` in a fit.
    """
    return bool(trainer._logger_connector.should_update_logs)


def skips_backward(trainer: Any) -> bool:
    """Returns whether the epoch only runs the model forward.

    ``StochasticWeightAveraging`` ends a fit with such an epoch, and sets nothing public.

    Args:
        trainer: a Lightning ``Trainer`` in a fit.
    """
    return bool(trainer.fit_loop._skip_backward)


def replaces_no_optimizer(optimizer: object) -> bool:
    """Returns whether Lightning made this optimizer because ``configure_optimizers`` returned none.

    The public list ``trainer.optimizers`` holds it like any other optimizer.

    Args:
        optimizer: an optimizer of a Lightning ``Trainer``.
    """
    module: Any = sys.modules["lightning.pytorch.core.optimizer"]
    return isinstance(optimizer, module._MockOptimizer)


def clear_trainer_optimizers(trainer: Any) -> None:
    """Empties ``trainer.optimizers``, and keeps what ``self.optimizers()`` returns to the module.

    Assigning ``trainer.optimizers = []`` empties both.

    Args:
        trainer: a Lightning ``Trainer`` in a fit.
    """
    shown = trainer.strategy._lightning_optimizers
    trainer.optimizers = []
    trainer.strategy._lightning_optimizers = shown


def logs_hyperparameters(holder: Any) -> bool:
    """Returns whether ``save_hyperparameters`` asked for logging, as its ``logger=True`` does.

    Args:
        holder: a LightningModule or a LightningDataModule.
    """
    return bool(holder._log_hyperparams)


def default_states(metric: Any) -> dict[str, Any]:
    """Returns the values to which ``reset`` sets the states of a metric, by name.

    The public ``metric_state`` returns only the current values.

    Args:
        metric: a torchmetrics ``Metric``.
    """
    defaults: dict[str, Any] = metric._defaults
    return defaults


def forget_computed(metric: Any) -> None:
    """Has the next ``compute`` of a metric compute again.

    torchmetrics returns the last result until ``update`` or ``reset`` is called, also after states
    were loaded or merged.

    Args:
        metric: a torchmetrics ``Metric``.
    """
    metric._computed = None


def mark_updated(metric: Any) -> None:
    """Has a metric know that it holds data, if ``update`` was never called.

    ``compute`` warns unless ``update`` was called; the public ``update_count`` cannot be set.

    Args:
        metric: a torchmetrics ``Metric``.
    """
    metric._update_count = max(metric.update_count, 1)


def version(tensor: torch.Tensor) -> int:
    """Returns how often a tensor was written to in place.

    Args:
        tensor: any tensor that is not an inference tensor.
    """
    return tensor._version


def is_synchronised(metric: Any) -> bool:
    """Returns whether a torchmetrics metric holds, at the moment, the states of all processes.

    ``sync`` and ``unsync`` are public; no public name tells which of them was called last.
    """
    return bool(metric._is_synced)


def local_result(metric: Any) -> Any:
    """Returns the result of a torchmetrics metric in this process, without caching it.

    ``compute`` synchronises and caches, and torchmetrics reads whether to do so when a metric is
    made.
    """
    to_sync, metric._to_sync = metric._to_sync, False
    try:
        metric._computed = None
        return metric.compute()
    finally:
        metric._to_sync, metric._computed = to_sync, None


def known_keywords(metric: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns those keywords that ``update`` of a torchmetrics metric takes.

    A ``MetricCollection`` filters the keywords of its metrics by the same method.
    """
    known: dict[str, Any] = metric._filter_kwargs(**kwargs)
    return known
