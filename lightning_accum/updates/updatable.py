"""The updater of a module: how it is made if necessary, and shown as an attribute."""

from typing import Any

from torch import nn

from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.updates.atomic_changes import NonFinite
from lightning_accum.updates.updater import Updater, configure, get_updater, set_updater


def attach_updater(
    module: nn.Module,
    *params: str,
    reduction: ReductionFn | str | None = None,
    nonfinite: NonFinite | None = None,
) -> Updater:
    """Returns the updater of a module; makes one, or adds the parameters to it, if necessary.

    Args:
        module: any module.
        *params: names of the module's own parameters.
        reduction: how contributions are reduced; ``None`` for the sum in a new updater, and for no
            change in one that the module has.
        nonfinite: the policy for NaN and Inf; ``None`` for ``"raise"`` in a new updater, and for no
            change in one that the module has.

    Returns:
        The module's updater.

    Raises:
        RuntimeError: if the reduction would change while contributions are pending; then nothing
            has changed.

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
        updater = Updater(module, *params, reduction=reduction, nonfinite=nonfinite or "raise")
        set_updater(module, updater)
    else:
        updater.add(*params)
        configure(updater, reduction, nonfinite)
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
        bases = cls.mro()
        if nn.Module in bases and bases.index(nn.Module) < bases.index(Updatable):
            raise TypeError(
                f"Updatable should stand before torch.nn.Module among the bases of"
                f" `{cls.__name__}`. Found it after: write `class {cls.__name__}(Updatable, ...)`."
            )

    @property
    def updatable(self) -> bool:
        """Whether there is an updater."""
        return self.updater is not None

    @property
    def updater(self) -> Updater | None:
        """The updater, or ``None``; assign one to set it, ``del`` removes it.

        :func:`attach_updater` makes one, as does a rule with which a cell is registered.
        """
        return get_updater(self)  # type: ignore[arg-type]

    @updater.setter
    def updater(self, value: Updater | None) -> None:
        set_updater(self, value)  # type: ignore[arg-type]

    @updater.deleter
    def updater(self) -> None:
        set_updater(self, None)  # type: ignore[arg-type]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "updater":
            # nn.Module would register the updater as a submodule.
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def defaultupdater(self, *includes: str) -> Updater:
        """Makes an updater for the named parameters, all the module's own if none is named."""
        return Updater(self, *includes)  # type: ignore[arg-type]

    def update(self, clear: bool = True, **kwargs: Any) -> None:
        """Applies what is pending for every parameter, as a call of the updater does."""
        if (updater := self.updater) is not None:
            updater(clear=clear, **kwargs)

    def updatesome(self, *params: str, clear: bool = True, **kwargs: Any) -> None:
        """Applies what is pending for the named parameters; nothing if none is named."""
        if params and (updater := self.updater) is not None:
            updater(*params, clear=clear, **kwargs)

    def clear(self, **kwargs: Any) -> None:
        """Drops what is pending."""
        if (updater := self.updater) is not None:
            updater.clear(**kwargs)
