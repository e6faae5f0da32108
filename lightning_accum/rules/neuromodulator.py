"""Neuromodulators: what a rule's call releases decays, and multiplies terms while it lasts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from lightning_accum._checks import check_finite
from lightning_accum.engine.recording import Recording
from lightning_accum.engine.signal import Activity
from lightning_accum.engine.state import Carried
from lightning_accum.functional.traces import decay_factor


@final
@dataclass(frozen=True)
class Neuromodulator:
    r"""A substance, such as dopamine, whose level multiplies the changes of a rule.

    .. math::
        m(t) = b + g\, d(t), \qquad d(t) = e^{-\Delta t / \tau}\, d(t - \Delta t) + q(t)

    with the level :math:`m` and the release :math:`q`. It is a hyperparameter of a rule, and the
    argument of its name in the rule's call is released: a tensor ``[T, B]`` step by step; a number,
    or ``[B]``, once, in the last step of the window, because the call comes after all steps. A call
    without the argument releases nothing.

    :class:`MSTDP` and :class:`MSTDPET` take one as ``reward``. Any other rule lists those that it
    has among its hyperparameters; its terms are multiplied by one in :func:`reward_modulated`, or
    read its level by :meth:`~lightning_accum.engine.Window.modulator`.

    Each sample has its own level, which passes from window to window as traces do: until
    ``rule.clear()``, unless the rule has ``carry=False``. It is saved with the rule.

    Args:
        tc: time constant :math:`\tau` of the decay, in ms.
        baseline: the level :math:`b` when nothing was released. A negative one stands for what is
            expected: with less, changes have the opposite sign.
        gain: what each unit that is released adds to the level, :math:`g`.

    Raises:
        ValueError: if ``tc`` is not positive, or a number is not finite.

    Example:
        >>> import torch
        >>> from lightning_accum import Neuromodulator, Rule, Serial, Term
        >>> from lightning_accum.rules import reward_modulated
        >>> class Dopamine(Rule):
        ...     dopamine: Neuromodulator = Neuromodulator(tc=200.0)
        ...     def terms(self, window, h):
        ...         terms = [Term(0.1, window.post, window.pre)]
        ...         return reward_modulated(window, terms, modulator="dopamine")
        >>> layer = Serial(torch.nn.Linear(1, 1, bias=False), torch.nn.Identity())
        >>> _ = torch.nn.init.ones_(layer.connection.weight)
        >>> rule = Dopamine()
        >>> unit = rule.register_cell("enc", layer.cell)
        >>> for released in (1.0, 0.0):  # a spike on both sides in each of two steps
        ...     _ = layer(torch.ones(1, 1))
        ...     rule(dopamine=released)
        >>> unit.cell.updater.weight.pos  # 0.1 (1 + exp(-1 / 200))
        tensor([[0.1995]])

    Source:
        Izhikevich 2007, "Solving the distal reward problem through linkage of STDP and dopamine
        signaling", doi:10.1093/cercor/bhl152.
    """

    tc: float
    baseline: float = 0.0
    gain: float = 1.0

    def __post_init__(self) -> None:
        check_finite(tc=self.tc, baseline=self.baseline, gain=self.gain)
        decay_factor(self.tc)  # checks that it is positive


def modulators_of(h: object) -> dict[str, Neuromodulator]:
    """Returns the neuromodulators among hyperparameters, by name."""
    return {name: each for name, each in vars(h).items() if isinstance(each, Neuromodulator)}


def with_levels(
    recording: Recording,
    modulators: Mapping[str, Neuromodulator],
    carried: Carried,
    dtype: torch.dtype,
) -> Recording:
    """Returns the recording with the levels of neuromodulators, by name."""
    post, levels, left = recording.activity("post"), {}, {}
    for name, each in modulators.items():
        given = recording.inputs.every.get(name)  # a term that reads the level notes it as read
        released = post.new_zeros(post.shape[:2], dtype=dtype)
        if given is not None:
            given = given_value(name, given, *post.shape[:2])
            given = torch.as_tensor(given, dtype=dtype).detach()
            (released if given.ndim == 2 else released[-1]).copy_(given)
        source = Activity(released, recording.dt, carried, f"released {name}", dtype)
        trace = source.values(decay_factor(each.tc, recording.dt), "cumulative")
        levels[name] = each.baseline + each.gain * trace
        left.update(source.carry())
    return replace(recording, levels=levels, left=left)


def given_value(name: str, value: object, steps: int, batch: int) -> float | Tensor:
    """Returns what a call gave for a window, which should be a number, ``[B]`` or ``[T, B]``."""
    if isinstance(value, (int, float)):
        return float(value)
    shape = tuple(value.shape) if isinstance(value, Tensor) else None
    if isinstance(value, Tensor) and shape in ((), (batch,), (steps, batch)):
        return value
    how = "give a number for each sample of the window"
    if value is None:
        how = f"call the rule as `rule({name}=...)`, or give the callback `input_keys=('{name}',)`"
    elif shape is None:
        how = f"convert it, `torch.as_tensor({name})`"
    elif shape == (batch, steps):
        how = f"time is its first dimension, so call `{name}.transpose(0, 1)`"
    elif len(shape) == 2 and shape[1] == batch:
        how = f"give only what belongs to the window's steps ({steps}), as by"
        how += (
            f" `rule({name}={name}[t : t + {steps}])` in a loop, or call the rule once, after all"
        )
        how += " steps"
    raise ValueError(
        f"Argument `{name}` should be a number, or a tensor [B] or [T, B] of shape [{batch}] or"
        f" [{steps}, {batch}]. Found {type(value).__name__ if shape is None else list(shape)}:"
        f" {how}."
    )
