"""What TensorBoard is given, read back from the event file tag by tag."""

import io
import re
from pathlib import Path

import callback_helpers as cb
import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from PIL import Image
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from torch import nn

from lightning_accum import STDP, Cell, CellSpec, Hebb, RuleTrainer
from lightning_accum.callbacks import CellTrainerCallback, UpdatePictures
from lightning_accum.callbacks.pictures import fields_of, raster

IMAGES = {"fields/enc/weight", "spikes/enc"}
HISTOGRAMS = {"weights/enc/weight", "updates/enc/weight", "firing_rates/enc"}


def fit(net, path, *callbacks, batches=8, **options):
    """What stands in the event files, which are written beside a table."""
    loggers = [CSVLogger(path), TensorBoardLogger(path, name="")]
    run = cb.trainer(path, *callbacks, logger=loggers, **options)
    run.fit(net, cb.loader(batches))
    return cb.events_of(run)


def pixels(encoded):
    """An image as it was before it was written, from 0 to 1."""
    return torch.from_numpy(np.array(Image.open(io.BytesIO(encoded)).convert("L"))).double() / 255


def image(event):
    return pixels(event.encoded_image_string)


def scaled(values):
    return (values - values.min()) / (values.max() - values.min())


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("every", "log_every", "every_n_logs", "drawn"), [
    (1, 1, 1, [1, 2, 3, 4, 5, 6, 7, 8]),
    (1, 2, 2, [4, 8]),
    (1, 1, 3, [3, 6]),
    (3, 4, 1, [4, 8]),
    (1, 4, 10, []),
    (1, 0, 1, []),
])  # fmt: skip
def test_every_n_logging_steps(every, log_every, every_n_logs, drawn, first, tmp_path):
    use, pictures = cb.callback(apply_every_n_batches=every), UpdatePictures(every_n_logs)
    order = cb.in_order(first, pictures, use)
    found = fit(cb.Net(), tmp_path, *order, log_every_n_steps=log_every)
    for kind, tags in (("Images", IMAGES), ("Histograms", HISTOGRAMS)):
        assert set(found.Tags()[kind.lower()]) == (tags if drawn else set())
        for tag in tags if drawn else ():
            steps = [event.step for event in getattr(found, kind)(tag)]
            assert steps == [step - 1 for step in drawn]


@pytest.mark.parametrize(("every", "applied"), [(1, (4, 8)), (3, (1, 3))])
def test_pictures_are_of_the_update_and_the_batch_that_are_logged(every, applied, tmp_path):
    net, past, batches = cb.Net(), cb.Net(), list(cb.loader(8))
    weights = [net.fc.weight.detach().clone(), *cb.fit_by_hand(net, batches, every=every)]
    use = cb.callback(apply_every_n_batches=every)
    found = fit(net, tmp_path, use, UpdatePictures(1), log_every_n_steps=4)
    for i, at in enumerate(applied):
        pairs = {"weights": weights[at], "updates": weights[at] - weights[at - 1]}
        for tag, values in pairs.items():
            histogram = found.Histograms(f"{tag}/enc/weight")[i].histogram_value
            assert histogram.num == cb.INPUTS * cb.OUTPUTS
            assert histogram.min == pytest.approx(float(values.min()), rel=1e-5)
            assert histogram.max == pytest.approx(float(values.max()), rel=1e-5)
            assert histogram.sum == pytest.approx(float(values.sum()), rel=1e-4)
            assert histogram.sum_squares == pytest.approx(float(values.square().sum()), rel=1e-4)
        batch, event = 4 * i + 3, found.Images("spikes/enc")[i]
        past.fc.weight.data.copy_(weights[batch // every])
        spikes = past(batches[batch][0])
        assert (event.width, event.height) == (cb.STEPS, cb.OUTPUTS)
        assert torch.equal(image(event), spikes[:, 0].T.double())
        assert 0 < spikes[:, 0].sum() < spikes[:, 0].numel()
        rates = found.Histograms("firing_rates/enc")[i].histogram_value
        assert rates.num == cb.OUTPUTS
        assert rates.sum == pytest.approx(float(spikes.sum()) / (cb.STEPS * cb.BATCH), rel=1e-5)


def test_receptive_fields_in_a_given_shape_or_one_image(tmp_path):
    net = cb.Net()
    weight = cb.fit_by_hand(net, list(cb.loader(2)))[-1]
    fields = scaled(weight).reshape(4, 2, 3)
    line = torch.full((2, 1), 0.5)
    rows = [torch.cat((fields[i], line, fields[i + 1]), 1) for i in (0, 2)]
    given = torch.cat((rows[0], torch.full((1, 7), 0.5), rows[1]))
    for shapes, expected in (({"enc": (2, 3)}, given), (None, scaled(weight))):
        pictures, folder = UpdatePictures(2, shapes=shapes), tmp_path / str(shapes is None)
        found = fit(cb.Net(), folder, cb.callback(), pictures, batches=2)
        (event,) = found.Images("fields/enc/weight")
        assert image(event).shape == expected.shape
        assert (image(event) - expected).abs().max() < 1.01 / 255


class Upsampling(cb.Net):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(2, 3, 2, bias=False, dtype=torch.float64)

    def training_step(self, batch, batch_idx):
        self.up(torch.rand(cb.BATCH, 2, 3, 3).double())


def test_fields_of_a_transposed_convolution_come_neuron_by_neuron(tmp_path):
    net = Upsampling()
    use = cb.callback(RuleTrainer(Hebb(0.01)), cells={"up": CellSpec("up", "up")})
    found = fit(net, tmp_path, use, UpdatePictures(1, most=2), batches=1, log_every_n_steps=1)
    expected = scaled(net.up.weight.detach()[:, 0])  # of the first neuron, by input
    two = image(found.Images("fields/up/weight")[0])
    assert (torch.stack([two[:, :2], two[:, 3:]]) - expected).abs().max() < 1.01 / 255


class Deep(cb.Net):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(cb.OUTPUTS, 9, dtype=torch.float64)
        self.end = nn.Hardtanh(0, 1)

    def training_step(self, batch, batch_idx):
        self.end((self.out(self(batch[0])) > 0).double())


@pytest.mark.parametrize("logs", [True, False])
def test_two_callbacks_and_the_most_neurons(logs, tmp_path):
    cells = {"out": CellSpec("out", "end", params=("weight", "bias"))}
    second = CellTrainerCallback(STDP(**cb.RULE), cells, time_dim=0, log=logs)
    found = fit(Deep(), tmp_path, cb.callback(), second, UpdatePictures(1, most=3), batches=1)
    images, histograms = {"fields/out/weight", "spikes/out"}, {"firing_rates/out"}
    histograms |= {
        f"{what}/out/{of}" for what in ("weights", "updates") for of in ("weight", "bias")
    }
    assert set(found.Tags()["images"]) == IMAGES | (images if logs else set())
    assert set(found.Tags()["histograms"]) == HISTOGRAMS | (histograms if logs else set())
    if logs:
        assert found.Images("spikes/out")[0].height == 3
        # Four inputs are a square of two; three of them lie in two rows.
        assert found.Images("fields/out/weight")[0].height == 5


def layout_of(found):
    (event,) = found.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    return {
        category.title: {chart.title: list(chart.multiline.tag) for chart in category.chart}
        for category in layout.category
    }


def test_charts_show_tags_that_there_are(tmp_path):
    found = fit(cb.Net(), tmp_path, cb.callback(), UpdatePictures())
    charts = layout_of(found)
    assert list(charts) == ["enc"]
    seen = {  # as TensorBoard's plugin matches them
        chart: [tag for tag in found.Tags()["scalars"] for p in patterns if re.match(p, tag)]
        for chart, patterns in charts["enc"].items()
    }
    assert {chart: len(tags) for chart, tags in seen.items()} == {
        "ratio": 1, "potentiation": 1, "depression": 1, "limits": 2,
        "firing rate": 1, "silent neurons": 1,
    }  # fmt: skip


def hparams_of(found):
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    values = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    return {name: getattr(value, str(value.WhichOneof("kind"))) for name, value in values.items()}


def test_hyperparameters_beside_the_modules_own(tmp_path):
    class Own(cb.Net):
        def __init__(self, width=3, kind="wide"):
            super().__init__()
            self.save_hyperparameters()

    specs = {"enc": CellSpec("fc", "lif", overrides={"lr_post": 0.5})}
    use = CellTrainerCallback(STDP(**cb.RULE), specs, time_dim=0)
    run = cb.trainer(tmp_path, use, UpdatePictures(), logger=TensorBoardLogger(tmp_path, name=""))
    net = Own()
    run.fit(net, cb.loader(1))
    found = hparams_of(cb.events_of(run))
    expected = {"width": 3.0, "kind": "wide", "enc/rule": "STDP", **{
        f"enc/{name}": 0.5 if name == "lr_post" else value for name, value in cb.RULE.items()
    }}  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["enc/params"] == "('weight',)"
    assert dict(net.hparams) == {"width": 3, "kind": "wide"}
    assert "enc/lr_post: 0.5" in Path(str(run.log_dir), "hparams.yaml").read_text()


def test_hyperparameters_of_cells_registered_by_hand_are_written_when_it_trains(tmp_path):
    net, rule = cb.Validated(), RuleTrainer(STDP(**cb.RULE), time_dim=0)
    rule.register_cell("mine", Cell(net.fc, net.lif), lr_pre=-0.25)
    use, board = cb.callback(rule, cells=None), TensorBoardLogger(tmp_path, name="")
    run = cb.trainer(tmp_path, use, UpdatePictures(), logger=board)
    run.validate(net, cb.loader(1), verbose=False)
    assert not cb.events_of(run).summary_metadata.get("_hparams_/session_start_info")
    run.fit(net, cb.loader(1), cb.loader(1))
    found = hparams_of(cb.events_of(run))
    assert (found["mine/rule"], found["mine/lr_pre"]) == ("STDP", -0.25)


def test_other_loggers_get_the_scalars(tmp_path):
    logger = CSVLogger(tmp_path, name="")
    run = cb.trainer(tmp_path, cb.callback(), UpdatePictures(1), logger=logger)
    with cb.warning_of("a logger that takes images. Found ['CSVLogger']"):
        run.fit(cb.Net(), cb.loader(2))
    head, *lines = Path(logger.log_dir, "metrics.csv").read_text().splitlines()
    assert {"activity/enc/firing_rate", "updates/enc/weight/ratio"} <= set(head.split(","))
    assert len(lines) == 2
    assert [p for p in tmp_path.rglob("*") if "tfevents" in p.name] == []


def test_weights_with_nan_are_drawn(tmp_path):
    net = cb.Net()
    with torch.no_grad():
        net.fc.weight[0, 0] = float("nan")
    with cb.warning_of("when training began"):
        found = fit(net, tmp_path, cb.callback(), UpdatePictures(1), batches=1)
    histogram = found.Histograms("weights/enc/weight")[0].histogram_value
    assert histogram.num == cb.INPUTS * cb.OUTPUTS - 1
    assert image(found.Images("fields/enc/weight")[0])[0, 0] == 0


@pytest.mark.parametrize(("options", "learners", "words"), [
    ({}, [], r"with `log=True`.* Found no such"),
    ({}, [{"log": False}], r"with `log=True`.* Found no such"),
    ({"shapes": {"enc": (2, 3), "fc": (2, 3)}}, [{}], r"which are \['enc'\]\. Found `shapes = "),
    ({"every_n_logs": 1, "shapes": {"enc": (2, 2)}}, [{}], r"of 6 inputs\. Found `shapes = "),
    ({"every_n_logs": 0}, [{}], r"should be a positive integer\. Found `"),
    ({"most": -1}, [{}], r"should be a positive integer\. Found `"),
])  # fmt: skip
def test_pictures_that_cannot_be(options, learners, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        fit(cb.Net(), tmp_path, UpdatePictures(**options), *(cb.callback(**o) for o in learners))


# ---------------------------------------------------------------------------- the images
def test_fields_on_one_scale():
    fields = fields_of(torch.tensor([[0.0, 1, 2, 3], [4, 4, 4, 4]]), None, 9)
    assert fields.tolist() == [[[0, 0.25], [0.5, 0.75]], [[1, 1], [1, 1]]]
    for constant in (7.0, torch.nan):
        dark = fields_of(torch.full((2, 4), constant), None, 9)
        assert dark.shape == (2, 2, 2)
        assert not dark.any()


@pytest.mark.parametrize(("weight", "shape", "found"), [
    ((5, 16), None, (5, 4, 4)),
    ((5, 12), None, (1, 5, 12)),
    ((5, 12), (3, 4), (5, 3, 4)),
    ((5, 1), None, (1, 5, 1)),
    ((9, 16), None, (6, 4, 4)),
    ((9, 12), None, (1, 6, 12)),
    ((4, 2, 3, 3), None, (6, 3, 3)),
    ((7,), None, None),
    ((7, 3, 2), None, None),
    ((0, 4), None, None),
])  # fmt: skip
def test_shapes_of_fields(weight, shape, found):
    fields = fields_of(torch.rand(weight), shape, most=6)
    assert found == (None if fields is None else tuple(fields.shape))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.float64])
def test_raster_of_any_dtype(dtype):
    window = (torch.rand(7, 2, 2, 3) < 0.5).to(dtype)
    found = raster(window, most=4)
    assert torch.equal(found, window[:, 0].reshape(7, 6)[:, :4].T.float())
    assert not raster(torch.zeros(3, 1, 2), 4).any()
    assert raster(torch.full((3, 1, 2), 0.5), 4).eq(1).all()
