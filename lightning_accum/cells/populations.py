"""Populations of spiking neurons, and connections among them; in one process or in several."""

from collections.abc import Callable, Mapping
from itertools import accumulate, chain
from numbers import Real
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn

from lightning_accum import _checks as checks
from lightning_accum._checked_state import StateModule, check_that
from lightning_accum.cells.cell import Cell
from lightning_accum.distributed.world import SpikeExchange, of_all, processes, rank
from lightning_accum.nn.sparse_linear import part_of

_LONGEST_DELAY = 1 << 16  # steps

# The names of the source and of the target of a connection, and its steps if synapses have others.
Ends: TypeAlias = tuple[Any, ...]


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

    If synapses have delays of their own, those of each delay become a connection by themselves,
    with a cell, so that delays take no memory: ``(source, target, steps)`` in ``delays``.

    :func:`~lightning_accum.rules.learn_online` runs a sequence, in one compiled loop for
    :class:`~lightning_accum.nn.SparseLinear` connections.

    With ``split=True``, the processes of torch's default group divide the neurons of every
    population, and each has all synapses onto its own. They exchange spikes once in the shortest
    delay. Input and output are those of the own neurons; see
    :func:`~lightning_accum.cells.own_neurons`.

    Args:
        neurons: the populations by name, such as :class:`~lightning_accum.nn.LIF`, which take a
            step a call.
        connections: by the names of their source and their target, the modules that transmit
            spikes ``[B, in]``.
        delay: delays :math:`d` in ms, multiples of the neurons' ``dt``, of at least one step. One
            for all, or by source and target: a number, or ``[synapses]`` for those of a
            :class:`~lightning_accum.nn.SparseLinear`.
        split: whether ``neurons`` and ``connections`` are this process's share of the network, the
            connections with ``targets``. Every process has to make the network.

    Attributes:
        delays: the steps of each connection, by the names of its source and its target.
        sizes: the number of own neurons of each population.
        totals: the number of neurons of each population in all processes.
        own: which of them are the own.

    Raises:
        ValueError: if names, sizes or delays do not fit, or something cannot be split.

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
        delay: float | Mapping[tuple[str, str], float | Tensor] = 1.0,
        split: bool = False,
    ) -> None:
        super().__init__()
        checks.check_mapping("neurons", neurons)
        checks.check_mapping("connections", connections)
        self.sizes = {name: _size_of(name, neuron, split) for name, neuron in neurons.items()}
        checks.check_value(bool(self.sizes), "neurons", neurons, "named populations, at least one")
        steps = _delays_of(delay, connections, _step_of(neurons))
        connections, self.delays = _by_delay(connections, steps, split)
        self.exchange = SpikeExchange() if split else None
        settings = [*self.sizes]
        for ends, connection in connections.items():
            seed = getattr(connection, "seed", None)
            settings.append(f"{ends}: {self.delays[ends]} steps, seed {seed}")
        every = of_all((self.sizes, settings), split)
        for place, (_, other) in enumerate(every):
            if other != settings:
                apart = [each for each in settings if each not in other] or settings
                others = [each for each in other if each not in settings] or other
                raise ValueError(
                    "Populations should have the same names, delays and seeds in all processes, in"
                    f" one order. Found {apart} here, and in process {place} {others}: make them by"
                    " the same program."
                )
        self.own, self.totals, self.processes = {}, {}, len(every)
        own = rank() if split else 0
        for name in self.sizes:
            firsts = [*accumulate((sizes[name] for sizes, _ in every), initial=0)]
            self.own[name], self.totals[name] = range(*firsts[own : own + 2]), firsts[-1]
        for ends, connection in connections.items():
            self._check_connection(ends, connection)
        self.neurons = nn.ModuleDict(neurons)
        named = {name_of(ends): each for ends, each in connections.items()}
        self.connections = nn.ModuleDict(named)
        self.reset()

    def _check_connection(self, ends: Any, connection: object) -> None:
        """Raises an error unless a module connects two populations, or its share if split."""
        named = isinstance(ends, tuple) and len(ends) > 1 and {*ends[:2]} <= {*self.sizes}
        should = f"modules by pairs `(source, target)` of the populations {list(self.sizes)}"
        fits = named and isinstance(connection, nn.Module)
        checks.check_value(fits, "connections", {ends: connection}, should)
        name, should = f"connections[{ends}]", f"a share for {self.own[ends[1]]} of the target"
        targets, how = getattr(connection, "targets", None), "connect them by synapses, as"
        how += f" `SparseLinear(..., seed=0, targets=own_neurons({self.totals[ends[1]]}))`"
        fits = not self.exchange or targets == self.own[ends[1]]
        checks.check_value(fits, f"{name}.targets", targets, should, how)
        for side, size in (("in", self.totals[ends[0]]), ("out", self.sizes[ends[1]])):
            found = getattr(connection, each := f"{side}_features", None)
            should = f"{size}, the size of the population"
            how = f"give it `{each}`" if found is None else ""
            checks.check_value(found == size, f"{name}.{each}", found, should, how)

    @property
    def columns(self) -> Tensor:
        """The places of the own neurons among those of all processes, side by side."""
        firsts = accumulate(self.totals.values(), initial=0)
        own = zip(firsts, self.own.values(), strict=False)
        return torch.cat([torch.arange(first + r.start, first + r.stop) for first, r in own])

    def gather(self, values: Tensor) -> Tensor:
        """Returns values of all neurons, ``[..., neurons]``, such as spikes, from those of the own.

        Every process has to call it.
        """
        checks.check_tensors(values=values)
        size = sum(self.sizes.values())
        should = f"shape [..., {size}], of the own neurons"
        checks.check_shape(values.shape[-1:] == (size,), "values", values, should)
        each = of_all((self.columns, values.cpu()), self.exchange is not None)
        order = torch.cat([columns for columns, _ in each]).argsort()
        return torch.cat([own for _, own in each], -1)[..., order].to(values.device)

    def check_processes(self) -> None:
        """Raises a ``RuntimeError`` unless as many processes run the network as have made it."""
        if self.exchange and processes() != self.processes:
            raise RuntimeError(
                "A split network should run in as many processes as have made it,"
                f" {self.processes}. Found {processes()}: make it in each of these processes."
            )

    def cell(self, source: str, target: str, steps: int | None = None) -> Cell:
        """Returns the cell of the connection between two populations.

        Args:
            source: name of the population whose spikes are presynaptic.
            target: name of the population whose spikes are postsynaptic.
            steps: the delay, if synapses have delays of their own.

        Raises:
            AttributeError: if there is no such connection.
        """
        ends = (source, target) if steps is None else (source, target, steps)
        if ends not in self.delays:
            raise AttributeError(
                "Arguments `source` and `target` should name the ends of a connection, one of"
                f" {list(self.delays)}. Found {ends}."
            )
        return Cell(self.connections[name_of(ends)], self.neurons[target])

    def reset(self) -> None:
        """Forgets the spikes that are on their way, and resets neurons and connections."""
        self._state = {"past": None}
        for module in (*self.neurons.values(), *self.connections.values()):
            if callable(reset := getattr(module, "reset", None)):
                reset()

    def past(self, batch: int, device: torch.device) -> Tensor:
        """Returns the last spikes of all processes, booleans ``[longest delay, B, neurons]``.

        Of another batch there are none.
        """
        past, shape = self._state["past"], (self.longest, batch, sum(self.totals.values()))
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
        fits = x.ndim == 2 and x.shape[1] == sum(sizes)
        should = f"the shape of a step, [B, {sum(sizes)}], of the populations {self.sizes}"
        checks.check_shape(fits, "x", x, should)
        self.check_processes()
        past = self.past(len(x), x.device)
        currents = dict(zip(self.sizes, x.split(sizes, 1), strict=True))
        for ends, delay in self.delays.items():
            source, target, *_ = ends
            sent_then = past[-delay].split(list(self.totals.values()), 1)
            arriving = sent_then[list(self.sizes).index(source)]
            sent = self.connections[name_of(ends)](arriving)
            currents[target] = currents[target] + sent
        spikes = torch.cat([self.neurons[name](now) for name, now in currents.items()], 1)
        now = spikes != 0
        if self.exchange:
            now = torch.zeros_like(past[0]).index_copy_(1, self.columns.to(x.device), now)
            self.exchange(now)
        self.set_past(torch.cat((past, now.unsqueeze(0))))
        return spikes

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if these are not the past spikes of such a network."""
        super().check_extra_state(state)
        past, ends = state["past"], (self.longest, sum(self.totals.values()))
        if past is not None:
            fits = past.dtype == torch.bool and past.ndim == 3 and past.shape[::2] == ends
            should = "booleans of shape [{}, B, {}] as `past`".format(*ends)
            check_that(fits, "`Populations`", should, past)

    def _moved(self, fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
        """Returns past spikes after ``.to()``, which stay booleans."""
        return fn(tensor).to(torch.bool)

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        return ", ".join(f"{s}→{t}: {delay} steps" for (s, t, *_), delay in self.delays.items())


def all_agree(network: Populations, ready: bool, steps: int) -> bool:
    """Returns whether all processes that divide a network are ready for as many steps."""
    # Every process has to call it. Raises a `ValueError` if their numbers of steps differ.
    network.check_processes()
    found = of_all((ready, steps), network.exchange is not None)
    lengths, should = [each for _, each in found], "as long in each process that divides a network"
    how = "give them inputs of one length"
    checks.check_value(len({*lengths}) == 1, "inputs", lengths, should, how)
    return all(each for each, _ in found)


def name_of(ends: Ends) -> str:
    """Returns the name of a connection as a module."""
    source, target, *steps = ends
    return f"{source}_to_{target}" + "".join(f"_after_{each}" for each in steps)


def _size_of(name: str, neuron: object, split: bool) -> int:
    """Returns the number of neurons of a population, after a check."""
    for what in ("inhibition", "recurrent") if split else ():
        value, should = getattr(neuron, what, None), "None if processes divide the neurons"
        how = "it needs all neurons of a population in one process: connect them by synapses"
        checks.check_value(value is None, f"neurons[{name!r}].{what}", value, should, how)
    size: Any = getattr(neuron, "size", None)
    gradient = getattr(neuron, "gradient", "none")
    should = "'none' or 'step', as no gradient passes through past spikes, which are booleans"
    checks.check_value(gradient != "time", f"neurons[{name!r}].gradient", gradient, should)
    fits = isinstance(neuron, nn.Module) and isinstance(size, tuple) and len(size) == 1
    should = "neurons `[N]` that take a step a call, such as `LIF(100)`"
    checks.check_value(fits, f"neurons[{name!r}]", neuron, should)
    time, should = getattr(neuron, "time_dim", None), "None, as a call is a step"
    checks.check_value(time is None, f"neurons[{name!r}].time_dim", time, should)
    return int(size[0])


def _step_of(neurons: Mapping[str, nn.Module]) -> float:
    """Returns the step of all neurons in ms, after a check."""
    each = {name: float(neuron.dt) for name, neuron in neurons.items() if hasattr(neuron, "dt")}  # type: ignore[arg-type]
    should = "neurons with the same `dt`, as all take their steps together"
    checks.check_value(len({*each.values()}) <= 1, "neurons", each, should)
    return next(iter(each.values()), 1.0)


def _delays_of(
    delay: Any, connections: Mapping[Ends, nn.Module], dt: float
) -> dict[Ends, int | Tensor]:
    """Returns the steps of each connection, or of each of its synapses, after a check."""
    found = delay if isinstance(delay, Mapping) else dict.fromkeys(connections, delay)
    if found.keys() != {*connections}:
        apart = [*dict.fromkeys([*connections, *found])]
        apart = [ends for ends in apart if (ends in found) != (ends in connections)]
        raise ValueError(
            f"Argument `delay` should be a number of ms, or one for each of {list(connections)}."
            f" Found {list(found)}: add or remove {apart}."
        )
    steps: dict[Ends, int | Tensor] = {}
    for ends, connection in connections.items():
        name, each = f"delay[{ends}]" if isinstance(delay, Mapping) else "delay", found[ends]
        real = isinstance(each, Real) and not isinstance(each, bool)
        if real:
            checks.check_finite(**{name: each})
        else:
            shape = getattr(getattr(connection, "outputs", None), "shape", None)
            should = f"a number of ms, or one for each synapse of the connection, {shape}"
            fits = isinstance(each, Tensor) and each.shape == shape and not each.is_complex()
            checks.check_value(fits, name, each, should)
        exact = torch.as_tensor(each, dtype=torch.float64, device="cpu").flatten() / dt
        whole = exact.round()
        good = (exact - whole).abs() <= 1e-4
        good &= (whole >= 1) & (whole <= _LONGEST_DELAY)
        for place in (~good).nonzero()[:1].flatten().tolist():
            entry, value = (name, each) if real else (f"{name}[{place}]", float(each[place]))
            should = f"a multiple of `dt = {dt:g}` ms, from 1 to {_LONGEST_DELAY} steps, as spikes"
            should += " of a step arrive in a later one"
            near = f"the next is {max(1.0, float(whole[place])) * dt:g} ms"
            checks.check_value(False, entry, value, should, near)
        steps[ends] = int(whole) if real else whole.int()
    return steps


def _by_delay(
    connections: Mapping[Ends, Any], steps: Mapping[Ends, int | Tensor], split: bool
) -> tuple[dict[Ends, Any], dict[Ends, int]]:
    """Returns connections with one delay each, and their delays."""
    found: dict[Ends, Any] = {}
    delays: dict[Ends, int] = {}
    for ends, delay in steps.items():
        if isinstance(delay, int):
            found[ends], delays[ends] = connections[ends], delay
            continue
        own = delay.unique().tolist()
        for each in sorted({*chain(*of_all(own, split))}):
            key = (*ends, each)
            found[key], delays[key] = part_of(connections[ends], delay == each), each
    return found, delays
