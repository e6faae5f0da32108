"""In every precision of a Trainer, what was computed in it is summed in float32 or wider."""

import copy
from contextlib import nullcontext

import callback_helpers as cb
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from test_fabric import Stepping
from test_optimization_modes import AutomaticHead, AutomaticOwnOptimizer, OwnOptimizer

import lightning_accum as la
from lightning_accum.nn import SurrogateLIF

TRUE = {"32-true": torch.float32, "16-true": torch.float16, "bf16-true": torch.bfloat16}
MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class Single(cb.Net):
    def __init__(self):
        super().__init__()
        self.float()

    def forward(self, x):
        return super().forward(x.to(self.fc.weight.dtype))


class WithHead(Single, AutomaticHead):
    """A head on the counts is trained by its gradient, which a scaler may scale."""


class HeadAndOwn(WithHead):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self):
        return [super().configure_optimizers()[0], OwnOptimizer.configure_optimizers(self)]

    def training_step(self, batch, batch_idx):
        backprop, local = self.optimizers()
        backprop.zero_grad()
        self.manual_backward(self.losses(batch)[0])
        backprop.step()
        local.step()


class Own(Single, OwnOptimizer):
    """Steps updates by an optimizer of its own, which no scaler may scale."""


class AutomaticOwn(Single, AutomaticOwnOptimizer):
    """Has Lightning step it."""


def by_hand(net, batches, context):
    """The weight after every batch, spikes in the run's precision and sums in float64."""
    net, weights = copy.deepcopy(net), []
    for x, *_ in batches:
        with context:
            pos, neg = cb.parts_by_hand(net, x)
        with torch.no_grad():
            net.fc.weight.copy_((net.fc.weight.double() + pos - neg).to(net.fc.weight.dtype))
        weights.append(net.fc.weight.detach().clone())
    return weights


@pytest.mark.parametrize("model", [Single, WithHead, Own, AutomaticOwn, HeadAndOwn])
@pytest.mark.parametrize("precision", [*TRUE, *MIXED])
def test_spikes_are_narrow_and_sums_are_not(precision, model, tmp_path):
    net, data = model(), cb.loader(4, last=3)
    before, options = copy.deepcopy(net), {"precision": precision}
    context = nullcontext()
    if precision in MIXED:
        context = torch.autocast("cpu", MIXED[precision])
    if precision == "16-mixed":  # asked for by name, Lightning does it on a GPU alone
        scaler = torch.amp.GradScaler("cpu")
        options = {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)]}
    kept = cb.Probe("on_train_batch_end", lambda _, net: copy.deepcopy(net.fc.weight.detach()))
    run = cb.trainer(tmp_path, cb.callback(), kept, **options)
    run.fit(net, data)
    assert run.global_step == (8 if model is HeadAndOwn else 4)
    dtype = TRUE.get(precision, torch.float32)
    expected = by_hand(before.to(dtype), list(data), context)
    assert len(kept.found) == 4
    for found, wanted in zip(kept.found, expected, strict=True):
        assert found.dtype == wanted.dtype == dtype
        # one rounding of the weight in a batch
        torch.testing.assert_close(found, wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
    assert not torch.equal(expected[-1], before.fc.weight)
    if issubclass(model, WithHead):
        assert not torch.equal(net.readouts[0].weight, before.readouts[0].weight)


class Hidden(AutomaticHead):
    def __init__(self):
        super().__init__()
        self.fc.requires_grad_(True)
        self.lif = SurrogateLIF(cb.OUTPUTS, gradient="step", time_dim=0)


@pytest.mark.parametrize(("model", "rule", "error", "message"), [
    (Hidden, la.OTTT(0.1), ValueError, "`precision`.*`OTTT`.*'bf16-mixed'"),
    (Stepping, None, RuntimeError, "without a gradient scaler.*'bf16-mixed'"),
])  # fmt: skip
def test_a_scaler_is_refused(model, rule, error, message, tmp_path):
    scaled = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    with pytest.raises(error, match=message):
        cb.trainer(tmp_path, cb.callback(rule), plugins=[scaled]).fit(model(), cb.loader(2))
