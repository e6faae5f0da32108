"""What is borrowed from torch does what it is borrowed for."""

from __future__ import annotations

import functools
import runpy
import sys
from collections import OrderedDict
from types import FunctionType

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import Local, Net, Probe, callback, loader, trainer
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.optim import optimizer as of_optimizers
from torch.utils.checkpoint import checkpoint
from torchmetrics import MeanMetric, SumMetric

from lightning_accum._compat import lightning_internals as of_lightning
from lightning_accum._compat import torch_internals as of_torch
from lightning_accum._compat import torchmetrics_internals as of_torchmetrics


@pytest.mark.parametrize("reentrant", [True, False])
def test_in_backward(reentrant):
    seen = []

    def square(x):
        seen.append(of_torch.in_backward())
        return x * x

    x = torch.ones(1, requires_grad=True)
    checkpoint(square, x, use_reentrant=reentrant).backward()
    assert seen == [False, True]
    assert not of_torch.in_backward()


def test_in_dispatch_mode():
    with FakeTensorMode():
        assert of_torch.in_dispatch_mode()
    assert not of_torch.in_dispatch_mode()


def test_is_traced():
    seen = []

    def double(x):
        seen.append(of_torch.is_traced())
        return 2 * x

    double(torch.ones(1))
    torch.func.vmap(double)(torch.ones(2))
    torch.func.grad(lambda x: double(x).sum())(torch.ones(1))
    torch.compile(double, backend="eager", fullgraph=True)(torch.ones(1))
    assert seen == [False, True, True, True]
    assert not of_torch.is_traced()


def test_values_under_vmap():
    seen = []

    def both(x, y):
        seen.extend(of_torch.values_under_vmap(each) for each in (x, y, 2.0))
        return (x * y).sum()

    x, y = torch.rand(3), torch.rand(2)
    torch.func.vmap(torch.func.grad(both), (0, None))(x, y)
    assert torch.equal(seen[0], x)
    assert seen[1:] == [None, None]
    assert of_torch.values_under_vmap(x) is None


def test_forward_methods():
    class Doubled(nn.Conv1d):
        def _conv_forward(self, *args):
            return 2 * super()._conv_forward(*args)

    own = nn.Linear(1, 1)
    own.forward = lambda x: x
    assert of_torch.forward_methods(Doubled(1, 1, 1)) == ["torch.nn.modules.conv", __name__]
    assert of_torch.forward_methods(own) == ["<object>"]
    assert Doubled(1, 1, 1)(torch.ones(1, 1, 1)).shape == (1, 1, 1)  # torch does call it


def test_compiled_from():
    model = nn.Sequential(nn.Linear(2, 1))
    assert of_torch.compiled_from(torch.compile(model)) is model
    assert of_torch.compiled_from(model) is model


def test_hook_count():
    relu = nn.ReLU()
    assert of_torch.hook_count(relu) == 0
    kinds = "forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"
    handles = [getattr(relu, f"register_{kind}")(lambda *args: None) for kind in kinds]
    assert of_torch.hook_count(relu) == 4
    for handle in handles:
        handle.remove()
    assert of_torch.hook_count(relu) == 0


def test_own_tensor():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.BatchNorm1d(2)

        @property
        def weight(self):
            return self.inner.weight

    tied = Tied()
    assert of_torch.own_tensor(tied.inner, "weight") is tied.weight
    assert of_torch.own_tensor(tied.inner, "running_mean") is tied.inner.running_mean
    assert of_torch.own_tensor(tied, "weight") is of_torch.own_tensor(tied, "inner") is None


def test_ignore_in_ddp(monkeypatch):
    layer = nn.Linear(2, 1)
    of_torch.ignore_in_ddp(layer, [])
    assert not hasattr(layer, "_ddp_params_and_buffers_to_ignore")
    of_torch.ignore_in_ddp(layer, ["bias"])
    assert [*layer._ddp_params_and_buffers_to_ignore] == ["bias"]
    monkeypatch.delattr(
        nn.parallel.DistributedDataParallel, "_set_params_and_buffers_to_ignore_for_model"
    )
    with pytest.raises(RuntimeError, match="private name"):
        of_torch.ignore_in_ddp(layer, ["bias"])


@pytest.mark.parametrize(
    ("name", "options"),
    [("add", {"alpha": 0.5}), ("add", {}), ("sub", {}), ("mul", {}), ("maximum", {})],
)
def test_foreach(name, options):
    left, right = [torch.ones(2), torch.full((3,), 2.0)], [torch.full((2,), 3.0), torch.ones(3)]
    pairs = zip(left, right, strict=True)
    expected = [getattr(torch, name)(a, b, **options) for a, b in pairs]
    assert all(map(torch.equal, of_torch.foreach(name)(left, right, **options), expected))
    of_torch.foreach(f"{name}_")(left, right, **options)
    assert all(map(torch.equal, left, expected))


@pytest.mark.parametrize("decoupled", [False, True])
def test_fused_adam(decoupled):
    options = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.5}
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    weight, reference = torch.ones(3), nn.Parameter(torch.ones(3))
    reference.grad = torch.tensor([1.0, -2.0, 0.0])
    kind([reference], foreach=False, **options).step()
    of_torch.fused_adam(decoupled)(
        [weight], [reference.grad], [torch.zeros(3)], [torch.zeros(3)], [], [torch.ones(())],
        lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.5, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
    torch.testing.assert_close(weight, reference.detach())


def test_is_compiler_failure():
    def broken(graph, inputs):
        raise ValueError("no compiler")

    with pytest.raises(RuntimeError) as failure:
        torch.compile(lambda x: 2 * x, backend=broken)(torch.ones(1))
    assert of_torch.is_compiler_failure(failure.value)
    with pytest.raises(RuntimeError) as other:
        torch.compile(lambda x: x @ x, backend="eager")(torch.ones(2, 3))
    assert not of_torch.is_compiler_failure(other.value)


class Looked(Local):
    """Calls a function in every training batch, without a loss and without an optimizer."""

    def __init__(self, look, automatic):
        super().__init__()
        self.automatic_optimization, self.look, self.found = automatic, look, []

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.zeros(5, 1))

    def training_step(self, batch, batch_idx):
        self.found.append(self.look(self))


def looked(tmp_path, look, *callbacks, automatic=False, **options):
    """What ``look(module)`` returned in each of five batches."""
    model = Looked(look, automatic)
    trainer(tmp_path, *callbacks, **options).fit(model)
    return model.found


def test_batches_that_stepped_are_counted_by_steps_if_lightning_does_not(tmp_path):
    def look(module):
        return of_lightning.batches_that_stepped(module.trainer)

    def without(module):
        del module.trainer.fit_loop.epoch_loop._batches_that_stepped
        try:
            return look(module)
        finally:
            module.trainer.fit_loop.epoch_loop._batches_that_stepped = len(module.found)

    assert looked(tmp_path, look) == [0, 1, 2, 3, 4]
    assert looked(tmp_path, without, automatic=True) == [0, 1, 2, 3, 4]


def test_logs_now(tmp_path):
    def look(module):
        module.trainer.should_stop = len(module.found) >= 2
        logs = of_lightning.logs_now(module.trainer)
        assert logs == module.trainer._logger_connector.should_update_logs
        return logs

    found = looked(tmp_path, look, log_every_n_steps=2, min_epochs=1)
    assert not any(looked(tmp_path, look, log_every_n_steps=0))
    assert found == [False, True, True, True, True]  # Lightning logs when it is to stop


def test_log_again(tmp_path):
    def look(module):
        values = {name: torch.tensor(float(len(module.found))) for name in ("a", "b")}
        again = of_lightning.log_again(module, values)
        if not again:
            module.log_dict(values, on_step=True, on_epoch=False)
        assert module.trainer.callback_metrics["a"] == module.trainer.callback_metrics["b"]
        return again, float(module.trainer.callback_metrics["a"])

    found = looked(tmp_path, look, max_epochs=2)
    assert found == [(i % 5 > 0, float(i)) for i in range(10)]  # each epoch begins with `log`


def test_in_new_fit(tmp_path):
    assert looked(tmp_path, lambda _: of_lightning.in_new_fit()) == [True] * 5
    path, seen = tmp_path / "end.ckpt", []
    (run := trainer(tmp_path)).fit(Net(), loader(1))
    run.save_checkpoint(path)
    net = Net()
    net.fc.register_forward_hook(lambda *_: seen.append(of_lightning.in_new_fit()))
    run = trainer(tmp_path, max_epochs=2)
    run.fit(net, loader(1), ckpt_path=path)
    net.validation_step = net.training_step
    run.validate(net, loader(1), verbose=False)
    assert seen == [False] * 2
    assert not of_lightning.in_new_fit()


def test_skips_backward(tmp_path):
    def look(module):
        return of_lightning.skips_backward(module.trainer)

    def skip(trainer, module):
        trainer.fit_loop._skip_backward = True  # as that callback does

    assert looked(tmp_path, look) == [False] * 5
    assert looked(tmp_path, look, Probe("on_train_epoch_start", skip)) == [True] * 5


@pytest.mark.parametrize("automatic", [True, False])
def test_count_steps(automatic, tmp_path):
    def look(module):
        of_lightning.count_steps(module.trainer, 2)
        of_lightning.count_steps(module.trainer, -1)
        return int(module.trainer.global_step)

    # Lightning itself counts a step in each batch of automatic optimization
    expected = [1, 3, 5, 7, 9] if automatic else [1, 2, 3, 4, 5]
    assert looked(tmp_path, look, automatic=automatic) == expected


def test_methods_are_replaced_and_restored():
    class Speaker:
        def __init__(self, text):
            self.text = text

        def say(self):
            return self.text

    one, two, three = Speaker("one"), Speaker("two"), Speaker("three")
    of_lightning.replace_methods(one, two.say)
    assert one.say() == "two"
    of_lightning.restore_methods(one, three.say)  # it is not what was set
    assert one.say() == "two"
    of_lightning.restore_methods(one, two.say)
    assert (one.say(), vars(one)) == ("one", {"text": "one"})


def test_logs_hyperparameters():
    class Saving(pl.LightningModule):
        def __init__(self, size, log):
            super().__init__()
            self.save_hyperparameters(logger=log)

    assert of_lightning.logs_hyperparameters(Saving(1, log=True))
    assert not of_lightning.logs_hyperparameters(Saving(1, log=False))
    assert not of_lightning.logs_hyperparameters(pl.LightningDataModule())


def test_default_states():
    metric = SumMetric()
    metric.update(2.0)
    (default,) = (states := of_torchmetrics.default_states(metric)).values()
    assert (default, metric.metric_state.keys()) == (0.0, states.keys())


def test_forget_computed():
    metric = SumMetric()
    metric.update(2.0)
    assert metric.compute() == 2.0
    metric.sum_value = torch.tensor(3.0)
    assert metric.compute() == 2.0  # torchmetrics does not look at the state
    of_torchmetrics.forget_computed(metric)
    assert metric.compute() == 3.0


def test_mark_updated():
    metric = SumMetric()
    of_torchmetrics.mark_updated(metric)
    assert metric.compute() == 0.0  # no warning that `update` was never called
    for _ in range(2):
        metric.update(1.0)
    of_torchmetrics.mark_updated(metric)
    assert metric.update_count == 3


def test_version():
    tensor = torch.zeros(2)
    before = of_torch.version(tensor)
    tensor.view(1, 2).add_(1)
    assert of_torch.version(tensor) == before + 1


def test_is_synchronised():
    total = SumMetric()
    assert not of_torchmetrics.is_synchronised(total)
    total.sync(dist_sync_fn=lambda value, group: [value], distributed_available=lambda: True)
    assert of_torchmetrics.is_synchronised(total)
    total.unsync()
    assert not of_torchmetrics.is_synchronised(total)


def test_local_result():
    """It is that of one process, of the values now; and it leaves no cache."""
    together = {"dist_sync_fn": lambda value, group: [value, value]}
    total = SumMetric(distributed_available_fn=lambda: True, **together)
    total.update(3.0)
    local = of_torchmetrics.local_result
    assert (local(total), total.compute(), local(total)) == (3.0, 6.0, 3.0)
    total.sum_value.add_(1.0)
    assert local(total) == 4.0
    total.sum_value.add_(1.0)
    assert total.compute() == 10.0


def test_known_keywords():
    given = {"value": 1, "weight": 2}
    assert of_torchmetrics.known_keywords(MeanMetric(), {**given, "other": 3}) == given


def test_a_step_is_watched_by_hooks_a_scheduler_or_a_profiler(monkeypatch):
    for kind in ("pre", "post"):  # without those of objects that other tests keep
        module = sys.modules["torch.optim.optimizer"]
        monkeypatch.setattr(module, f"_global_optimizer_{kind}_hooks", OrderedDict())
    one = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    assert not of_torch.step_is_watched(one)
    for register in (
        one.register_step_pre_hook,
        one.register_step_post_hook,
        of_optimizers.register_optimizer_step_pre_hook,
        of_optimizers.register_optimizer_step_post_hook,
    ):
        handle = register(lambda *args: None)
        assert of_torch.step_is_watched(one)
        handle.remove()
        assert not of_torch.step_is_watched(one)
    with torch.profiler.profile():
        assert of_torch.step_is_watched(one)
    assert not of_torch.step_is_watched(one)
    torch.optim.lr_scheduler.StepLR(one, 1)
    assert of_torch.step_is_watched(one)


def test_callbacks_are_known_while_a_trainer_compares_their_keys():
    class Keyed(pl.Callback):
        @property
        def state_key(self):
            seen.append(of_lightning.compared_by_key())
            return str(id(self))

        def state_dict(self):
            return {}

    seen, pair = [], [Keyed(), Keyed()]
    trainer = pl.Trainer(callbacks=pair, logger=False, accelerator="cpu")
    assert seen
    assert all(pair == [each for each in found if each in pair] for found in seen)
    assert of_lightning.compared_by_key() == []
    assert trainer.callbacks[0].state_key == str(id(pair[0]))
    assert seen[-1] == []


# -------------------------------------------- versions of torch and Lightning with other names
ESSENTIAL = {
    "compiled_from": lambda: of_torch.compiled_from(object()),
    "count_steps": lambda: of_lightning.count_steps(object(), 1),
    "foreach": lambda: of_torch.foreach("add_"),
    "in_backward": of_torch.in_backward,
    "own_tensor": lambda: of_torch.own_tensor(object(), "weight"),
}
WITHOUT_RISK = {"attempt", "forward_methods", "is_traced", "lacking"}  # borrow nothing, or try it
WITHOUT_RISK |= {"replace_methods", "restore_methods"}
BORROWING = {
    name: function
    for module in (of_torch, of_lightning, of_torchmetrics)
    for name, function in vars(module).items()
    if isinstance(function, FunctionType) and function.__module__ == module.__name__
    if not name.startswith("_")
}


def weight_of_a_fit():
    net = Net()
    trainer(None, callback()).fit(net, loader(3))
    return net.fc.weight.detach()


weight_of_a_plain_fit = functools.cache(weight_of_a_fit)


@pytest.mark.parametrize("name", sorted({*BORROWING} - {*ESSENTIAL} - WITHOUT_RISK))
def test_a_plain_fit_goes_on_without(name, monkeypatch):
    def gone(*args):
        raise AttributeError(name)

    expected, borrowed = weight_of_a_plain_fit(), BORROWING[name]
    for module in [m for n, m in sys.modules.items() if n.startswith("lightning_accum")]:
        for alias, value in list(vars(module).items()):
            if value is borrowed:
                monkeypatch.setattr(module, alias, gone)
    assert torch.equal(weight_of_a_fit(), expected)


@pytest.mark.parametrize("name", ESSENTIAL)
def test_what_a_fit_cannot_do_without_is_named(name, monkeypatch):
    monkeypatch.delattr(torch._C, "_current_graph_task_id")
    monkeypatch.delattr(torch, "_foreach_add_")
    package = "lightning" if name == "count_steps" else "torch"
    expected = rf"^{package} should have .* Found version \d.*, and .*: install an earlier version"
    with pytest.raises(RuntimeError, match=expected):
        ESSENTIAL[name]()


def test_without_transforms_and_modes(monkeypatch):
    monkeypatch.delattr(torch._C, "_functorch")
    monkeypatch.delattr(torch.utils, "_python_dispatch")
    found = runpy.run_path(of_torch.__file__)
    assert not found["is_traced"]()
    assert not found["in_dispatch_mode"]()
    assert found["values_under_vmap"](torch.ones(1)) is None


def test_torch_has_parallel_regions_where_it_was_built_with_openmp():
    openmp = "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()
    assert sys.platform != "linux" or (of_torch.parallel_region() is not None) == openmp
