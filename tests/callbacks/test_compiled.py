"""Compiled modules lose hooks that are registered again; here they keep them."""

import callback_helpers as cb
import pytest
import torch
from torch import nn

from lightning_accum import CellSpec, Hebb
from lightning_accum.nn import LIF


class Fire(nn.Module):
    """Neurons without memory, which torch.compile takes in one graph with what is around them."""

    def forward(self, x):
        return (x >= 0.5).to(x.dtype)

    def reset(self):
        """There is nothing to forget."""


class Firing(cb.Validated):
    def __init__(self):
        super().__init__()
        self.lif = Fire()


class Compiled(Firing):
    """Runs what a function makes of it, in some way compiled."""

    def __init__(self, make):
        super().__init__()
        self.fast = make(self)

    def forward(self, x):
        return self.fast(x.transpose(0, 1))


# torch.compile looks at `.grad` itself, where a graph goes on behind a break.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class StepByStep(cb.Net):
    def __init__(self):
        super().__init__()
        self.lif = LIF(cb.OUTPUTS, tc_mem=10.0)
        self.layer = torch.compile(nn.Sequential(self.fc, self.lif), backend="eager")

    def forward(self, x):
        self.lif.reset()
        return torch.stack([self.layer(step) for step in x.unbind(1)])


class Rates(cb.Validated):
    """Rates alone, in a graph that torch differentiates."""

    def __init__(self):
        super().__init__()
        self.lif = nn.Tanh()
        self.net = torch.compile(nn.Sequential(self.fc, self.lif), backend="aot_eager")

    def forward(self, x):
        return self.net(x.transpose(0, 1))


def test_a_smaller_last_batch(tmp_path):
    """A batch of another size is compiled anew, or for sizes of all kinds; hooks are in both."""
    net, data = Rates(), cb.loader(4, last=2)
    weight = net.fc.weight.detach().clone()
    for x, _ in list(data) * 2:
        pre = x.transpose(0, 1).flatten(0, 1)
        weight += 0.01 * (pre @ weight.T).tanh().T @ pre / len(x)
    run = cb.trainer(tmp_path, cb.callback(Hebb(0.01)), max_epochs=2)
    run.fit(net, data, cb.loader(1, last=3, seed=9))
    assert cb.close(net.fc.weight, weight)
    assert cb.clean(net)


class Block(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.fc, self.lif = layers

    @torch.no_grad()
    def forward(self, x):
        return self.lif(self.fc(x))


def as_one(net):
    return torch.compile(nn.Sequential(net.fc, net.lif), backend="eager")


def in_place(net):
    net.fc.compile(backend="eager")
    net.lif.compile(backend="eager")
    return lambda x: net.lif(net.fc(x))


def in_steps(net):
    return torch.compile(
        lambda x: torch.stack([net.lif(net.fc(step)) for step in x]), backend="eager"
    )


def broken(net):
    """A function whose graph breaks before the connection, and before the neurons."""

    def block(x):
        torch._dynamo.graph_break()
        x = net.fc(x)
        torch._dynamo.graph_break()
        return net.lif(x)

    return torch.compile(block, backend="eager")


def no_grad(net):
    block = Block(net.fc, net.lif)
    block.compile(backend="eager")
    return block


def in_its_stead(net):
    net.fc = torch.compile(net.fc, backend="eager")
    return lambda x: net.lif(net.fc(x))


WITHIN, OUTSIDE = CellSpec("fast.0", "fast.1"), CellSpec("fc", "lif")


@pytest.mark.parametrize(("make", "sanity"), [
    (as_one, 1),
    (in_place, 0),
    (in_steps, None),
    (broken, None),
    (no_grad, None),
    (in_its_stead, 1),
    (None, 1),  # the LightningModule itself is compiled
])  # fmt: skip
def test_two_fits_of_a_module_that_ran_before(make, sanity, tmp_path):
    """With validation, in which the hooks stay, unless that is left out."""
    net = Compiled(make) if make else torch.compile(Firing(), backend="eager")
    data = cb.loader(4)
    net(next(iter(data))[0])
    expected = cb.fit_by_hand(Firing(), list(data), epochs=2)[-1]
    options = {"limit_val_batches": 0} if sanity is None else {"num_sanity_val_steps": sanity}
    for spec in (OUTSIDE, WITHIN if make is as_one else OUTSIDE):
        rule, time_dim = cb.Noting(), None if make is in_steps else 0
        kept = cb.Probe("on_validation_batch_start", lambda _, module: cb.hooks(module))
        how = {"time_dim": time_dim, "health": sanity is not None}
        use = cb.callback(rule, cells={"enc": spec}, **how)
        run = cb.trainer(tmp_path, use, kept, val_check_interval=2, **options)
        run.fit(net, data, cb.loader(1, seed=9))
        assert cb.same_windows(rule.windows, list(data))
        # the first four batches are watched for neurons that are never reset
        assert kept.found == ([] if sanity is None else [2] * sanity + [4, 4])
        assert cb.clean(net)
    assert cb.close(net.fc.weight, expected)
