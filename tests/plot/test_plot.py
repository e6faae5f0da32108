import sys

import pytest
import torch

from lightning_accum import plot
from lightning_accum.metrics import FiringStatistics, MaxRateClassifier
from lightning_accum.nn import LIF, Conv2d, Linear

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def canvas():
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


def random(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def spikes_in(ax):
    """Time and row of each line of a raster."""
    (lines,) = ax.collections
    found = [segment.mean(0) for segment in lines.get_segments()]
    return sorted((round(float(t), 6), float(row)) for t, row in found)


def spikes_of(raster, dt):
    return sorted((round(t * dt, 6), float(i)) for t, i in raster.nonzero().tolist())


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.float64])
@pytest.mark.parametrize(("dt", "rate"), [(1.0, 0.2), (0.25, 0.2), (1.0, 0.0)])
def test_raster_has_a_line_for_each_spike(dtype, dt, rate):
    spikes = (random(30, 7) < rate).to(dtype)
    figure, ax = plot.raster(spikes, dt=dt)
    assert ax.figure is figure
    assert spikes_in(ax) == spikes_of(spikes, dt)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time, ms", "neuron")
    assert ax.get_xlim() == (-dt / 2, 29.5 * dt)
    assert ax.get_ylim() == (-0.5, 6.5)


@pytest.mark.parametrize("sample", [0, 2, -1])
def test_raster_draws_one_sample_of_any_layer(sample):
    spikes = (random(20, 3, 2, 4) < 0.3).float().requires_grad_()
    _, ax = plot.raster(spikes, sample=sample)
    assert spikes_in(ax) == spikes_of(spikes[:, sample].flatten(1), 1.0)


def test_raster_shows_the_input_above_on_the_same_time():
    spikes, inputs = random(30, 2, 5) < 0.2, random(30, 2, 9) < 0.2
    figure, axes = plot.raster(spikes, dt=0.5, inputs=inputs, sample=1)
    assert figure.axes == list(axes)
    assert spikes_in(axes[0]) == spikes_of(inputs[:, 1], 0.5)
    assert spikes_in(axes[1]) == spikes_of(spikes[:, 1], 0.5)
    assert axes[0].get_ylabel() == "input"
    assert axes[0].get_shared_x_axes().joined(*axes)
    assert axes[0].get_position().y0 > axes[1].get_position().y1
    inputs = random(12, 1, 4)  # graded values are an image
    _, axes = plot.raster(random(12, 1, 3) < 0.5, dt=2.0, inputs=inputs)
    (image,) = axes[0].images
    assert torch.equal(torch.tensor(image.get_array()), inputs[:, 0].T)
    assert tuple(image.get_extent()) == (-1.0, 23.0, -0.5, 3.5)
    assert not axes[0].collections


def test_membrane_has_curves_thresholds_and_spikes():
    lif, v, s = LIF(6, tc_mem=10.0), [], []
    for current in random(40, 2, 6):
        s.append(lif(0.4 * current))
        v.append(lif.voltage)
    v, s = torch.stack(v), torch.stack(s)
    _, ax = plot.membrane(v, threshold=1.0, spikes=s, dt=0.5, neurons=[4, 1], sample=1)
    curves, limits = ax.lines[::2], ax.lines[1::2]
    for i, curve, limit, marks in zip([4, 1], curves, limits, ax.collections, strict=True):
        assert torch.equal(torch.tensor(curve.get_xdata()), torch.arange(40) * 0.5)
        assert torch.equal(torch.tensor(curve.get_ydata()), v[:, 1, i])
        assert set(limit.get_ydata()) == {1.0}
        times = [segment[0, 0] for segment in marks.get_segments()]
        assert times == (s[:, 1, i].nonzero()[:, 0] * 0.5).tolist()
        assert len(times) > 1
        assert all(segment[:, 1].min() >= 1.0 for segment in marks.get_segments())
        assert pyplot.matplotlib.colors.same_color(marks.get_color(), curve.get_color())
    assert [text.get_text() for text in ax.get_legend().texts] == ["neuron 4", "neuron 1"]


@pytest.mark.parametrize("shape", [(), (3,), (1, 3), (20, 1), (20, 3)])
def test_thresholds_may_differ_by_neuron_and_step_and_four_neurons_are_shown(shape):
    threshold = random(*shape)
    _, ax = plot.membrane(random(20, 3), threshold)
    drawn = torch.stack([torch.tensor(line.get_ydata()) for line in ax.lines[1::2]], 1)
    assert torch.equal(drawn, threshold.expand(20, 3))
    _, ax = plot.membrane(random(20, 9))
    assert len(ax.lines) == 4
    _, ax = plot.membrane(random(20))
    assert len(ax.lines) == 1
    assert ax.get_legend() is None


@pytest.mark.parametrize("columns", [None, 1, 3, 99])
def test_every_field_is_in_the_picture_once(columns):
    fc = Linear(12, 7, bias=False)
    before = fc.weight.detach().clone()
    _, ax = plot.weights(fc.weight, shape=(3, 4), columns=columns)
    picture = torch.tensor(ax.images[0].get_array().filled(float("nan")))
    per_row = {None: 4, 1: 1, 3: 3, 99: 7}[columns]
    for i, weight in enumerate(before):
        top, left = i // per_row * 4, i % per_row * 5
        assert torch.equal(picture[top : top + 3, left : left + 4], weight.view(3, 4))
    assert int(picture.isfinite().sum()) == before.numel()
    assert torch.equal(fc.weight, before)


@pytest.mark.parametrize(("values", "limits", "shown", "colors"), [
    ([[0.1] * 4, [0.5] * 4], None, (0.0, 0.5), "gray_r"),
    ([[-3.0] * 4, [0.5] * 4], None, (-3.0, 3.0), "RdBu_r"),
    ([[0.0] * 4] * 2, None, (0.0, 1.0), None),
    ([[1.0] * 4] * 2, (-1.0, 4.0), (-1.0, 4.0), None),
])  # fmt: skip
def test_fields_share_one_scale_with_a_bar(values, limits, shown, colors):
    figure, ax = plot.weights(torch.tensor(values), limits=limits)
    assert ax.images[0].get_clim() == pytest.approx(shown)
    assert len(figure.axes) == 2
    assert colors in (None, ax.images[0].cmap.name)


def test_weights_of_other_layers():
    for weight, options, shape in (
        (Conv2d(2, 3, kernel_size=5).weight, {"columns": 2}, (3 * 6 - 1, 2 * 6 - 1)),
        (random(1, 7), {}, (1, 7)),
        (random(100, 16), {"most": 10, "columns": 10}, (4, 49)),
        (random(5, 7), {}, (5, 7)),  # 7 is not a square
    ):
        _, ax = plot.weights(weight, **options)
        assert ax.images[0].get_array().shape == shape
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("input", "neuron")


def test_given_axes_are_drawn_in():
    figure, axes = pyplot.subplots(2, 2)
    assert plot.raster(torch.ones(3, 2), ax=axes[0, 0]) == (figure, axes[0, 0])
    assert plot.membrane(torch.ones(3, 2), ax=axes[0, 1]) == (figure, axes[0, 1])
    assert plot.weights(torch.ones(3, 2), ax=axes[1, 0]) == (figure, axes[1, 0])
    pair = pyplot.figure().subplots(1, 2)
    plot.raster(torch.ones(3, 2), inputs=torch.ones(3, 1), ax=list(pair))
    assert [ax.get_ylabel() for ax in pair] == ["input", "neuron"]
    assert [ax.get_xlabel() for ax in pair] == ["time, ms"] * 2
    assert len(pyplot.get_fignums()) == 2


@pytest.mark.parametrize(("draw", "message"), [
    (lambda: plot.raster(torch.ones(3)), r"`spikes` should have shape \[T, N\]"),
    (lambda: plot.raster(torch.ones(0, 3)), r"`spikes.shape = \(0, 3\)`"),
    (lambda: plot.raster(torch.ones(3, 2, 4), sample=2), "one of the 2 samples in `spikes`"),
    (lambda: plot.raster(torch.ones(3, 2), dt=0.0), "`dt` should be a positive step"),
    (lambda: plot.raster(torch.ones(3, 2), inputs=torch.ones(4, 2)), "have the 3 steps of"),
    (lambda: plot.raster(torch.ones(3, 2), ax=[None, None]), "`ax` should be one axes. Found"),
    (lambda: plot.membrane(torch.ones(3, 2), neurons=[2]), "indices of the 2 neurons"),
    (lambda: plot.membrane(torch.ones(3, 2), torch.ones(4)), r"have shape \[2\] or \[3, 2\]"),
    (lambda: plot.membrane(torch.ones(3, 2), spikes=torch.ones(3)), "the shape of `membrane`"),
    (lambda: plot.weights(torch.ones(3, 8), shape=(3, 3)), "height and width of 8 inputs"),
    (lambda: plot.weights(torch.ones(3)), r"Found `weight.shape = \(3,\)`"),
    (lambda: plot.weights(torch.ones(3, 4), columns=0), "should be a positive integer"),
])  # fmt: skip
def test_what_does_not_fit_is_rejected(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
    assert not pyplot.get_fignums()


METRICS = [lambda x: MaxRateClassifier(3, 2).plot(x), lambda _: FiringStatistics().plot()]


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric:UserWarning")
@pytest.mark.parametrize("draw", [plot.raster, plot.membrane, plot.weights, *METRICS])
def test_without_matplotlib_it_says_what_to_install(draw, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        draw(torch.ones(3, 4))
