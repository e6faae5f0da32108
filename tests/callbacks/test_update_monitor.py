"""What UpdateMonitor logs is what the optimizers did, and nothing else."""

import gc
import math
from contextlib import suppress
from itertools import pairwise

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import Net, Probe, callback, in_order, loader, scalars, trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.plugins import MixedPrecision
from sklearn.datasets import load_digits
from test_fabric import Stepping
from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.data import DataLoader

from lightning_accum.callbacks import UpdateMonitor
from lightning_accum.callbacks.update_monitor import Copies

STATISTICS = ("update_norm", "weight_norm", "ratio", "zero_share", "nonfinite")


def data(batches=8):
    return list(torch.randn(batches, 4, 3, generator=torch.Generator().manual_seed(3)).double())


def adamw(params):
    return AdamW(params, lr=0.01)


def sgd(params):
    return SGD(params, lr=0.5)


class Model(pl.LightningModule):
    """Two layers, the second with a parameter that no gradient reaches; keeps all its weights."""

    def __init__(self, optimizer=adamw, step=None, manual=False):
        super().__init__()
        self.automatic_optimization = not manual
        self.optimizer, self.step = optimizer, step
        generator = torch.Generator().manual_seed(0)
        self.enc = nn.Linear(3, 5, dtype=torch.float64)
        self.dec = nn.Linear(5, 2, dtype=torch.float64)
        self.dec.register_parameter("idle", nn.Parameter(torch.ones(4, dtype=torch.float64)))
        with torch.no_grad():
            for param in self.parameters():
                param.copy_(torch.randn(param.shape, generator=generator).double())

    def on_fit_start(self):
        self.seen = [weights(self)]

    def on_train_batch_end(self, *_):
        self.seen.append(weights(self))

    def loss(self, x):
        return self.dec(torch.relu(self.enc(x))).square().mean()

    def training_step(self, x, batch_idx):
        return self.loss(x) if self.step is None else self.step(self, x, batch_idx)

    def configure_optimizers(self):
        return self.optimizer(self.parameters())


class Two(Model):
    """Manual optimization: one optimizer for each layer, each with a rhythm of its own."""

    def __init__(self, every=(1, 1), offset=(0, 0)):
        super().__init__(manual=True)
        self.every, self.offset = every, offset

    def training_step(self, x, batch_idx):
        self.manual_backward(self.loss(x))
        for i, optimizer in enumerate(self.optimizers()):
            if (batch_idx + 1 - self.offset[i]) % self.every[i] == 0:
                optimizer.step()
                optimizer.zero_grad()

    def configure_optimizers(self):
        return SGD(self.enc.parameters(), lr=0.1, momentum=0.9), AdamW(self.dec.parameters())


def weights(model):
    return {name: param.detach().clone() for name, param in model.named_parameters()}


def expected_of(before, after):
    """The five statistics of a change, written out; those of several weights as of one vector."""
    old, new = (torch.cat([w.reshape(-1) for w in side.values()]) for side in (before, after))
    delta = new - old
    return {
        "update_norm": float(delta.square().sum().sqrt()),
        "weight_norm": float(new.square().sum().sqrt()),
        "ratio": float(delta.square().sum().sqrt() / old.square().sum().sqrt()),
        "zero_share": sum(float(d) == 0 for d in delta) / len(delta),
        "nonfinite": 0.0,
    }


def of_steps(seen, steps, *names):
    """The statistics of the named weights in these steps, by Lightning's number of each."""
    picked = [{name: weights[name] for name in names} for weights in seen]
    return {i - 1: expected_of(picked[i - 1], picked[i]) for i in steps}


def fit(model, path, *callbacks, batches=8, **options):
    """What stands in the event files after a fit, by tag and step."""
    run = trainer(path, *callbacks, logger=TensorBoardLogger(path, name=""), **options)
    run.fit(model, DataLoader(data(batches), batch_size=None))
    return scalars(run)


def tag_of(name, statistic):
    if statistic == "ratio" and not name.endswith((".bias", ".biases", ".idle", "scale")):
        return f"change_ratio/{name}"
    return f"updates/{name}/{statistic}"


def assert_logged(found, expected):
    tags = {
        tag_of(name, statistic): {step: values[statistic] for step, values in steps.items()}
        for name, steps in expected.items()
        for statistic in STATISTICS
    }
    assert set(found) == set(tags)
    for tag, values in tags.items():
        assert found[tag] == pytest.approx(values, rel=1e-5), tag


@pytest.fixture
def tables(caplog):
    """Gives the tables that were logged, as lines."""
    name = "lightning_accum.callbacks"
    caplog.set_level("INFO", name)
    return lambda: [r.getMessage().splitlines() for r in caplog.records if r.name == name]


@pytest.mark.parametrize(
    ("log_every", "every", "clip"),
    [(1, 1, None), (3, 1, 0.01), (8, 1, None), (1, 3, None), (2, 3, None)],
)
def test_automatic_optimization(log_every, every, clip, tmp_path):
    """Of three groups of 3, 3 and 2 batches, which Lightning counts as three steps, too."""
    model = Model(adamw if clip is None else sgd)
    options = {"log_every_n_steps": log_every, "accumulate_grad_batches": every}
    options["gradient_clip_val"] = clip
    found = fit(model, tmp_path, UpdateMonitor("parameter"), **options)
    seen = [model.seen[i] for i in sorted({*range(0, 9, every), 8})]
    steps = range(log_every, len(seen), log_every)
    assert_logged(found, {name: of_steps(seen, steps, name) for name in seen[0]})
    assert set(found["updates/dec.idle/zero_share"].values()) == {1.0}


def test_by_module(tmp_path):
    class Loose(Model):
        """A parameter of the module's own stands for itself."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3, dtype=torch.float64))

        def loss(self, x):
            return super().loss(x * self.scale)

    model = Loose()
    found = fit(model, tmp_path, UpdateMonitor(by="module"), log_every_n_steps=4)

    groups = {
        "enc": ["enc.weight"], "enc.biases": ["enc.bias"], "scale": ["scale"],
        "dec": ["dec.weight"], "dec.biases": ["dec.bias", "dec.idle"],
    }  # fmt: skip
    assert_logged(found, {of: of_steps(model.seen, (4, 8), *names) for of, names in groups.items()})


def test_modules_are_those_where_a_network_divides_and_a_table_ends_the_fit(tmp_path, tables):
    class Nested(Model):
        """The network is an attribute; its rates are one that is small, and one that is large."""

        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.ModuleDict({"enc": self.enc, "dec": self.dec}))
            del self.enc, self.dec

        def loss(self, x):
            layers = self.net[0]
            return layers["dec"](torch.relu(layers["enc"](x))).square().mean()

        def configure_optimizers(self):
            layers = self.net[0]
            small = {"params": layers["enc"].parameters(), "lr": 1e-5}
            return AdamW([small, {"params": layers["dec"].parameters()}], lr=0.1)

    found = fit(Nested(), tmp_path, UpdateMonitor(), batches=11, log_every_n_steps=1)
    fit(Nested(), tmp_path / "quiet", UpdateMonitor(summary=False))
    fit(Nested(), tmp_path / "short", UpdateMonitor(), batches=9)
    lines, short = tables()
    assert sum("too few steps to tell" in line for line in short) == 2
    assert short[-1] == "Train for 10 steps or more, so that this table can tell."
    rows = []
    for name, verdict in ("enc", "too small"), ("dec", "too large"):
        ratios = [*found[f"change_ratio/net.0.{name}"].values()]
        path, most = sum(ratios), max(ratios)
        rows.append(f"net.0.{name}   {path / 11:.1e}    {most:.1e}  {path:.1e}    {verdict}")
    assert lines == [
        "Updates relative to the weights, in 11 steps:",
        "weights of  each step  largest  all steps  learning rate",
        *rows,
        "Lower the learning rate of `net.0.dec`, to a tenth for example. Raise the learning rate of"
        " `net.0.enc`, about 1,000 times, unless the weights are pretrained.",
    ]


class Held(pl.LightningModule):
    """Holds modules, whose parameters all shrink."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)

    def training_step(self, x, batch_idx):
        return sum(p.square().sum() for p in self.parameters() if p.requires_grad)

    def configure_optimizers(self):
        return SGD(self.parameters(), lr=0.001)


def parts(**modules):
    """A module with these, such as a block with its layers."""
    module = nn.Module()
    for name, each in modules.items():
        setattr(module, name, each)
    return module


class Block(nn.Module):
    """A block of a network, in which heads are repeated."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(parts(q=nn.Linear(4, 4), k=nn.Linear(4, 4)) for _ in range(2))
        self.ff = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.norm = nn.LayerNorm(4)


def encoder(layers):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, layers)


def resnet():
    def stage():
        return nn.Sequential(Block(), Block())

    norm = nn.BatchNorm2d(4)
    ends = {"conv1": nn.Conv2d(3, 4, 7), "bn1": norm, "fc": nn.Linear(4, 10)}
    return parts(**ends, layer1=stage(), layer2=stage())


def hugging_face(layers):
    """As a language model there: nested, with a loose parameter, and a head that shares weights."""
    embed = nn.Embedding(9, 4)
    ends = {"wte": embed, "wpe": nn.Embedding(9, 4), "ln_f": nn.LayerNorm(4)}
    body = parts(**ends, h=nn.ModuleList(Block() for _ in range(layers)))
    body.register_parameter("prefix", nn.Parameter(torch.ones(2, 4)))
    head = nn.Linear(4, 9, bias=False)
    head.weight = embed.weight
    return parts(transformer=body, lm_head=head)


def mlp(*sizes):
    layers = [each for a, b in pairwise(sizes) for each in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers)


def piece():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


@pytest.mark.parametrize(("modules", "rows"), [
    ({"embed": nn.Embedding(5, 8), "encoder": encoder(2), "head": nn.Linear(8, 2)},
     "embed encoder.layers.0 encoder.layers.1 head"),
    ({"encoder": encoder(1), "head": nn.Linear(8, 2)}, "encoder head"),
    ({"net": encoder(12)}, " ".join(f"net.layers.{i}" for i in range(12))),
    ({"net": resnet()}, "net.conv1 net.layer1.0 net.layer1.1 net.layer2.0 net.layer2.1 net.fc"),
    ({"model": hugging_face(2)}, "model.transformer.prefix model.transformer.wte"
     " model.transformer.wpe model.transformer.h.0 model.transformer.h.1"),
    ({"encoder": mlp(3, 4, 4), "head": nn.Linear(4, 2)}, "encoder head"),
    ({"net": mlp(3, 4, 2)}, "net.0 net.2"),
    ({"features": nn.Sequential(piece(), piece()), "head": nn.Linear(4, 2)},
     "features.0 features.1 head"),
    ({"net": nn.Sequential(piece(), nn.Sequential(nn.Linear(4, 2)))}, "net.0 net.1"),
])  # fmt: skip
def test_repeated_blocks_are_rows_of_their_own(modules, rows, tmp_path, tables):
    found = fit(Held(**modules), tmp_path, UpdateMonitor(), batches=1)
    ((_, _, *table, _),) = tables()
    assert {row.split()[0] for row in table} == set(rows.split())
    assert {tag.removeprefix("change_ratio/") for tag in found if "ratio/" in tag} == {
        row.split()[0] for row in table
    }


def test_a_block_that_does_not_learn_is_told_by_its_name(tmp_path, tables):
    model = Held(encoder=encoder(3), head=nn.Linear(8, 2))
    model.encoder.layers[1].requires_grad_(False)
    fit(model, tmp_path, UpdateMonitor(), batches=11)
    ((_, _, *table, last),) = tables()
    assert {row.split()[0]: row.split("  ")[-1] for row in table} == {
        "encoder.layers.0": "usual", "encoder.layers.1": "unchanged",
        "encoder.layers.2": "usual", "head": "usual",
    }  # fmt: skip
    assert "`requires_grad=False`, of `encoder.layers.1`" in last


class Images(pl.LightningModule):
    def __init__(self, optimizer, lr, first=1):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.head = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3), nn.Linear(64, 10)
        self.head.weight.data.mul_(first)
        self.optimizer, self.lr, self.losses = optimizer, lr, []

    def training_step(self, batch, batch_idx):
        x = torch.relu(self.b(torch.relu(self.a(batch[0]))))
        y = self.head(nn.functional.max_pool2d(x, 2).flatten(1))
        loss = nn.functional.cross_entropy(y, batch[1])
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        return self.optimizer(self.parameters(), lr=self.lr)


@pytest.mark.parametrize(("optimizer", "lr", "verdict", "advice"), [
    (Adam, 1e-5, "too small", "Raise"),
    (Adam, 1e-3, "usual", "The weights moved within the usual range. A larger"),
    (Adam, 1e-1, "too large", "Lower"),
    (SGD, 1e-3, "too small", "Raise"),
    (Adam, 2e-2, "large at times", "If the loss jumps"),
    (SGD, 1e-1, "usual", "The weights moved"),
])  # fmt: skip
def test_the_verdict_is_that_of_the_loss(optimizer, lr, verdict, advice, tables):
    """Also with Lightning's own number of steps between two logging steps."""
    x, y = map(torch.as_tensor, load_digits(return_X_y=True))
    batches = zip((x.float() / 16).view(-1, 1, 8, 8).split(32), y.split(32), strict=True)
    model = Images(optimizer, lr)
    run = trainer(None, UpdateMonitor(), max_epochs=3, log_every_n_steps=50)
    run.fit(model, DataLoader([*batches], batch_size=None))
    ((_, _, *rows, last),) = tables()
    assert [row.split("  ")[-1] for row in rows] == [verdict] * 3
    assert last.startswith(advice)
    loss = torch.stack(model.losses[-20:]).mean()
    learns = verdict in ("usual", "large at times")
    assert (loss < 1) == learns or (verdict == "too large" and loss > 0.5)


@pytest.mark.parametrize(("first", "lr", "verdict"), [
    (0.0, 1e-3, "usual"),
    (math.nan, 1e-3, "too large"),
    (1.0, 0.0, "unchanged"),
])  # fmt: skip
def test_weights_may_begin_at_zero_but_not_be_nan_or_stay(first, lr, verdict, tables):
    data = [(torch.rand(8, 1, 8, 8), torch.arange(8))] * 30
    trainer(None, UpdateMonitor()).fit(Images(Adam, lr, first), DataLoader(data, batch_size=None))
    ((*_, row, last),) = tables()
    assert ("which did not change" in last) == (lr == 0)
    assert row.startswith("head")
    assert row.endswith(verdict)


@pytest.mark.parametrize("last", [False, True])
def test_changes_that_became_gradients_are_measured_in_any_order(last, tmp_path):
    learner, monitor = callback(summary=False), UpdateMonitor(summary=False)
    note = Probe("on_train_batch_start", lambda _, model: model.fc.weight.detach().clone())
    run, model = trainer(tmp_path, note, *in_order(last, learner, monitor)), Stepping()
    run.fit(model, loader(4))
    change = float((model.fc.weight.detach() - note.found[-1]).norm() / note.found[-1].norm())
    assert float(run.callback_metrics["change_ratio/fc"]) == pytest.approx(change) != 0


@pytest.mark.parametrize(("patterns", "names"), [
    (["*.weight"], {"enc.weight", "dec.weight"}),
    ("enc.*", {"enc.weight", "enc.bias"}),
    (["enc.bias", "dec.[bi]*"], {"enc.bias", "dec.bias", "dec.idle"}),
])  # fmt: skip
def test_patterns(patterns, names, tmp_path):
    found = fit(Model(), tmp_path, UpdateMonitor("parameter", patterns), log_every_n_steps=8)
    assert {tag.split("/")[1] for tag in found} == names


@pytest.mark.parametrize(("options", "words"), [
    ({"by": "layer"}, r"one of \('parameter', 'module'\)\. Found `by = 'layer'`"),
    ({"params": ["enc.*", "encoder.*"]}, r"which has \['enc\.weight'.* Found `params = 'encoder\."),
])  # fmt: skip
def test_a_group_or_a_pattern_that_cannot_be(options, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        fit(Model(), tmp_path, UpdateMonitor(**options))


@pytest.mark.parametrize(("every", "offset", "log_every", "at"), [
    ((1, 1), (0, 0), 4, ({4: 4, 8: 8}, {4: 4, 8: 8})),
    ((1, 2), (0, 0), 4, ({4: 4, 8: 8}, {4: 4, 8: 8})),
    # They do not step in the batches that are logged: their last step before is meant.
    ((1, 2), (0, 1), 4, ({4: 4, 8: 8}, {4: 3, 8: 7})),
    ((1, 2), (0, 1), 2, ({n: n for n in (2, 4, 6, 8)}, {2: 1, 4: 3, 6: 5, 8: 7})),
    ((1, 5), (0, 2), 4, ({4: 4, 8: 8}, {4: 2, 8: 7})),
    ((1, 3), (0, 1), 4, ({4: 4, 8: 8}, {4: 4, 8: 7})),
    ((2, 3), (1, 0), 8, ({8: 7}, {8: 6})),
    ((1, 100), (0, 0), 4, ({4: 4, 8: 8}, {})),  # one that never steps has no values
])  # fmt: skip
def test_several_optimizers(every, offset, log_every, at, tmp_path):
    model = Two(every, offset)
    found = fit(model, tmp_path, UpdateMonitor("parameter"), log_every_n_steps=log_every)
    expected = {}
    for name in model.seen[0]:
        if logged := at[name.startswith("dec")]:
            values = of_steps(model.seen, logged.values(), name)
            expected[name] = {log - 1: values[i - 1] for log, i in logged.items()}
    assert_logged(found, expected)


def test_after_irregular_pauses_there_are_no_values_rather_than_old_ones(tmp_path):
    def twice_in_a_row(module, x, batch_idx):
        module.manual_backward(module.loss(x))
        if batch_idx < 2:
            module.optimizers().step()

    model = Model(sgd, twice_in_a_row, manual=True)
    assert fit(model, tmp_path, UpdateMonitor(), log_every_n_steps=4) == {}
    assert fit(Model(), tmp_path / "never", UpdateMonitor(), log_every_n_steps=0) == {}


class Scaled(Model):
    """Weights are scaled before, in and after the step; the optimizer adds 0.5 to each."""

    in_step = False

    def on_train_batch_start(self, batch, batch_idx):
        self.enc.weight.data.mul_(2)

    def training_step(self, x, batch_idx):
        if self.in_step:  # in the optimizer's closure, as SwAV normalizes its prototypes
            with torch.no_grad():
                self.enc.weight.copy_(self.enc.weight * 0.25)
        return -self.enc.weight.sum()

    def on_train_batch_end(self, *_):
        self.enc.weight.data.mul_(2)


class ScaledInStep(Scaled):
    in_step = True


class Perturbing(SGD):
    """Looks at gradients in two places, as sharpness-aware minimization does."""

    def __init__(self, params, away, **options):
        super().__init__(params, **options)
        self.away = away

    @torch.no_grad()
    def step(self, closure=None):
        params = [param for group in self.param_groups for param in group["params"]]
        for shift in (self.away, -self.away - 0.5):
            for param in params:
                param.add_(shift)
            with torch.enable_grad():
                loss = closure()
        for param in params:
            param.sub_(0.5)
        return loss


def twice(module, x, batch_idx):
    optimizer = module.optimizers()
    for factor in (0.5, 1.0):
        optimizer.zero_grad()
        module.manual_backward(-factor * module.enc.weight.sum())
        optimizer.step()


def writes(module, x, batch_idx):
    with torch.no_grad():
        module.enc.weight.copy_(module.enc.weight * 1.0)
    return module.loss(x)


def perturbed(away, step=None):
    """It moves weights before the first call: the copy is older than that."""
    return lambda: Model(lambda params: Perturbing(params, away, lr=0.5), step)


@pytest.mark.parametrize(("make", "norm"), [
    (lambda: Model(sgd, twice, manual=True), 0.5),  # of several steps in a batch the last counts
    (lambda: Scaled(sgd), 0.5),
    (lambda: ScaledInStep(sgd), 0.5),
    (perturbed(7.0), 1.0),
    # weights are written to in both calls: of those, the first alone is left out
    (perturbed(0.0, writes), 1.0),
])  # fmt: skip
def test_only_what_the_optimizer_does_is_counted(make, norm, tmp_path):
    monitor = UpdateMonitor("parameter", "enc.weight")
    found = fit(make(), tmp_path, monitor, batches=2, log_every_n_steps=1)
    expected = dict.fromkeys(range(2), norm * 15**0.5)
    assert found["updates/enc.weight/update_norm"] == pytest.approx(expected)


# Torch 2.8 warns of what its own LBFGS does.
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True:UserWarning")
def test_an_optimizer_that_calls_its_closure_many_times(tmp_path):
    """LBFGS moves the weights between the calls: all of it is its own."""

    model = Model(lambda params: torch.optim.LBFGS(params, max_iter=4))
    found = fit(model, tmp_path, UpdateMonitor("module", "enc.weight"), log_every_n_steps=4)
    assert_logged(found, {"enc": of_steps(model.seen, (4, 8), "enc.weight")})


def test_a_step_that_the_gradient_scaler_skips_has_no_values(tmp_path):
    def step(module, x, batch_idx):
        module.log("scale", scaler.get_scale())
        return module.loss(x.float()) * (float("inf") if batch_idx in (0, 1, 4) else 1.0)

    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    plugins = [MixedPrecision("16-mixed", "cpu", scaler)]
    monitor = UpdateMonitor("parameter", ["enc.weight"])
    found = fit(Model(step=step).float(), tmp_path, monitor, plugins=plugins, batches=4)
    assert found.pop("scale") == {0: 8.0, 1: 4.0, 2: 2.0, 3: 2.0}
    assert set(found) == {tag_of("enc.weight", name) for name in STATISTICS}
    for tag, values in found.items():
        assert set(values) == {2, 3}, tag
    assert all(v > 0 for v in found["updates/enc.weight/update_norm"].values())


def test_nonfinite_updates_are_counted(tmp_path):
    def step(module, x, batch_idx):
        return module.enc.bias[:2].sum() * float("nan") + module.enc.weight.sum()

    found = fit(Model(sgd, step), tmp_path, UpdateMonitor("parameter"), batches=1)
    assert found["updates/enc.bias/nonfinite"] == {0: 2.0}
    assert found["updates/enc.weight/nonfinite"] == {0: 0.0}


@pytest.mark.parametrize("first", [True, False])
def test_beside_a_cell_trainer(first, tmp_path, tables):
    """It sees the optimizer that the other adds, from either side; no rule is in its table."""
    ours, monitor = callback(summary=False), UpdateMonitor("parameter")
    order, board = in_order(first, monitor, ours), TensorBoardLogger(tmp_path, name="")
    run = trainer(tmp_path, *order, logger=board, log_every_n_steps=2)
    run.fit(Net(), loader(8))
    found = scalars(run)
    for statistic in STATISTICS:
        values = found[tag_of("fc.weight", statistic)]
        assert values == pytest.approx(found[f"updates/enc/weight/{statistic}"])
        assert set(values) == {1, 3, 5, 7}
    assert not tables()


@pytest.mark.parametrize("first", [True, False])
def test_a_step_at_the_end_of_a_stopped_epoch(first, tmp_path):
    """It belongs to no batch, and nothing may be logged then."""
    ours, monitor = callback(apply_every_n_batches=4), UpdateMonitor("parameter")

    def stop(run, _):
        run.should_stop = run.fit_loop.epoch_loop.batch_idx == 5

    stops, order = Probe("on_train_batch_start", stop), in_order(first, monitor, ours)
    run = trainer(tmp_path, stops, *order, max_epochs=3)
    run.fit(Net(), loader(8))
    assert run.fit_loop.epoch_loop.batch_idx == 5


def test_only_logging_steps_and_steps_1_2_4_8_copy_weights(tmp_path):
    """Counts the copies that exist while a gradient is made, in the optimizer's closure."""
    alive = []

    def count(*_):
        alive.append(sum(type(thing) is Copies for thing in gc.get_objects()))

    gc.collect()
    monitor = UpdateMonitor("parameter")
    fit(Model(), tmp_path, monitor, Probe("on_before_optimizer_step", count), log_every_n_steps=4)
    assert alive == [1, 1, 0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("prog_bar", [True, False])
def test_values_stay_out_of_what_other_callbacks_read(prog_bar, tmp_path):
    """Ratios stand in the progress bar where they are wanted."""
    found, runs, ratios = {}, [], {"change_ratio/enc", "change_ratio/dec"} if prog_bar else set()

    def look(run, _):
        assert set(run.progress_bar_metrics) == ratios
        runs.append(set(run.callback_metrics))

    for inside in (True, False):
        monitor = UpdateMonitor(prog_bar=prog_bar, callback_metrics=inside)
        probe = Probe("on_train_end", look)
        found[inside] = fit(Model(), tmp_path / str(inside), monitor, probe, log_every_n_steps=4)
    assert found[True] == found[False]
    assert runs == [set(found[True]), ratios]


# ---------------------------------------------------------------------------- survival
def hooks():
    return len(_global_optimizer_pre_hooks) + len(_global_optimizer_post_hooks)


def test_optimizers_that_are_set_up_anew_are_measured(tmp_path):
    class Anew(Model):
        def on_train_epoch_start(self):
            if self.current_epoch:
                self.trainer.strategy.setup_optimizers(self.trainer)

    found = fit(Anew(), tmp_path, UpdateMonitor("parameter"), max_epochs=2, batches=2)
    assert list(found["updates/enc.weight/update_norm"]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "hook", ["on_train_start", "on_before_optimizer_step", "on_train_batch_end", "on_train_end"]
)
def test_hooks_are_gone_after_an_exception(hook, tmp_path):
    def fail(*_):
        raise OSError("on purpose")

    before, monitor = hooks(), UpdateMonitor("parameter")
    with pytest.raises(OSError, match="on purpose"):
        fit(Model(), tmp_path, monitor, Probe(hook, fail))
    assert hooks() == before
    model = Model()
    found = fit(model, tmp_path / "again", monitor, log_every_n_steps=8)
    assert_logged(found, {name: of_steps(model.seen, [8], name) for name in model.seen[0]})


def test_a_step_that_raised_is_forgotten(tmp_path, tables):
    """What it began, the second step, does not end with the third, which is not measured."""

    def step(module, x, batch_idx):
        def closure():
            module.manual_backward(module.enc.weight.sum())
            if batch_idx == 1:
                module.enc.weight.data.mul_(1e3)
                raise OSError("on purpose")

        with suppress(OSError):
            module.optimizers().step(closure)

    monitor = UpdateMonitor("parameter", "enc.weight")
    fit(Model(sgd, step, manual=True), tmp_path, monitor, log_every_n_steps=9, batches=3)
    ((_, _, row, _),) = tables()
    assert float(row.split()[2]) < 10


def test_hooks_are_there_in_a_fit_alone_and_the_model_is_let_go(tmp_path):
    before, monitor, run = hooks(), UpdateMonitor("parameter"), trainer(tmp_path)
    for _ in range(3):
        probe = Probe("on_train_batch_start", lambda *_: hooks() - before)
        fit(Model(), tmp_path, monitor, probe, batches=1)
        assert probe.found == [2]
        assert hooks() == before
    run.strategy.connect(Model())
    monitor.on_train_start(run, Model())
    assert hooks() == before + 2
    del probe, monitor, run  # Lightning gives it methods of the model
    gc.collect()
    assert hooks() == before  # one that is dropped in a fit leaves none
    assert not any(type(thing) is Model for thing in gc.get_objects())
