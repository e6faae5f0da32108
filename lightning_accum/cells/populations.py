"""Populations of spiking neurons, and connections among them; in one process or in several."""

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn

from lightning_accum import _checks as checks
from lightning_accum._state import StateModule, check_that
from lightning_accum.cells.cell import Cell

_LONGEST_DELAY = 1 << 16  # steps

Ends: TypeAlias = tuple[str, str]  # the names of the source and of the target of a connection


@final
class Populations(StateModule):
    r"""Populations of spiking neurons, and connections among them with delays of whole steps.

    .. math::
        s_p(t) = \text{neuron}_p\Big(x_p(t) + \sum_{q \to p} W_{qp}\, s_q(t - d_{qp})\Big)

    The populations lie side by side in the input and in the output, in their order. A connection is
    called once a step with the spikes that arrive, so that a rule on its cell pairs spikes as they
    arrive with those of the target: its delays are those of axons. Past spikes are kept from call
    to call until :meth:`reset`, as booleans, through which no gradient passes; a batch of another
    size begins with none.

    :func:`~lightning_accum.rules.learn_online` runs a sequence, in one compiled loop for
    :class:`~lightning_accum.nn.SparseLinear` connections.

    Args:
        neurons: the populations by name, such as :class:`~lightning_accum.nn.LIF`, which take a
            step a call.
        connections: by the names of their source and their target, the modules that transmit
            spikes ``[B, in]``.
        delay: delays :math:`d` in steps, at least 1; one for all, or by source and target.

    Raises:
        ValueError: if names, sizes or delays do not fit.

    Example:
        >>> import torch
        >>> from lightning_accum.nn import LIF, SparseLinear
        >>> network = Populations({"E": LIF(80), "I": LIF(20)}, {
        ...     ("E", "E"): SparseLinear(80, 80, density=0.1, bias=False),
        ...     ("I", "E"): SparseLinear(20, 80, density=0.1, bias=False),
        ... }, delay=2)
        >>> network(torch.rand(1, 100)).shape
        torch.Size([1, 100])
        >>> network.cell("E", "E").connection.out_features
        80

    Source:
        Brunel 2000, "Dynamics of sparsely connected networks of excitatory and inhibitory spiking
        neurons", doi:10.1023/A:1008925309027.
    """

    def __init__(
        self,
        neurons: Mapping[str, nn.Module],
        connections: Mapping[Ends, nn.Module],
        delay: int | Mapping[Ends, int] = 1,
    ) -> None:
        super().__init__()
        checks.check_mapping("neurons", neurons)
        checks.check_mapping("connections", connections)
        self.sizes = {name: _size_of(name, neuron) for name, neuron in neurons.items()}
        checks.check_value(bool(self.sizes), "neurons", neurons, "named populations, at least one")
        for ends, connection in connections.items():
            _check_connection(ends, connection, self.sizes)
        self.delays = _delays_of(delay, list(connections))
        self.neurons = nn.ModuleDict(neurons)
        self.connections = nn.ModuleDict({f"{s}_to_{t}": c for (s, t), c in connections.items()})
        self.reset()

    def cell(self, source: str, target: str) -> Cell:
        """Returns the cell of the connection between two populations.

        Args:
            source: name of the population whose spikes are presynaptic.
            target: name of the population whose spikes are postsynaptic.

        Raises:
            AttributeError: if there is no such connection.
        """
        if (source, target) not in self.delays:
            raise AttributeError(
                "Arguments `source` and `target` should name the ends of a connection, one of"
                f" {list(self.delays)}. Found {(source, target)}."
            )
        return Cell(self.connections[f"{source}_to_{target}"], self.neurons[target])

    def reset(self) -> None:
        """Forgets the spikes that are on their way, and resets neurons and connections."""
        self._state = {"past": None}
        for module in (*self.neurons.values(), *self.connections.values()):
            if callable(reset := getattr(module, "reset", None)):
                reset()

    def past(self, batch: int, device: torch.device) -> Tensor:
        """Returns the last spikes, booleans ``[longest delay, B, N]``; of another batch, none."""
        past, shape = self._state["past"], (self.longest, batch, sum(self.sizes.values()))
        if past is None or past.shape != shape:
            return torch.zeros(shape, dtype=torch.bool, device=device)
        return past.to(device)

    def set_past(self, spikes: Tensor) -> None:
        """Takes the spikes of the last steps, ``[steps, B, N]``, at least of the longest delay."""
        self._state = {"past": spikes[len(spikes) - self.longest :].clone()}

    @property
    def longest(self) -> int:
        """The longest delay, in steps."""
        return max(self.delays.values(), default=1)

    def forward(self, x: Tensor) -> Tensor:
        """Takes a step.

        Args:
            x: current from outside, ``[B, N]``, of all populations side by side.

        Returns:
            The spikes ``[B, N]``.

        Raises:
            ValueError: if the shape does not fit.
        """
        checks.check_tensors(x=x)
        sizes = list(self.sizes.values())
        if x.ndim != 2 or x.shape[1] != sum(sizes):
            raise ValueError(
                f"Argument `x` should be one step, [B, {sum(sizes)}], of the populations"
                f" {self.sizes}. Found shape {list(x.shape)}."
            )
        past = self.past(len(x), x.device)
        currents = dict(zip(self.sizes, x.split(sizes, 1), strict=True))
        for (source, target), delay in self.delays.items():
            arriving = past[-delay].split(sizes, 1)[list(self.sizes).index(source)]
            sent = self.connections[f"{source}_to_{target}"](arriving)
            currents[target] = currents[target] + sent
        spikes = torch.cat([self.neurons[name](now) for name, now in currents.items()], 1)
        self.set_past(torch.cat((past, (spikes != 0).unsqueeze(0))))
        return spikes

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if these are not the past spikes of such a network."""
        super().check_extra_state(state)
        past, ends = state["past"], (self.longest, sum(self.sizes.values()))
        if past is not None:
            fits = past.dtype == torch.bool and past.ndim == 3 and past.shape[::2] == ends
            should = "booleans of shape [{}, B, {}] as `past`".format(*ends)
            check_that(fits, "`Populations`", should, past)

    def _moved(self, fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
        """Returns past spikes after ``.to()``, which stay booleans."""
        return fn(tensor).to(torch.bool)

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        return ", ".join(f"{s}→{t}: {delay} steps" for (s, t), delay in self.delays.items())


def _size_of(name: str, neuron: object) -> int:
    """Returns the number of neurons of a population, after a check."""
    size: Any = getattr(neuron, "size", None)
    gradient = getattr(neuron, "gradient", "none")
    should = "'none' or 'step', as no gradient passes through past spikes, which are booleans"
    checks.check_value(gradient != "time", f"neurons[{name!r}].gradient", gradient, should)
    fits = isinstance(neuron, nn.Module) and isinstance(size, tuple) and len(size) == 1
    if not fits or getattr(neuron, "time_dim", None) is not None:
        raise ValueError(
            "Argument `neurons` should hold neurons `[N]` that take a step a call, such as"
            f" `LIF(100)`. Found `{type(neuron).__name__}` for `{name}`, with `size = {size}`,"
            f" `time_dim = {getattr(neuron, 'time_dim', None)}`."
        )
    return int(size[0])


def _check_connection(ends: Any, connection: object, sizes: Mapping[str, int]) -> None:
    """Raises an error unless a module connects two populations."""
    named = isinstance(ends, tuple) and len(ends) == 2 and all(end in sizes for end in ends)
    if not named or not isinstance(connection, nn.Module):
        raise ValueError(
            "Argument `connections` should hold modules by pairs of populations, of"
            f" {list(sizes)}, such as `(source, target)`. Found `{type(connection).__name__}` for"
            f" `{ends!r}`."
        )
    shapes = tuple(getattr(connection, f"{side}_features", None) for side in ("in", "out"))
    expected = tuple(sizes[end] for end in ends)
    if shapes != expected:
        raise ValueError(
            f"Argument `connections` should have `in_features` and `out_features` {expected} for"
            f" {ends}, the sizes of the populations. Found {shapes} in a"
            f" `{type(connection).__name__}`"
            f"{': give it attributes of these names.' if None in shapes else '.'}"
        )


def _delays_of(delay: int | Mapping[Ends, int], ends: list[Ends]) -> dict[Ends, int]:
    """Returns the delay of each connection, after a check."""
    found = delay if isinstance(delay, Mapping) else dict.fromkeys(ends, delay)
    if found.keys() != {*ends}:
        raise ValueError(
            f"Argument `delay` should be a number of steps, or one for each of {ends}. Found"
            f" {list(found)}."
        )
    should = f"from 1 to {_LONGEST_DELAY} steps, as spikes of a step arrive in a later one"
    for pair, each in found.items():
        name = f"delay[{pair}]" if isinstance(delay, Mapping) else "delay"
        whole = isinstance(each, Integral) and not isinstance(each, bool)
        how = "" if whole else "pass a whole number of steps, not ms"
        checks.check_value(whole and 1 <= each <= _LONGEST_DELAY, name, each, should, how)
    return {each: found[each] for each in ends}
