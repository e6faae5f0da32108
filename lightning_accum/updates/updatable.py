"""The base of modules that show their updater as an attribute."""

from __future__ import annotations

from typing import Any

from torch import nn

from lightning_accum.updates.attached import get_updater, set_updater
from lightning_accum.updates.updater import Updater


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
        """Applies what is pending for every parameter.

        Args:
            clear: whether the accumulators drop what was applied.
            **kwargs: passed to the updater.
        """
        if (updater := self.updater) is not None:
            updater(clear=clear, **kwargs)

    def updatesome(self, *params: str, clear: bool = True, **kwargs: Any) -> None:
        """Applies what is pending for the named parameters; nothing if none is named.

        Args:
            *params: names of parameters.
            clear: whether the accumulators drop what was applied.
            **kwargs: passed to the updater.
        """
        if params and (updater := self.updater) is not None:
            updater(*params, clear=clear, **kwargs)

    def clear(self, **kwargs: Any) -> None:
        """Drops what is pending."""
        if (updater := self.updater) is not None:
            updater.clear(**kwargs)
