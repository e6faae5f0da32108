import copy
import logging
import pickle

import pytest
import torch
from streams import Logging, written
from torch.utils.tensorboard import SummaryWriter
from values import by_pickle

from lightning_accum.accumulators import Log, Mean, Pipe, Scalar, Select, Source, Split, Sum


def test_log_goes_through_the_module_with_its_options():
    module = Logging()
    pipe = (Select(loss=0) ** Mean() ** Log("loss", prog_bar=True)).bind(module)
    assert pipe.run([(1.0,), (2.0,)]) == 1.5
    assert (module.logged, module.options) == ([("loss", 1.5)], {"prog_bar": True})


@pytest.mark.parametrize("first", ["bind", "build"])
def test_every_log_of_a_source_is_bound_whenever_it_is_put_there(first):
    module = Logging()
    source = Source(module) if first == "bind" else Source()
    pipe = source ** Mean() ** Split(Log("a"), Pipe(Log("b")))
    pipe ** Log("c")
    if first == "build":
        source.bind(module)
    source.run([1.0, 2.0])
    assert [name for name, _ in module.logged] == ["a", "b", "c"]


def test_a_pipe_that_grows_stays_bound():
    module = Logging()
    pipe = (Mean() ** Log("a")).bind(module)
    (torch.as_tensor ** (pipe ** Log("b"))).run([1.0])
    assert module.logged == [("a", 1.0), ("b", 1.0)]


def test_integers_are_logged_as_floats():
    module = Logging()
    (Sum() ** Log("count")).bind(module).run([1, 2])
    assert module.logged[0][1].dtype == torch.float32


def test_alone_log_is_a_line_of_the_package_s_logger(caplog):
    with caplog.at_level(logging.INFO, logger="lightning_accum"):
        (Mean() ** Log("loss")).run([1.0, 2.0])
    assert [(r.name, r.getMessage()) for r in caplog.records] == [("lightning_accum", "loss: 1.5")]


def test_a_module_and_its_source_are_copied_together():
    bound = Logging()
    bound.source = Source(bound)
    bound.source ** Mean() ** Log("loss")
    for other in (copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        other.source.run([3.0])
        assert other.logged == [("loss", 3.0)]
    assert bound.logged == []
    assert list(bound.state_dict())


@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle])
def test_a_copy_writes_into_the_same_folder_with_a_writer_of_its_own(tmp_path, copied):
    writer = SummaryWriter(str(tmp_path))
    pipe = Mean() ** Scalar(writer, "loss")
    pipe.run([1.0])
    other = copied(copied(pipe))
    assert len(list(tmp_path.iterdir())) == 1
    other.run([2.0])
    other.stages[1].writer.close()
    pipe.run([3.0])
    writer.close()
    found = written(tmp_path)["loss"]
    assert sorted(found) == [(0, 1.0), (1, 2.0), (1, 3.0)]
