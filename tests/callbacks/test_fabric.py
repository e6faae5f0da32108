"""A Fabric loop learns what a Trainer does, and resumes; SGD steps what is handed over to it."""

import itertools
import logging

import callback_helpers as cb
import pytest
import torch
from lightning.fabric import Fabric
from test_resume import Streaming

from lightning_accum import MSTDP, STDP, CellSpec, Clamp, TripletSTDP, attach_updater
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer

CELLS = {"enc": CellSpec("fc", "lif")}


def data():
    return [x for x, _ in cb.loader(5)]


def make(rule, **options):
    return FabricCellTrainer(rule, CELLS, time_dim=0, **options)


def set_up(model, use=None, **options):
    learner = make(use or STDP(**cb.RULE), **options)
    learner.setup(model)
    return learner


def show(learner, model, batch):
    with learner.batch():
        model(batch)


def loop(learner, model, batches):
    for batch in batches:
        show(learner, model, batch)
        learner.step(scale=0.5)


@pytest.mark.parametrize("wrapped", [True, False])
def test_as_the_trainer_does(wrapped):
    by_fabric, expected = cb.Net(), cb.fit_by_hand(cb.Net(), list(cb.loader(5)), lr=0.5)[-1]
    fabric = Fabric(accelerator="cpu", devices=1)
    model = fabric.setup(by_fabric) if wrapped else fabric.to_device(by_fabric)
    learner = set_up(model)
    loop(learner, model, data())
    assert cb.close(by_fabric.fc.weight, expected)
    learner.release()
    assert cb.clean(by_fabric)


def test_saved_between_accumulating_and_applying_it_resumes(tmp_path):
    fabric = Fabric(accelerator="cpu", devices=1)
    whole, begun, resumed = Streaming(), Streaming(), Streaming()

    def learn(model, stop):
        learner = set_up(model, carry=True)
        loop(learner, model, data()[:2])
        show(learner, model, data()[2])
        learner.accumulate()
        if stop:
            fabric.save(tmp_path / "state.ckpt", {"model": model, "learner": learner})
            model, learner = resumed, make(STDP(**cb.RULE), carry=True)
            fabric.load(tmp_path / "state.ckpt", {"model": model, "learner": learner})
            learner.setup(model)
        learner.step(scale=0.5)
        loop(learner, model, data()[3:])

    learn(whole, False)
    learn(begun, True)
    assert torch.equal(resumed.fc.weight, whole.fc.weight)


def fails_in_a_batch(learner, call, x):
    with pytest.raises(KeyboardInterrupt), learner.batch():  # noqa: PT012
        call(x)
        raise KeyboardInterrupt


def test_what_fails_or_is_outside_of_a_batch_is_not_learned():
    learner = set_up(model := cb.Net())
    fails_in_a_batch(learner, model, data()[0])
    learner.step()
    model(data()[0])  # outside of a batch nothing is recorded
    learner.accumulate()
    learner.step()
    assert torch.equal(model.fc.weight, cb.Net().fc.weight)


def test_what_was_not_evaluated_is_not_taken_up():
    learner = set_up(model := cb.Net())
    show(learner, model, data()[0])
    learner.load_state_dict(learner.state_dict())
    learner.step()
    assert torch.equal(model.fc.weight, cb.Net().fc.weight)


def test_a_batch_that_fails_takes_nothing_from_a_stream():
    streams = []
    for fails in (False, True):
        learner = set_up(model := Streaming(), carry=True)
        for i, x in enumerate(data()[:3]):
            if fails and i == 1:
                fails_in_a_batch(learner, model.fc, data()[4])
            show(learner, model, x)
            learner.step()
        streams.append(model.fc.weight)
    assert torch.equal(*streams)


def test_a_reward_comes_with_the_step():
    learner = set_up(model := cb.Net(), MSTDP(0.1, -0.05))
    show(learner, model, data()[0])
    learner.step(reward=0.0)
    show(learner, model, data()[0])
    with pytest.raises(ValueError, match="`scale` should"):
        learner.step(scale=-1.0, reward=1.0)
    with pytest.raises(TypeError, match=r"Found .'lr', 'reward'., which nothing takes: .*`scale`"):
        learner.step(lr=1e-3, reward=1.0)
    assert torch.equal(model.fc.weight, cb.Net().fc.weight)
    learner.step(reward=1.0)
    assert not torch.equal(model.fc.weight, cb.Net().fc.weight)


@pytest.mark.parametrize("call", ["step", "updates_as_gradients"])
def test_an_input_without_a_batch_is_rejected(call):
    learner = set_up(model := cb.Net(), MSTDP(0.1, -0.05), health=False)
    with pytest.raises(TypeError, match=r"Found .'reward'., and no batch yet: .*learner.batch"):
        getattr(learner, call)(reward=1.0)
    show(learner, model, data()[0])
    learner.setup(model)  # drops that batch
    with pytest.raises(TypeError, match=f"`{call}` .* Found .'reward'."):
        getattr(learner, call)(reward=1.0)
    show(learner, model, data()[0])
    learner.accumulate(reward=1.0)
    with pytest.raises(TypeError, match=f"`{call}` .* Found .'reward'., which nothing takes"):
        getattr(learner, call)(reward=-1.0)
    assert model.fc.weight.grad is None
    learner.step()
    assert not torch.equal(model.fc.weight, cb.Net().fc.weight)


@pytest.mark.parametrize("released", [False, True])
def test_a_loop_before_setup_or_after_release(released):
    learner = make(STDP(**cb.RULE))
    if released:
        learner.setup(cb.Net())
        learner.release()
    calls = learner.batch().__enter__, learner.accumulate, learner.step
    for call in (*calls, learner.updates_as_gradients):
        with pytest.raises(RuntimeError, match=r"Found no module, or one.*call `setup\(module\)`"):
            call()


@pytest.mark.parametrize("kind", [cb.Net, Streaming])
def test_a_step_inside_the_batch_is_one_after_it_and_later_activity_awaits_the_next(kind):
    ends = []
    for inside in (False, True):
        learner = set_up(model := kind(), carry=kind is Streaming)
        if not inside:
            loop(learner, model, data() * 2)
        for batch in data() * 2 * inside:
            with learner.batch():
                model(batch)
                learner.step(scale=0.5)
        ends.append(model.fc.weight.detach().clone())
        with learner.batch():
            model(data()[0])
            learner.step()
            before = model.fc.weight.clone()
            model(data()[1])
        learner.step()
        assert not torch.equal(model.fc.weight, before)
        learner.release()
    assert torch.equal(*ends)
    assert not torch.equal(ends[0], kind().fc.weight)


def test_a_state_of_another_rule_is_told():
    saved = set_up(model := cb.Net())
    state = saved.state_dict()
    saved.release()
    other = set_up(model, TripletSTDP(0.1, 0.1, -0.1, -0.1))
    with pytest.warns(UserWarning, match="state of a `STDP`, of which a `TripletSTDP` takes only"):
        other.load_state_dict(state)
    other.release()


# ---------------------------------------------------------------------- updates as gradients
class Stepping(cb.Net):
    """Steps an optimizer of its own, given what its callback hands over."""

    def __init__(self):
        super().__init__()
        self.optimizers_given = torch.optim.SGD(self.parameters(), lr=0.5)

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self(batch[0])
        (own,) = (c for c in self.trainer.callbacks if isinstance(c, CellTrainerCallback))
        own.updates_as_gradients()
        optimizer.step()


def test_an_optimizer_that_maximizes_is_rejected(tmp_path):
    net = Stepping()
    net.optimizers_given = torch.optim.SGD(net.parameters(), lr=0.5, maximize=True)
    before = net.fc.weight.clone()
    with pytest.raises(ValueError, match=r"`maximize` of the optimizer should be False.*`SGD`"):
        cb.trainer(tmp_path, cb.callback()).fit(net, cb.loader(2))
    assert torch.equal(net.fc.weight, before)


@pytest.mark.parametrize("rewarded", [False, True])
def test_in_a_loop(rewarded):
    nets = cb.Net(), cb.Net()
    for net, handed in zip(nets, (False, True), strict=True):
        learner = set_up(net, (MSTDP if rewarded else STDP)(0.02, -0.01))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        for i, (x, _) in enumerate(cb.loader(3)):
            given = {"reward": torch.tensor(0.25 + 0.1 * i)} if rewarded else {}
            show(learner, net, x)
            if handed:
                optimizer.zero_grad()
                learner.updates_as_gradients(**given)
                optimizer.step()
            else:
                learner.step(scale=0.5, **given)
    assert cb.close(nets[1].fc.weight, nets[0].fc.weight)
    assert not cb.close(nets[1].fc.weight, cb.Net().fc.weight)


def test_constraints_that_would_not_run_are_an_error():
    def keep_small(weight):
        weight.clamp_(max=0.4)

    learner = set_up(net := cb.Net())
    for constraint in (Clamp(0.1, 0.3), keep_small):
        attach_updater(net.fc, "weight").register_constraint(constraint)
    show(learner, net, data()[0])
    names = r"Found `Clamp\(min=0.1, max=0.3\)` on `weight`, `keep_small` on `weight` of"
    with pytest.raises(ValueError, match=names):
        learner.updates_as_gradients()
    assert net.fc.weight.grad is None


@pytest.mark.parametrize("lr", [0.5, 200.0])
def test_the_summary_shows_what_the_optimizer_changed(lr, tmp_path, caplog):
    net, data, ratios = Stepping(), cb.loader(4), []
    net.optimizers_given = torch.optim.SGD(net.parameters(), lr=lr)
    weights = [net.fc.weight.detach().clone()]
    keep = lambda *_: weights.append(net.fc.weight.detach().clone())  # noqa: E731
    after = cb.Probe("on_train_batch_end", keep)
    with caplog.at_level(logging.INFO, "lightning_accum.callbacks"):
        cb.trainer(tmp_path, cb.callback(), after).fit(net, data)
    for old, new in itertools.pairwise(weights):
        ratios.append(float((new - old).norm() / old.norm()))
    said = caplog.messages[-1].splitlines()
    shown = f"{sum(ratios) / len(ratios):.1e}"
    assert said[2].split()[:4] == ["enc", "weight", "4", shown]
    advice = [line for line in said if line.startswith("An update changes `enc.weight` by")]
    assert len(advice) == (lr > 1)
    assert all(line.endswith("on average: lower the rates.") for line in advice)
