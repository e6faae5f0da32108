"""Private names of torch about modules."""

from __future__ import annotations

from torch import Tensor, nn

from lightning_accum._compat.fallback import lacking


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


def hook_count(module: nn.Module) -> int:
    """Returns how many hooks a module's calls run; torch has no public name for them.

    Example:
        >>> relu = nn.ReLU()
        >>> handle = relu.register_forward_hook(lambda module, args, output: None)
        >>> hook_count(relu)
        1
    """
    return sum(
        len(hooks)
        for hooks in (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._backward_hooks,
            module._backward_pre_hooks,
        )
    )


def own_tensor(module: nn.Module, name: str) -> Tensor | None:
    """Returns a module's own parameter or buffer of a name; ``None`` if it has none.

    ``getattr`` and ``get_parameter`` run properties and parametrizations, which compute a tensor,
    and ``named_parameters`` collects all of them; this is called in every batch.

    Example:
        >>> fc = nn.Linear(2, 1)
        >>> own_tensor(fc, "weight") is fc.weight, own_tensor(fc, "gain")
        (True, None)
    """
    try:
        found = module._parameters.get(name)
        return module._buffers.get(name) if found is None else found
    except AttributeError as error:
        raise lacking("torch", error) from error
