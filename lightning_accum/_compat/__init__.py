"""Private names of torch, torchmetrics and Lightning: one function each, one test each."""

from lightning_accum._compat.compiling import (
    compiled_from,
    forget_compiled,
    in_backward,
    in_dispatch_mode,
    is_compiler_failure,
    is_traced,
)
from lightning_accum._compat.fallback import attempt, lacking
from lightning_accum._compat.kernels import (
    foreach,
    fused_adam,
    step_is_watched,
    version,
)
from lightning_accum._compat.metrics import (
    default_states,
    forget_computed,
    is_synchronised,
    known_keywords,
    local_result,
    mark_updated,
)
from lightning_accum._compat.modules import (
    forward_methods,
    hook_count,
    own_tensor,
)
from lightning_accum._compat.trainer import (
    batches_that_stepped,
    count_steps,
    log_again,
    logs_hyperparameters,
    logs_now,
    replace_methods,
    restore_methods,
    skips_backward,
)

__all__ = [
    "attempt",
    "batches_that_stepped",
    "compiled_from",
    "count_steps",
    "default_states",
    "foreach",
    "forget_compiled",
    "forget_computed",
    "forward_methods",
    "fused_adam",
    "hook_count",
    "in_backward",
    "in_dispatch_mode",
    "is_compiler_failure",
    "is_synchronised",
    "is_traced",
    "known_keywords",
    "lacking",
    "local_result",
    "log_again",
    "logs_hyperparameters",
    "logs_now",
    "mark_updated",
    "own_tensor",
    "replace_methods",
    "restore_methods",
    "skips_backward",
    "step_is_watched",
    "version",
]
