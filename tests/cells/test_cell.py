import pytest
import torch
from torch import nn

from lightning_accum import STDP, Cell, CellSpec, Layer, Serial, attach_updater
from lightning_accum.callbacks import FabricCellTrainer


def test_a_cell_is_equal_to_another_of_the_same_modules():
    fc, one, two = nn.Linear(2, 2), nn.ReLU(), nn.ReLU()
    assert Cell(fc, one) == Cell(fc, one)
    assert Cell(fc, one) != Cell(fc, two)
    assert Cell(fc, one) != fc
    assert len({Cell(fc, one), Cell(fc, one), Cell(fc, two)}) == 2
    assert "Linear" in repr(Cell(fc, one))
    with pytest.raises(TypeError, match=r"Argument `neuron`.*Found `str`"):
        Cell(fc, "relu")
    with pytest.raises(TypeError, match="Argument `connection`"):
        Cell(None, one)


def test_a_cell_shows_the_updater_of_its_connection():
    cell = Cell(nn.Linear(2, 2), nn.ReLU())
    assert cell.updater is None
    updater = attach_updater(cell.connection, "weight")
    assert cell.updater is updater
    cell.updater = None
    assert cell.updater is None
    cell.updater = updater
    assert Cell(cell.connection, nn.ReLU()).updater is updater


def test_a_spec_finds_a_cell_by_paths():
    model = nn.ModuleDict({"enc": nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())})
    cell = CellSpec("enc.0", "enc.1").find(model)
    assert cell == Cell(model["enc"][0], model["enc"][1])
    assert CellSpec("enc.0", "enc.1", "weight").find(model) == cell
    for spec, message in (
        (CellSpec("enc.fc", "enc.1"), r"`connection`.*'enc\.1'\]\. Found `connection = 'enc\.fc'`"),
        (CellSpec("enc.0", "lif"), r"`neuron`.*Found `neuron = 'lif'`"),
        (CellSpec("enc.0", "enc.1", ("bias",)), r"`enc\.0`.*\['weight'\]\. Found `bias`"),
    ):
        with pytest.raises(AttributeError, match=message):
            spec.find(model)


def test_a_layer_adds_up_connections_and_makes_every_cell():
    a, b, n, m = nn.Linear(2, 3), nn.Linear(4, 3), nn.ReLU(), nn.Identity()
    layer = Layer({"a": a, "b": b}, {"n": n, "m": m})
    x, y = torch.ones(1, 2), torch.ones(1, 4)
    found = layer(a=x, b=y)
    assert torch.equal(found["m"], a(x) + b(y))
    assert torch.equal(found["n"], (a(x) + b(y)).relu())
    assert torch.equal(layer(b=y)["m"], b(y))
    assert layer.cell("b", "m") == Cell(b, m)
    assert set(layer.cells) == {("a", "n"), ("a", "m"), ("b", "n"), ("b", "m")}
    assert layer.cells["a", "m"] == Cell(a, m)
    with pytest.raises(ValueError, match=r"\['a', 'b'\]\. Found none"):
        layer()
    with pytest.raises(AttributeError, match=r"`connection`.*\['a', 'b'\].*'c'"):
        layer.cell("c", "n")
    with pytest.raises(AttributeError, match=r"`neuron`.*\['n', 'm'\].*'a'"):
        layer.cell("a", "a")
    with pytest.raises(ValueError, match=r"Argument `neurons`.*at least one. Found `neurons = {}`"):
        Layer({"a": a}, {})


def test_a_serial_layer_is_one_after_the_other():
    fc, relu = nn.Linear(2, 3), nn.ReLU()
    layer = Serial(fc, relu)
    assert layer.cell == Cell(fc, relu)
    assert torch.equal(layer(torch.ones(1, 2)), relu(fc(torch.ones(1, 2))))
    with pytest.raises(TypeError, match="Argument `neuron`"):
        Serial(fc, torch.relu)


def test_cells_of_another_form_are_told_by_an_example():
    with pytest.raises(TypeError, match=r'such as `\{"encoder": CellSpec\(.*Found `list`'):
        FabricCellTrainer(STDP(0.1, -0.1), [("enc", CellSpec("fc", "lif"))])
    with pytest.raises(TypeError, match=r"the dotted path of a submodule.*Found `Linear`"):
        CellSpec(nn.Linear(2, 1), "lif")
