"""A rule says so if the potential that it reads is not what a foreign neuron compares."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lightning_accum as la
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer
from lightning_accum.nn import SurrogateLIF
from lightning_accum.rules import _potential_check as check
from lightning_accum.rules._library_constants import library_constants
from lightning_accum.rules._potential_check import compare

INPUTS, NEURONS, STEPS, BATCH, BETA = 10, 12, 20, 6, 0.9
TC_MEM = -1 / math.log(BETA)


class Own(nn.Module):
    """A neuron of one's own, which keeps its potential as `u` and its threshold as `a`."""

    def __init__(
        self, *, threshold: Any = 1.0, after_reset: bool = False, refractory: int = 0,
        adapts: float = 0.0, hard: bool = False, winners: bool = False, noise: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.threshold, self.after_reset, self.refractory = threshold, after_reset, refractory
        self.adapts, self.hard, self.winners, self.noise = adapts, hard, winners, noise
        self.u = self.a = torch.empty(0)

    def forward(self, currents: Tensor) -> Tensor:
        v, a = torch.zeros_like(currents[0]), torch.zeros_like(currents[0])
        rest, rows = torch.zeros_like(v), []
        for now in currents.detach():
            v = BETA * v + now
            limit = self.threshold + a
            fires = v + self.noise * torch.randn_like(v) >= limit
            z = (fires & (rest <= 0)).to(v.dtype)
            if self.winners:
                z = z * (v == v.amax(-1, keepdim=True))
            before, rest = v, torch.where(z > 0, self.refractory, rest - 1)
            v = v * (1 - z) if self.hard else v - z * self.threshold
            rows.append((z, v if self.after_reset else before, limit + torch.zeros_like(v)))
            a = 0.95 * a + self.adapts * z
        spikes, self.u, self.a = map(torch.stack, zip(*rows, strict=True))
        return spikes


class Net(pl.LightningModule):
    def __init__(self, neuron: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.fc, self.neuron = nn.Linear(INPUTS, NEURONS, bias=False, dtype=dtype), neuron
        nn.init.normal_(self.fc.weight, 0.1, 0.3)

    def training_step(self, batch: list[Tensor], batch_idx: int = 0) -> dict[str, Tensor]:
        x = batch[0].to(self.fc.weight.dtype)
        self.spikes = self.neuron(self.fc(x.transpose(0, 1)))
        return {"error": torch.ones(len(x), NEURONS)}

    def configure_optimizers(self) -> None:
        return None


class StepNet(Net):
    """Calls the neuron once for each step."""

    def training_step(self, batch: list[Tensor], batch_idx: int = 0) -> dict[str, Tensor]:
        mem = self.neuron.reset_mem()
        for x in batch[0].transpose(0, 1):
            _, mem = self.neuron(self.fc(x), mem)
        return {"error": torch.ones(len(batch[0]), NEURONS)}


def raster(batches: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(batches * BATCH, STEPS, INPUTS, generator=generator) < 0.5).float()


def eprop(**options: Any) -> la.EProp:
    return la.EProp(1e-4, **{"tc_mem": TC_MEM, "threshold": 1.0, "time_dim": 0, **options})


def by_hand(rule: Any, net: Net, batches: int = 2) -> None:
    rule.register_cell("h", la.Cell(net.fc, net.neuron))
    for x in raster(batches).split(BATCH):
        error = net.training_step([x])
        rule(**(error if isinstance(rule, la.EProp) else {}))
        rule.update()


def by_callback(rule: Any, net: Net) -> None:
    cells = {"h": la.CellSpec("fc", "neuron")}
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[CellTrainerCallback(rule, cells, input_keys="error")],
    )  # fmt: skip
    trainer.fit(net, DataLoader(TensorDataset(raster(3)), batch_size=BATCH))


def by_fabric(rule: Any, net: Net) -> None:
    learner = FabricCellTrainer(rule, {"h": la.CellSpec("fc", "neuron")})
    learner.setup(net)
    for x in raster(3).split(BATCH):
        with learner.batch():
            error = net.training_step([x])
        learner.step(**error)
    learner.release()


def told(run: Callable[[], None]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run()
    return [
        str(w.message) for w in found if w.category is UserWarning and "cell `h`" in str(w.message)
    ]


def out(spikes: Tensor) -> Tensor:
    return spikes


WRONG: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], str]] = {
    "spikes": (Own, {"membrane": out}, r"Found that it reads the spikes: all 1440 values"),
    "after a reset to 0": (
        lambda: Own(after_reset=True, hard=True), {"membrane": "u"}, "potential before the reset by"
    ),
    "after a reset that subtracts": (
        lambda: Own(after_reset=True), {"membrane": "u"}, "potential before the reset by"
    ),
    "threshold too high": (Own, {"membrane": "u", "threshold": 20.0}, "fired from 1.* on, and not"),
    "threshold too low": (
        lambda: Own(threshold=3.0),
        {"membrane": "u"},
        r"should be that of the neuron of cell `h`. Found the rule's `threshold = 1`, and",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("run", [by_hand, by_callback, by_fabric])
@pytest.mark.parametrize("case", WRONG)
def test_a_potential_that_the_neuron_does_not_compare_is_told_once(case: str, run: Any) -> None:
    neuron, options, text = WRONG[case]
    (found,) = told(lambda: run(eprop(**options), Net(neuron())))
    assert re.search(text, found), found


RIGHT: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "own": (Own, {}),
    "reset to 0": (lambda: Own(hard=True), {}),
    "refractory": (lambda: Own(refractory=5), {}),
    "refractory, reset to 0": (lambda: Own(refractory=8, hard=True), {}),
    "adaptive, its threshold": (lambda: Own(adapts=0.5), {"threshold": "a"}),
    "adaptive, a number": (lambda: Own(adapts=1.5), {}),
    "winner takes all": (lambda: Own(winners=True), {}),
    "noisy": (lambda: Own(noise=0.3), {}),
    "a threshold for each": (lambda: Own(threshold=torch.linspace(0.5, 1.5, NEURONS)), {}),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", RIGHT)
def test_a_potential_that_the_neuron_compares_is_not_told(case: str, dtype: torch.dtype) -> None:
    neuron, options = RIGHT[case]
    net = Net(neuron(), dtype)
    assert told(lambda: by_hand(eprop(membrane="u", **options), net, 4)) == []
    assert 50 < net.spikes.float().sum() < 0.9 * net.spikes.numel()


@pytest.mark.parametrize("rule", [la.Clopath, la.OTTT])
def test_other_rules_say_that_they_read_spikes(rule: Any) -> None:
    neuron = SurrogateLIF(NEURONS, tc_mem=TC_MEM, gradient="step", time_dim=0)
    layer = la.Serial(nn.Linear(INPUTS, NEURONS, bias=False), neuron)
    nn.init.normal_(layer.connection.weight, 0.1, 0.3)
    args = (1e-4,) if rule is la.OTTT else (1e-4, 1e-4, 0.0, 0.5)
    made = rule(*args, membrane=out, time_dim=0)
    made.register_cell("h", layer.cell)
    layer(raster().transpose(0, 1).requires_grad_()).sum().backward()
    (found,) = told(made)
    assert f"`{rule.__name__}` should read the membrane potential of cell `h`" in found


def test_clopath_reads_any_potential() -> None:
    net = Net(Own(after_reset=True))
    assert (
        told(lambda: by_hand(la.Clopath(1e-4, 1e-4, 0, 0.5, membrane="u", time_dim=0), net)) == []
    )
    assert net.spikes.sum() > 50


def test_native_neurons_are_not_looked_at_and_others_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(check, "compare", lambda *a: looks.append(1) or compare(*a))
    by_hand(eprop(threshold="threshold"), Net(SurrogateLIF(NEURONS, tc_mem=TC_MEM, time_dim=0)), 5)
    assert not looks
    by_hand(eprop(membrane="u"), Net(Own()), 5)
    assert len(looks) == 1


def test_windows_are_looked_at_more_and_more_rarely_until_neurons_fire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    rule, net = eprop(membrane=out), Net(Own(threshold=1000.0))
    monkeypatch.setattr(check, "compare", lambda *a: looks.append(windows) or compare(*a))
    rule.register_cell("h", la.Cell(net.fc, net.neuron))
    (x,) = raster().split(BATCH)
    found = []
    for windows in range(20):
        net.neuron.threshold = 1.0 if windows > 4 else 1000.0
        error = net.training_step([x])["error"] * (-1) ** windows
        found.append(told(lambda error=error: rule(error=error)))
    assert looks == [0, 1, 3, 7]
    assert [i for i, texts in enumerate(found) if texts] == [7]


def second(output: tuple[Tensor, Tensor]) -> Tensor:
    return output[1]


def snntorch_net(**options: Any) -> StepNet:
    library = pytest.importorskip("snntorch", reason="snnTorch is not installed")
    return StepNet(library.Leaky(**{"beta": BETA, **options}))


@pytest.mark.filterwarnings("ignore:Inhibition is an unstable feature")  # of snnTorch
@pytest.mark.parametrize(
    ("neuron", "options", "text"),
    [
        ({"beta": 0.5}, {}, r"keeps 0.5 of its potential.* give the rule `tc_mem=1.443`"),
        ({"threshold": 3.0}, {}, "give the rule `threshold=3`"),
        ({}, {"threshold": 0.5}, "give the rule `threshold=1`"),
        ({"reset_delay": False}, {}, "potential before the reset"),
        ({}, {}, None),
        ({"reset_mechanism": "zero"}, {}, None),
        ({"reset_mechanism": "none"}, {}, None),
        ({"inhibition": True}, {}, None),
        ({"beta": torch.linspace(0.7, 0.95, NEURONS)}, {}, None),
        ({"beta": 0.95}, {"tc_mem": 20.0}, None),
    ],
)
def test_constants_of_snntorch(neuron: Any, options: Any, text: str | None) -> None:
    net = snntorch_net(**neuron)
    rule = eprop(**{"membrane": second, "time_dim": None, **options})
    found = told(lambda: by_hand(rule, net, 3))
    assert len(found) == (text is not None)
    assert text is None or re.search(text, found[0]), found


def test_constants_of_spikingjelly() -> None:
    library = pytest.importorskip(
        "spikingjelly.activation_based.neuron", reason="SpikingJelly is not installed"
    )

    class Node(library.LIFNode):  # type: ignore[misc, name-defined]
        """Keeps the potential before the reset."""

        potential = torch.empty(0)

        def forward(self, x: Tensor) -> Tensor:
            spikes: Tensor = super().forward(x)
            self.potential = self.v + spikes * self.v_threshold
            return spikes

    class Steps(Net):
        def training_step(self, batch: list[Tensor], batch_idx: int = 0) -> dict[str, Tensor]:
            self.neuron.reset()
            for x in batch[0].transpose(0, 1):
                self.neuron(self.fc(x))
            return {"error": torch.ones(len(batch[0]), NEURONS)}

    def run(tc_mem: float, threshold: float, membrane: str = "potential") -> list[str]:
        node = Node(tau=10.0, decay_input=False, v_reset=None)
        rule = eprop(membrane=membrane, tc_mem=tc_mem, threshold=threshold, time_dim=None)
        return told(lambda: by_hand(rule, Steps(node)))

    assert run(TC_MEM, 1.0) == run(10.0, 1.0) == []
    assert "give the rule `tc_mem=9.491`" in run(20.0, 1.0)[0]
    assert "give the rule `threshold=1`" in run(TC_MEM, 2.0)[0]
    assert "potential before the reset" in run(TC_MEM, 1.0, "v")[0]


def test_constants_of_norse() -> None:
    library = pytest.importorskip("norse.torch", reason="Norse is not installed")
    found = library_constants(library.LIFCell())
    assert found is not None
    low, high = found.tc_mem(1.0) or (0.0, 0.0)
    assert low == pytest.approx(TC_MEM)
    assert high == pytest.approx(10.0)
    assert found.thresholds == (1.0, 1.0)


def test_unmoved_weights_are_due_to_the_threshold() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        by_callback(eprop(membrane="u", threshold=20.0), Net(Own()))
    (text,) = [str(w.message) for w in found if "unchanged since" in str(w.message)]
    assert "pseudo-derivative of its neurons was 0 at every potential that was looked at" in text
    assert "`threshold = 20`: give the rule the neuron's own `threshold=`, or a `surrog" in text
    assert "wider dtype" not in text


@pytest.mark.parametrize("learned", [True, False])
def test_a_threshold_of_all_samples_is_given_as_a_number(learned: bool) -> None:
    neuron = Own()
    del neuron.threshold
    if learned:
        neuron.register_parameter("threshold", nn.Parameter(torch.tensor(0.8)))
    else:
        neuron.register_buffer("threshold", torch.tensor(0.8))  # as in snnTorch
    rule = eprop(membrane="u", threshold="threshold")
    with pytest.raises(ValueError, match=r"`threshold` of the `Own` .* is 0\.8: pass `threshold=0"):
        rule.register_cell("enc", la.Cell(nn.Linear(3, 4), neuron))
    assert not list(rule.named_cells)


def test_potentials_on_the_meta_device_are_not_looked_at() -> None:
    net = Net(Own()).to("meta")
    rule = la.EProp(0.1, membrane="u", threshold=1.0, tc_mem=TC_MEM, graded_input=True, time_dim=0)
    rule.register_cell("enc", la.Cell(net.fc, net.neuron))
    error = net.training_step([torch.ones(BATCH, STEPS, INPUTS, device="meta")])["error"]
    rule(error=error)
    assert not la.get_updater(net.fc).weight.empty
