"""A fit in which nothing is learned says so, whatever is logged and whatever the logger's level."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import RULE, Net, Probe, callback, loader, trainer, warning_of
from torch import nn

from lightning_accum import (
    STDP,
    Cell,
    CellSpec,
    Clamp,
    Hebb,
    InhibitorySTDP,
    Normalize,
    Term,
    WeightDependentSTDP,
    attach_updater,
)
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.callbacks._health import Health
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._parameter_record import ParameterRecord
from lightning_accum.nn import LIF, AdaptiveLIF, WinnerTakeAll
from lightning_accum.optim import UpdateOptimizer


def warnings_of(net: Net, tmp_path: Path, *callbacks: pl.Callback, **options: Any) -> list[str]:
    """What this package warns of in a fit of which nothing is logged."""
    batches = options.pop("batches", 3)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = trainer(tmp_path, *callbacks, **{"log_every_n_steps": 1000, **options})
        run.fit(net, loader(batches))
    return [str(w.message) for w in found if w.category is RuntimeWarning]


def warned(net: Net, tmp_path: Path, *callbacks: pl.Callback, **options: Any) -> str:
    """The one warning of a fit, when nothing else is said."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        (only,) = warnings_of(net, tmp_path, *callbacks, **options)
    finally:
        logger.setLevel(level)
    return only


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Any:
    """The lines of a fit's summary, which has no table, and the beginnings of warnings."""
    caplog.set_level(logging.INFO, "lightning_accum.callbacks")

    def fit(net: Net, *callbacks: pl.Callback, warns: str = "", **options: Any) -> list[str]:
        caplog.clear()
        found = warnings_of(net, tmp_path, *callbacks, **options)
        assert len(found) == bool(warns)
        assert all(warns in text for text in found)
        said = [m for m in caplog.messages if m.startswith("Local learning:")]
        assert len(said) <= 1
        return said[0].splitlines()[1:] if said else []

    return fit


# ---------------------------------------------------------------------- nothing recorded
@pytest.mark.parametrize("log", [True, False])
def test_a_model_in_evaluation_mode(log: bool, tmp_path: Path) -> None:
    net = Net()
    net.eval()
    text = warned(net, tmp_path, callback(log=log), max_epochs=3)
    assert "Found none in 3 training batches" in text
    assert "call `train()` on the model" in text


class ByMethod(Net):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.lif.reset()
        self.lif.forward(self.fc.forward(batch[0].transpose(0, 1)))


def test_methods_that_no_hook_sees(tmp_path: Path) -> None:
    text = warned(ByMethod(), tmp_path, callback(summary=False))
    assert "call them as `fc(x)`" in text


def test_again_in_another_fit(tmp_path: Path) -> None:
    use = callback()
    for _ in range(2):
        assert "Found none" in warned(ByMethod(), tmp_path, use)


def test_a_first_batch_that_raises_is_not_taken_for_a_rule_without_a_callback(
    tmp_path: Path,
) -> None:
    class Raising(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            self(batch[0].repeat(1, 2, 1))
            raise ZeroDivisionError

    run = trainer(tmp_path, callback())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError):
            run.fit(Raising(), loader(3))
    assert not [w for w in found if w.category is RuntimeWarning]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_fit_that_an_exception_stops(error: type[BaseException], tmp_path: Path) -> None:
    def stop(*_: Any) -> None:
        if run.fit_loop.batch_idx == 2:
            raise error("on purpose")

    net, use = Net(), callback()
    net.eval()
    run = trainer(tmp_path, use, Probe("on_train_batch_start", stop))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises((OSError, SystemExit)):
            run.fit(net, loader(4))
    (text,) = [str(w.message) for w in found if w.category is RuntimeWarning]
    assert "Found none in 2 training batches" in text
    assert not use.cell_trainer.tally("enc").watched


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("by_trainer", [True, False])
def test_a_fit_that_stops_before_its_first_update(
    error: type[BaseException], by_trainer: bool, tmp_path: Path
) -> None:
    def stop(*_: Any) -> None:
        if run.fit_loop.batch_idx == 11:
            raise error("on purpose")

    use = callback(apply_every_n_batches=None if by_trainer else 50)
    probe = Probe("on_train_batch_start", stop)
    run = trainer(tmp_path, use, probe, accumulate_grad_batches=50 if by_trainer else 1)
    net = Net()
    net.automatic_optimization = True
    text = "pending after 11 training batches, and none applied. The fit was stopped"
    with warning_of(text), pytest.raises((OSError, SystemExit)):
        run.fit(net, loader(14))


@pytest.mark.parametrize("every", [1, 3])
def test_an_exception_in_a_fit_that_learns_is_the_only_message(every: int, tmp_path: Path) -> None:
    def stop(*_: Any) -> None:
        if run.fit_loop.batch_idx == 2:
            raise OSError("on purpose")

    run = trainer(
        tmp_path, callback(apply_every_n_batches=every), Probe("on_train_batch_start", stop)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(OSError, match="on purpose"):
            run.fit(Net(), loader(4))


class Both(Net):
    """Has a second layer, which the training step need not use."""

    def __init__(self, optimizers: Any = None) -> None:
        super().__init__(optimizers)
        self.other = nn.Linear(6, 4, bias=False, dtype=torch.float64)
        self.end = LIF(4, tc_mem=10.0, time_dim=0)
        with torch.no_grad():
            self.other.weight.copy_(self.fc.weight)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        self.end.reset()
        self.end(self.other(batch[0].transpose(0, 1)))


def test_a_layer_that_rests_has_a_line(lines: Any) -> None:
    net = Both()
    net.other.eval()
    net.end.eval()
    use = callback(cells={"enc": CellSpec("fc", "lif"), "rests": CellSpec("other", "end")})
    (line,) = lines(net, use)
    assert line.startswith("Cell `rests` should record")


def test_a_layer_that_rests_from_the_second_epoch(lines: Any) -> None:
    class Tires(Net):
        def on_train_epoch_start(self) -> None:
            self.train(self.current_epoch < 1)

    (line,) = lines(Tires(), callback(), max_epochs=3)
    assert line.startswith("`enc` recorded nothing after its first epoch. Its modules are in eval")


# ---------------------------------------------------------------------- never applied
def own(net: Net) -> UpdateOptimizer:
    return UpdateOptimizer(net.fc.parameters())


class Own(Net):
    """Steps an optimizer of its own after some batches."""

    def __init__(self, *after: int) -> None:
        super().__init__()
        self.after = after

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        if batch_idx in self.after:
            self.optimizers().step()

    def configure_optimizers(self) -> Any:
        return own(self)


def test_an_optimizer_that_is_never_stepped(tmp_path: Path) -> None:
    text = warned(Own(), tmp_path, callback(), max_epochs=2)
    assert "pending after 3 training batches, and none applied" in text
    assert "The module's own UpdateOptimizer was not stepped" in text


def test_an_optimizer_that_stops_before_the_end(lines: Any) -> None:
    (line,) = lines(Own(0, 2), callback(), batches=5)
    assert line.startswith("The fit ended with changes of `enc.weight` pending")


def test_an_optimizer_that_steps_in_time(lines: Any) -> None:
    assert lines(Own(2, 4), callback(), batches=5) == []


def test_optimizers_set_up_in_the_midst_of_a_fit(lines: Any) -> None:
    class Again(Own):
        def on_train_epoch_start(self) -> None:
            if self.current_epoch == 1:
                self.trainer.strategy.setup_optimizers(self.trainer)

    net = Again(0, 1, 2)
    moved = Probe("on_train_epoch_end", lambda *_: net.fc.weight.detach().clone())
    assert lines(net, callback(), moved, max_epochs=3) == []
    first, second, third = moved.found
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_cell_that_is_registered_too_late(epochs: int, tmp_path: Path) -> None:
    rule = STDP(**RULE, time_dim=0)

    class Late(Both):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            if batch_idx == 0 and self.current_epoch == 0:
                rule.register_cell("enc", Cell(self.other, self.end))

    use = callback(rule, cells={"first": CellSpec("fc", "lif")})
    text = warned(Late(), tmp_path, use, max_epochs=epochs)
    assert "No optimizer of this fit holds the parameter" in text


# ---------------------------------------------------------------------- nothing moved
def test_neurons_that_never_fire(tmp_path: Path) -> None:
    net = Net()
    nn.init.zeros_(net.fc.weight)
    text = warned(net, tmp_path, callback(log=False))
    assert "Its neurons never fired: lower their threshold" in text


def test_an_input_that_is_always_zero(tmp_path: Path) -> None:
    class Dark(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            self(batch[0] * 0)

    assert "Its input was always 0" in warned(Dark(), tmp_path, callback())


def test_rates_that_are_lost_in_rounding(tmp_path: Path) -> None:
    class Narrow(Net):
        def __init__(self) -> None:
            super().__init__()
            self.fc.to(torch.bfloat16)
            self.fc.weight.data.clamp_(min=0.2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.bfloat16())

    rule = STDP(1e-6, -1e-6, time_dim=0)
    text = warned(Narrow(), tmp_path, callback(rule))
    assert "in bfloat16 change in steps of about" in text
    assert text.endswith("raise `lr_post` and `lr_pre`, or keep the weights in a wider dtype.")


def test_weights_that_a_constraint_holds(tmp_path: Path) -> None:
    net = Net()
    nn.init.constant_(net.fc.weight, 0.3)
    attach_updater(net.fc, "weight").register_constraint(Clamp(max=0.3))
    rule = STDP(0.1, 0.1, time_dim=0)  # potentiates only
    assert "All weights are at a limit" in warned(net, tmp_path, callback(rule))


@pytest.mark.parametrize("options", [{"rule": STDP(0.0, 0.0, time_dim=0)}, {"lr": 0.0}])
def test_rates_of_zero_are_meant(options: dict[str, Any], lines: Any) -> None:
    (line,) = lines(Net(), callback(**options))
    assert line.startswith("`enc.weight` is unchanged since the fit began, because ")


@pytest.mark.parametrize("options", [{"rule": STDP(1e-9, -1e-9, time_dim=0)}, {"lr": 1e-9}])
def test_a_fit_that_moves_next_to_nothing(options: dict[str, Any], lines: Any) -> None:
    (line,) = lines(Net(), callback(**options), max_epochs=4)
    assert line.startswith("The fit changed `enc.weight` by a share of ")
    assert ("raise `lr_post` and `lr_pre`, or `lr = 1e-09` of" in line) == ("lr" in options)


@pytest.mark.parametrize("constraint", [Normalize(1.0), Clamp(0.1, 0.3)], ids=repr)
def test_a_constraint_does_not_hide_that_a_fit_moves_next_to_nothing(
    constraint: Any, lines: Any, tmp_path: Path
) -> None:
    def net() -> Net:
        made = Net()
        attach_updater(made.fc, "weight").register_constraint(constraint)
        return made

    (line,) = lines(net(), callback(STDP(1e-9, -2e-9, time_dim=0)), max_epochs=4)
    assert line.startswith("The fit changed `enc.weight`, after its first update, by a share of ")
    text = warned(net(), tmp_path, callback(STDP(1e-18, -2e-18, time_dim=0)), max_epochs=4)
    assert "Found it unchanged since its first updates" in text
    assert "every update was smaller" in text
    (line,) = lines(net(), callback(lr=1e-4), max_epochs=4)
    assert line.startswith("An update changes `enc.weight` by a share of ")
    assert "with `lr = 0.0001` of the optimizer that applies updates" in line


def test_neurons_that_a_constraint_silences(tmp_path: Path) -> None:
    net = Net()
    attach_updater(net.fc, "weight").register_constraint(Normalize(1e-3))
    text = warned(net, tmp_path, callback(), max_epochs=4)
    assert "Found it unchanged since its first updates" in text
    assert "The neurons of `enc` fired at first, and in none of the last" in text


@pytest.mark.parametrize("batches", [1, 12])
def test_a_short_fit_with_small_rates_moves_enough(batches: int, lines: Any) -> None:
    rule = STDP(1e-5, -1e-5, time_dim=0)
    assert lines(Net(), callback(rule), max_epochs=1, batches=batches) == []


def test_what_is_dropped_has_one_warning(tmp_path: Path) -> None:
    class Poison(STDP):
        def terms(self, window: Any, h: Any) -> Any:
            return [Term(float("nan"), t.post, t.pre) for t in super().terms(window, h)]

    text = warned(Net(), tmp_path, callback(Poison(**RULE, time_dim=0)))
    assert "updates of `weight` of cell `enc`, which were dropped" in text
    assert "look at the activity, and at what the rule is given, such as a reward" in text


# ---------------------------------------------------------------------- learning, but ill
def test_weights_that_are_nan(lines: Any) -> None:
    net = Net()
    nn.init.constant_(net.fc.weight, float("nan"))
    assert lines(net, callback(), warns="which it held when the fit began") == []


def test_weights_that_grow_without_end(lines: Any) -> None:
    rule = STDP(2.0, 0.0, time_dim=0)
    line, *_ = lines(Net(), callback(rule), max_epochs=3)
    assert line.startswith("The norm of `enc.weight` grew")
    net = Net()
    attach_updater(net.fc, "weight").register_constraint(Clamp(0.0, 100.0))
    assert lines(net, callback(rule), max_epochs=3) == []


def test_neurons_that_fire_in_most_steps(lines: Any) -> None:
    net = Net(outputs=20)
    net.lif = LIF(20, v_threshold=1e-3, time_dim=0)
    nn.init.constant_(net.fc.weight, 0.4)
    line, *_ = lines(net, callback(), batches=8)
    assert line.startswith("The neurons of `enc` spike in ")


@pytest.mark.parametrize("compete", [True, False])
def test_neurons_all_alike(compete: bool, lines: Any) -> None:
    inhibition = WinnerTakeAll(steps=0) if compete else None
    net = Net(outputs=20)
    net.lif = AdaptiveLIF(20, v_threshold=0.1, time_dim=0, inhibition=inhibition)
    attach_updater(net.fc, "weight").register_constraint(Normalize(1.0, order=2))
    said = lines(net, callback(STDP(0.05, -0.01, time_dim=0)), max_epochs=6, batches=8)
    told = ["The neurons of `enc` have nearly the same weights" in line for line in said]
    assert any(told) is not compete


@pytest.mark.parametrize(("shape", "told"), [((1, 6), 0), ((6, 1), 0), ((3, 6), 1)])
def test_a_single_neuron_or_input_is_not_alike(shape: tuple[int, int], told: int) -> None:
    fc = nn.Linear(*shape[::-1], bias=False)
    updater = attach_updater(fc, "weight")
    nn.init.constant_(fc.weight, 0.5)
    assert ParameterRecord(updater, "weight").weights(updater, {}).shared == told


@pytest.mark.parametrize(("groups", "told"), [(1, 1), (2, 0)])
def test_filters_of_a_convolution_that_are_alike(groups: int, told: int) -> None:
    conv = nn.Conv2d(2, 4, 3, groups=groups, bias=False)
    updater = attach_updater(conv, "weight")
    with torch.no_grad():
        conv.weight.copy_(torch.rand(conv.weight.shape[1:]) + 1e-4 * torch.rand(4, 1, 1, 1))
    shared = ParameterRecord(updater, "weight").weights(updater, {}).shared
    assert shared == pytest.approx(told, abs=1e-4)


@pytest.mark.parametrize(
    ("rule", "began", "told"),
    [
        (WeightDependentSTDP(0.01, -0.01, time_dim=0), 0.45, None),
        (WeightDependentSTDP(0.01, -0.01, w_max=100.0, time_dim=0), 0.45, "smaller `w_max`"),
        (WeightDependentSTDP(1e-4, -1e-4, w_max=0.2, time_dim=0), 0.45, "from 0 to 0.2"),
        (InhibitorySTDP(0.01, time_dim=0), 0.45, None),
        (InhibitorySTDP(0.001, time_dim=0), -0.45, "assumes, at least 0: begin with positive"),
    ],
)
def test_weights_outside_the_range_of_a_rule(
    rule: Any, began: float, told: str | None, lines: Any
) -> None:
    net = Net()
    net.lif = LIF(4, v_threshold=-0.5, v_reset=-1.0, v_rest=-1.0, time_dim=0)
    with torch.no_grad():
        net.fc.weight.mul_(began / 0.45)
    said = [line for line in lines(net, callback(rule)) if "the rule assumes" in line]
    assert len(said) == (told is not None)
    assert all(told in line for line in said if told)


@pytest.mark.parametrize(("alive", "told"), [(2, True), (7, False)])
def test_neurons_that_fall_silent_in_a_fit_without_logging_steps(
    alive: int, told: bool, lines: Any
) -> None:
    class Dies(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.lif.reset()
            self.lif(self.fc(batch[0].transpose(0, 1)) * (self.global_step < alive))

    said = lines(Dies(), callback(log=False), batches=12)
    assert [line.split(",")[0] for line in said] == ["The neurons of `enc` fired at first"] * told


@pytest.mark.parametrize("carry", [True, False])
def test_windows_of_one_step(carry: bool, lines: Any) -> None:
    class Frames(Net):
        """Sees one step of each sample in a batch."""

        def __init__(self) -> None:
            super().__init__()
            self.lif = LIF(4, tc_mem=10.0)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.lif(self.fc(batch[0][:, batch_idx]))

    use = CellTrainerCallback(STDP(**RULE), {"enc": CellSpec("fc", "lif")}, carry=carry)
    said = lines(Frames(), use, batches=7)
    assert [line.split(" was")[0] for line in said] == ([] if carry else ["Every window of `enc`"])
    rule = Hebb(0.01)  # has no traces
    use = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")})
    assert lines(Frames(), use, batches=7) == []


# ---------------------------------------------------------------------- when, and at what cost
def test_an_epoch_without_an_end_is_not_waited_for() -> None:
    net = Net()
    host = CellHost(STDP(**RULE, time_dim=0), {"enc": CellSpec("fc", "lif")})
    host.bind(net)
    health = Health(host)
    for _ in range(999):
        health.batch_ended()
        health.look_if_due((), "callback")
    health.batch_ended()
    with pytest.warns(RuntimeWarning, match="Found none in 1000 training batches"):
        health.look_if_due((), "callback")
    assert list(health.warned) == ["enc"]
    health.epoch_ended((), "callback")  # says it no more
    assert health.fit_ended((), "callback") == []


def test_few_of_many_weights_are_kept_and_any_change_is_seen() -> None:
    fc = nn.Linear(400, 500, bias=False)
    updater = attach_updater(fc, "weight")
    record = ParameterRecord(updater, "weight")
    assert record.kept <= 1 << 16
    assert record.weights(updater, {}).moved == 0
    with torch.no_grad():
        fc.weight[0, 1] += 1e-7  # between two that are kept
    assert 0 < (record.weights(updater, {}).moved or 0) < 1e-4
    with torch.no_grad():
        fc.weight[:250] += 0.1
    assert record.weights(updater, {}).moved == pytest.approx(0.5, abs=0.01)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    use = callback()
    probe = Probe("on_train_end", lambda *_: use.cell_trainer.tally("enc").watched)
    trainer(tmp_path, probe, use).fit(Net(), loader(2))
    assert probe.found == [True]
    assert not use.cell_trainer.tally("enc").watched
    assert use._fit is None


class WithReadout(Net):
    """Has a parameter that no cell trains."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(2, 2)


@pytest.mark.parametrize("path", ["fc.weight", "out.bias"])
def test_nan_that_a_parameter_held_before_the_fit_is_told_by_name(
    path: str, tmp_path: Path
) -> None:
    net = WithReadout()
    with torch.no_grad():
        net.get_parameter(path)[0] = torch.nan
    said = warned(net, tmp_path, callback())
    assert "Found NaN" in said
    assert ("`enc.weight`" if path == "fc.weight" else "`out.bias`, which no cell trains") in said
