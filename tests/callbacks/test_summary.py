"""What is said at the end of a fit is what its updates did, from the first to the last."""

import logging
import math
import warnings
from functools import partial
from itertools import pairwise

import pytest
import torch
from callback_helpers import RULE, Net, Probe, callback, fit_by_hand, loader, trainer
from test_pictures import Deep

from lightning_accum import STDP, CellSpec, Clamp, Clopath, attach_updater
from lightning_accum.callbacks._logging import Before
from lightning_accum.functional.update_statistics import update_statistics
from lightning_accum.health.update_summary import Summary
from lightning_accum.nn import SurrogateLIF
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.sparse import kernel_library as library

TITLE = "Local learning, by updates 1, 2, 4, 8, ... and those of logging steps:"


@pytest.fixture
def said(caplog):
    """Gives the lines that were said, without the title."""
    caplog.set_level(logging.ERROR, "lightning.pytorch")  # it is said where Lightning is muted too
    caplog.set_level(logging.INFO, "lightning_accum.callbacks")  # others may have set it higher

    def lines():
        found = [m for m in caplog.messages if m.startswith(TITLE[:14])]
        caplog.clear()
        assert len(found) <= 1
        return found[0].splitlines()[1:] if found else []

    return lines


def rows(lines):
    """The table, without its head and what follows."""
    assert lines[0].split("  ")[0] == "cell"
    return [line.split() for line in lines[1:] if not line.endswith(".")]


def test_a_kernel_that_is_missing_is_told_once(said, tmp_path, monkeypatch):
    told = "Sums over spikes ran in plain torch instead of the compiled kernel:"
    trainer(tmp_path, callback(), log_every_n_steps=4).fit(Net(), loader(8))
    assert not any(line.startswith(told) for line in said()) or library.why_not()
    monkeypatch.setenv("LIGHTNING_ACCUM_KERNEL", "0")
    monkeypatch.setattr(library, "_failures", {})
    library.library.cache_clear()
    try:
        library.library(torch.float32)  # as the first sum over spikes does
        trainer(tmp_path, callback(), log_every_n_steps=4).fit(Net(), loader(8))
    finally:
        library.library.cache_clear()
    found = [line for line in said() if line.startswith(told)]
    assert found == [f"{told} LIGHTNING_ACCUM_KERNEL=0 switches it off."]


def test_the_table(said, tmp_path):
    net, batches = Net(), list(loader(8))
    with torch.no_grad():
        net.fc.weight[0] = 0  # one of four neurons never fires
    seen = [net.fc.weight.detach().clone(), *fit_by_hand(net, batches, lr=0.5)]
    ratios = [float((seen[i] - seen[i - 1]).norm() / seen[i - 1].norm()) for i in range(1, 9)]
    # one that is measured, 1, 2, 4, 6 or 8, stands for those since the last one
    mean = sum(ratios[i - 1] * n for i, n in {1: 1, 2: 1, 4: 2, 6: 2, 8: 2}.items()) / 8
    trainer(tmp_path, callback(lr=0.5), log_every_n_steps=2).fit(net, loader(8))
    lines = said()
    assert rows(lines) == [["enc", "weight", "8", f"{mean:.1e}", "0%", "0%", "25%"]]
    assert len(lines) == 2


@pytest.mark.parametrize("log_every", [1, 60, 1000])
def test_the_ratio_is_that_of_the_whole_fit_when_a_rate_decays(log_every, said, tmp_path):
    """Only the last step is logged, or none: its rate is a millionth of the first one's."""
    net, seen = Net(), []
    decay = partial(torch.optim.lr_scheduler.ExponentialLR, gamma=10 ** (-6 / 59))
    note = Probe("on_train_batch_start", lambda *_: seen.append(net.fc.weight.detach().clone()))
    use = callback(lr=0.5, lr_scheduler=decay)
    trainer(tmp_path, use, note, log_every_n_steps=log_every).fit(net, loader(60))
    seen.append(net.fc.weight.detach())
    ratios = [float((b - a).norm() / a.norm()) for a, b in pairwise(seen)]
    assert ratios[-1] < 1e-4 * ratios[0]
    shown = float(rows(said())[0][3])
    assert shown == pytest.approx(sum(ratios) / 60, rel=0.06 if log_every == 1 else 0.5)


@pytest.mark.parametrize("health", [False, {"moved": False}])
def test_the_table_does_not_need_the_checks(health, said, tmp_path):
    lines = []
    for options in ({}, {"health": health}):
        use = callback(STDP(**{**RULE, "lr_post": 2.0}), **options)
        trainer(tmp_path, use).fit(Net(), loader(1))
        lines.append(said())
    assert rows(lines[1]) == rows(lines[0])
    assert {*lines[1]} <= {*lines[0]}
    assert any(line.startswith("An update changes `enc.weight`") for line in lines[1])


def test_silent_neurons_are_counted_in_all_batches_of_the_last_epoch(said, tmp_path):
    net, counts = Net(), []
    with torch.no_grad():
        net.fc.weight[:3] *= torch.tensor([[0.0], [0.25], [0.32]])
    net.lif.register_forward_hook(lambda *args: counts.append(args[2].sum((0, 1))))
    trainer(tmp_path, callback(lr=0.0), max_epochs=2, log_every_n_steps=16).fit(net, loader(8))
    share = (sum(counts[-8:]) == 0).double().mean().item()
    assert 0 < share < (counts[-1] == 0).double().mean().item()  # the only batch that is logged
    assert rows(said())[0][-1] == f"{share:.0%}"


@pytest.mark.parametrize(
    ("every", "log_every", "count"), [(3, 4, "3"), (1, 8, "8"), (2, 3, "4"), (4, 1, "2")]
)
def test_counts_all_updates(every, log_every, count, said, tmp_path):
    use = callback(apply_every_n_batches=every)
    for _ in range(2):  # another fit begins anew
        trainer(tmp_path, use, log_every_n_steps=log_every).fit(Net(), loader(8))
        assert rows(said())[0][2] == count


def test_two_optimizers_count_apart(said, tmp_path):
    class Two(Deep):
        def training_step(self, batch, batch_idx):
            super().training_step(batch, batch_idx)
            first, second = self.optimizers()
            first.step()
            if batch_idx % 2:
                second.step()

        def configure_optimizers(self):
            return [UpdateOptimizer(each.parameters()) for each in (self.fc, self.out)]

    cells = {"enc": CellSpec("fc", "lif"), "out": CellSpec("out", "end")}
    trainer(tmp_path, callback(cells=cells), log_every_n_steps=2).fit(Two(), loader(8))
    assert [(row[0], row[2]) for row in rows(said())] == [("enc", "8"), ("out", "4")]


def test_advice_on_silent_neurons_or_nothing_is_said(said, tmp_path):
    net = Net(outputs=20)
    with torch.no_grad():
        net.fc.weight[1:] = 0
    trainer(tmp_path, callback()).fit(net, loader(4))
    (*_, last) = said()
    assert last.startswith("95% of the neurons of `enc` did not fire in the 4 batches of the last")
    for options in ({"summary": False}, {"log": False}):
        trainer(tmp_path, callback(**options)).fit(net, loader(2))
        assert said() == []


class Dies(Net):
    """Fires in the first of so many batches, and never again."""

    def training_step(self, batch, batch_idx):
        self.lif.reset()
        self.lif(self.fc(batch[0].transpose(0, 1)) * (self.global_step < self.alive))


@pytest.mark.parametrize(("alive", "batches", "epochs", "words"), [
    (1, 6, 2, "none of the last 7 of 8 windows"),
    (2, 6, 1, "none of the last 3 of 5 windows"),
    (5, 8, 1, None),  # a few silent steps are no matter
    (1, 3, 1, None),
    (8, 8, 1, None),
])  # fmt: skip
def test_neurons_that_fall_silent(alive, batches, epochs, words, said, tmp_path):
    net = Dies()
    net.alive = alive
    trainer(tmp_path, callback(), max_epochs=epochs).fit(net, loader(batches))
    lines = said()
    assert rows(lines)[0][-1] == ("100%" if epochs == 2 else "0%")  # in the last epoch
    found = [line for line in lines if line.startswith("The neurons of `enc` fired at first, and")]
    assert len(found) == (words is not None)
    assert all(words in line for line in found)


@pytest.mark.parametrize(
    ("theta_pos", "lr_pre", "told"), [(0.0, -0.1, 0), (9.0, -0.1, 1), (9.0, 0.0, 0), (0.0, 0.0, 0)]
)
def test_a_side_that_never_acts(theta_pos, lr_pre, told, said, tmp_path):
    net = Net()
    net.lif = SurrogateLIF(4, time_dim=0)
    rule = Clopath(0.1, lr_pre, theta_neg=0.0, theta_pos=theta_pos)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the one without any change
        trainer(tmp_path, callback(rule)).fit(net, loader(4))
    found = [line for line in said() if "in the 4 updates that were measured, of 4" in line]
    assert len(found) == told
    assert all("only depressed `enc.weight`" in line for line in found)


@pytest.mark.parametrize(("lr", "side", "mend"), [
    # depression with the sign of other libraries
    (1.0, "upper", "write `lr_pre=-1` if it should depress (other libraries subtract"),
    (-1.0, "lower", "weaken depression"),
])  # fmt: skip
def test_advice_on_limits(lr, side, mend, said, tmp_path):
    net = Net()
    attach_updater(net.fc, "weight").register_constraint(Clamp(0.0, 0.5))
    trainer(tmp_path, callback(STDP(lr, lr)), log_every_n_steps=4).fit(net, loader(4))
    row, *advice = said()[1:]
    assert row.split()[4:6] == (["0%", "100%"] if side == "upper" else ["100%", "0%"])
    wanted = f"100% of the weights of `enc.weight` sit at the {side} limit: {mend}"
    assert any(line.startswith(wanted) for line in advice)


def test_advice_on_large_updates(said, tmp_path):
    rule = STDP(**{**RULE, "lr_post": 2.0})
    trainer(tmp_path, callback(rule)).fit(Net(), loader(1))
    row, line, *_ = said()[1:]
    assert ": lower" in line
    ratio = float(row.split()[3])
    assert ratio > 0.5
    percent = int(line.removeprefix("An update changes `enc.weight` by ").split("%")[0])
    assert percent == pytest.approx(100 * ratio, rel=0.06)
    assert line.endswith("on average: lower `lr_post` and `lr_pre`.")


def test_a_bias_that_begins_near_zero_gets_no_advice(said, tmp_path):
    class Biased(Net):
        def __init__(self):
            super().__init__()
            bias = torch.full((len(self.fc.weight),), 0.001, dtype=torch.float64)
            self.fc.bias = torch.nn.Parameter(bias)

    use = callback(STDP(0.003, -0.001), params=("weight", "bias"))
    trainer(tmp_path, use, max_epochs=1).fit(Biased(), loader(2))
    weight, bias, *advice = said()[1:]
    assert float(bias.split()[3]) > 0.1 > float(weight.split()[3])
    assert not any("An update changes" in line for line in advice)


@pytest.mark.parametrize("kernel", ["always", "never", "sometimes"])
@pytest.mark.parametrize("updates", [1, 63, 64, 65, 150])
def test_the_mean_ratio_of_many_updates(kernel, updates):
    torch.manual_seed(0)
    summary, ratios = Summary(), []
    for i in range(updates):
        weight = torch.zeros(4, 5) if i % 7 == 3 else torch.rand(4, 5)
        pos = torch.rand(4, 5)
        before = Before("enc", "weight", weight, weight, (pos, None), (0.0, 1.0))
        plain = update_statistics(weight, weight + pos, pos, None, 0.0, 1.0)
        by_kernel = kernel == "always" or (kernel == "sometimes" and i % 2)
        values = before.values(weight + pos) if by_kernel else plain
        summary.measured("enc", "weight", {**values, "updates": i + 1})
        ratios.append(float(plain["ratio"]))
    finite = [ratio for ratio in ratios if math.isfinite(ratio)]
    settings = {"enc": {"lr_post": 1.0, "lr_pre": -1.0}}
    lines = summary.lines({("enc", "weight"): updates}, settings, [])
    table = lines[2].split()
    assert table[:3] == ["enc", "weight", str(updates)]
    assert float(table[3]) == pytest.approx(sum(finite) / len(finite), rel=0.06)  # two digits
    assert table[4] == "0%"
    advice = [line for line in lines if line.startswith("The rule only")]
    assert len(advice) == (updates >= 3)
    assert all(f"the {updates} updates that were measured, of {updates}" in line for line in advice)


@pytest.mark.parametrize(("began", "swings"), [(1e-3, False), (1e-3, True), (1.0, True)])
def test_weights_that_only_began_near_zero_are_not_said_to_change_too_fast(began, swings):
    summary, weight = Summary(), torch.full((4,), began)
    for i in range(30):
        new = weight + (0.5 * (-1) ** i if swings else 0.02)
        values = {**update_statistics(weight, new), "updates": i + 1}
        summary.measured("enc", "weight", values)
        weight = new
    lines = summary.lines({("enc", "weight"): 30}, {}, ["lr"])
    assert float(lines[2].split()[3]) > 0.1
    assert ("An update changes `enc.weight`" in lines[-1]) == swings
