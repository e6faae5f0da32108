"""Private names of Lightning."""

import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lightning_accum._compat.torch_internals import lacking


def batches_that_stepped(trainer: Any) -> int:
    """Returns how many training batches have passed, by the count on a logger's x axis."""
    # Lightning's own callbacks log at this count; `trainer.global_step` counts optimizer steps.
    count = getattr(trainer.fit_loop.epoch_loop, "_batches_that_stepped", None)
    return trainer.global_step if count is None else count  # type: ignore[no-any-return]


def logs_now(trainer: Any) -> bool:
    """Returns whether Lightning passes values that are logged in this batch to the loggers."""
    # Lightning also logs the batch in which training stops. Its own answer, the private
    # `should_update_logs`, first finds the loop that runs, which takes longer than all the rest.
    every: int = trainer.log_every_n_steps
    step = batches_that_stepped(trainer) + 1
    return every > 0 and (step % every == 0 or bool(trainer.should_stop))


def log_again(pl_module: Any, values: Mapping[str, Tensor]) -> bool:
    """Replaces values that ``log`` has taken in the same hook since the epoch began."""
    # `log` moves the metric of each value to the value's device at each call, attribute by
    # attribute, and copies the value, which takes most of its time. Here each metric only takes the
    # new value.
    results, hook = pl_module.trainer._results, pl_module._current_fx_name
    found = [(results or {}).get(f"{hook}.{name}") for name in values]
    if any(metric is None or metric.has_reset for metric in found):
        return False
    for metric, value in zip(found, values.values(), strict=True):
        assert metric is not None
        metric._forward_cache = value  # its `value` is read at an epoch's end, if at all
    return True


def in_new_fit() -> bool:
    """Returns whether a Trainer's fit that resumes no checkpoint runs this code."""
    # Lightning tells modules within a LightningModule neither of its fits nor of their checkpoints.
    lightning: Any = sys.modules.get("lightning.pytorch")
    frame = None if lightning is None else sys._getframe()
    while frame is not None:
        trainer = frame.f_locals.get("self")
        if isinstance(trainer, lightning.Trainer):
            return trainer.state.fn == "fit" and trainer.ckpt_path is None
        frame = frame.f_back
    return False


def compared_by_key() -> list[Any]:
    """Returns the callbacks whose keys a Trainer that is being made compares; empty elsewhere."""
    # No hook of a callback runs then, and Lightning's own error does not say what to change.
    frame = sys._getframe()
    while frame.f_code.co_name != "_validate_callbacks_list":
        if frame.f_back is None:
            return []
        frame = frame.f_back
    return [*frame.f_locals["callbacks"]]


def skips_backward(trainer: Any) -> bool:
    """Returns whether the epoch only runs the model forward."""
    # `StochasticWeightAveraging` ends a fit with such an epoch, and sets nothing public.
    return bool(trainer.fit_loop._skip_backward)


def count_steps(trainer: Any, steps: int) -> None:
    """Adds steps to ``trainer.global_step``, which Lightning counts for its optimizers only."""
    try:
        loop = trainer.fit_loop.epoch_loop
        if trainer.lightning_module.automatic_optimization:
            progress = loop.automatic_optimization.optim_progress.optimizer.step
        else:
            progress = loop.manual_optimization.optim_step_progress
        counts = progress.total, progress.current
    except AttributeError as error:
        raise lacking("lightning", error) from error
    for count in counts:
        count.ready += steps
        count.completed += steps


def replace_methods(owner: Any, *methods: Any) -> None:
    """Replaces methods of an object by bound methods of the same names of another object."""
    # Lightning has no hook around the training step only, nor one around a step of an optimizer
    # with its closure.
    for method in methods:
        setattr(owner, method.__name__, method)


def restore_methods(owner: Any, *methods: Any) -> None:
    """Gives an object its own methods back, unless they were replaced once more."""
    for method in methods:
        if vars(owner).get(method.__name__) == method:
            delattr(owner, method.__name__)


def logs_hyperparameters(holder: Any) -> bool:
    """Returns whether ``save_hyperparameters`` asked for logging, as its ``logger=True`` does."""
    return bool(holder._log_hyperparams)
