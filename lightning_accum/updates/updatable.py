"""Modules that carry their updater along."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from lightning_accum._checks import check_module
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.updates.targets import uncompiled
from lightning_accum.updates.updater import NonFinite, Updater

# The updater stands in the module's __dict__, beside its submodules: it is copied and pickled with
# the module, and the module's state dict and `load_from_checkpoint` never hear of it.
_SLOT = "_lightning_accum_updater"


def get_updater(module: nn.Module) -> Updater | None:
    """The updater of a module, or ``None`` where there is none.

    Args:
        module: any module.

    Example:
        >>> from torch import nn
        >>> get_updater(nn.Linear(2, 2)) is None
        True
    """
    check_module(module=module)
    module = uncompiled(module)
    updater: Updater | None = module.__dict__.get(_SLOT)
    if updater is not None and updater.known_parent is not module:
        updater = _of_copy(updater)
        set_updater(module, updater)
    return updater


def _of_copy(updater: Updater) -> Updater:
    """The updater that a copy of a module has: a deep copy brings its own along."""
    parent = updater.known_parent
    if parent is None or parent.__dict__.get(_SLOT) is not updater:
        return updater
    # A shallow copy has the same parameters: what is pending belongs to the original.
    own: Updater = copy.deepcopy(updater)
    own.clear()
    return own


def set_updater(module: nn.Module, updater: Updater | None) -> None:
    """Makes ``updater`` the one of ``module``; ``None`` takes it away.

    Raises:
        TypeError: if ``updater`` is no :class:`Updater`.
    """
    check_module(module=module)
    module = uncompiled(module)
    if updater is None:
        module.__dict__.pop(_SLOT, None)
        return
    if not isinstance(updater, Updater):
        raise TypeError(
            f"Argument `updater` should be an Updater or None. Found `{type(updater).__name__}`."
        )
    updater.bind(module)
    module.__dict__[_SLOT] = updater


def attach_updater(
    module: nn.Module,
    *params: str,
    reduction: ReductionFn | str | None = None,
    nonfinite: NonFinite = "raise",
) -> Updater:
    """Gives any module an updater without subclassing it, or extends the one that it has.

    Args:
        module: any module.
        *params: names of the module's own parameters.
        reduction: for a new updater, how contributions are reduced.
        nonfinite: for a new updater, what happens to NaN and Inf.

    Returns:
        The module's updater.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> conv = nn.Conv2d(1, 2, 3)
        >>> updater = attach_updater(conv, "weight")
        >>> updater.weight = torch.ones(2, 1, 3, 3)
        >>> updater()
    """
    updater = get_updater(module)
    if updater is None:
        updater = Updater(module, *params, reduction=reduction, nonfinite=nonfinite)
        set_updater(module, updater)
    else:
        updater.add(*params)
    return updater


class Updatable:
    """Mixin for modules with parameters that accumulate updates.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> class Scale(Updatable, nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.gain = nn.Parameter(torch.ones(1))
        >>> scale = Scale()
        >>> scale.updater = scale.defaultupdater("gain")
        >>> scale.updater.gain = torch.tensor([0.5])
        >>> scale.update()
        >>> scale.gain.item()
        1.5
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if issubclass(cls, nn.Module) and cls.__mro__.index(nn.Module) < cls.__mro__.index(
            Updatable
        ):
            raise TypeError(
                f"Updatable should stand before torch.nn.Module among the bases of"
                f" `{cls.__name__}`. Found it behind: write `class {cls.__name__}(Updatable, ...)`."
            )

    @property
    def updatable(self) -> bool:
        """Whether there is an updater."""
        return self.updater is not None

    @property
    def updater(self) -> Updater | None:
        """The updater; assign one to set it, ``del`` takes it away.

        It is ``None`` until there is one: :func:`attach_updater` makes one and returns it, as does
        a rule with which a cell is registered.
        """
        return get_updater(self)  # type: ignore[arg-type]

    @updater.setter
    def updater(self, value: Updater | None) -> None:
        set_updater(self, value)  # type: ignore[arg-type]

    @updater.deleter
    def updater(self) -> None:
        set_updater(self, None)  # type: ignore[arg-type]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "updater":  # a property here, not a submodule to register
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def defaultupdater(self, *includes: str) -> Updater:
        """A new updater for the named parameters, all the module's own when none is named."""
        return Updater(self, *includes)  # type: ignore[arg-type]

    def update(self, clear: bool = True, **kwargs: Any) -> None:
        """Applies what is pending for every parameter.

        Args:
            clear: whether what was applied is dropped.
            **kwargs: passed to the updater.
        """
        if (updater := self.updater) is not None:
            updater(clear=clear, **kwargs)

    def updatesome(self, *params: str, clear: bool = True, **kwargs: Any) -> None:
        """Applies what is pending for the named parameters; none when none is named.

        Args:
            *params: names of parameters.
            clear: whether what was applied is dropped.
            **kwargs: passed to the updater.
        """
        if params and (updater := self.updater) is not None:
            updater(*params, clear=clear, **kwargs)

    def clear(self, **kwargs: Any) -> None:
        """Drops what is pending."""
        if (updater := self.updater) is not None:
            updater.clear(**kwargs)
