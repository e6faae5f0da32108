from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import turns

from lightning_accum.observe import Latest, WindowRecorder
from lightning_accum.sparse.events import Events, publish_events
from lightning_accum.sparse.library import has_kernel

quick = settings(deadline=None, derandomize=True, max_examples=40)
COPIES = [
    copy.deepcopy,
    lambda x: pickle.loads(pickle.dumps(x)),
    lambda x: loaded(x),
    lambda x: copy.deepcopy(x).to("cpu"),
]


def loaded(recorder: WindowRecorder) -> WindowRecorder:
    fresh = WindowRecorder(recorder.spikes, recorder.time_dim, recorder.dt)
    fresh.load_state_dict(recorder.state_dict())
    return fresh


def memory(recorder: WindowRecorder) -> torch.Tensor:
    return recorder._buffer.memory


@quick
@given(
    shape=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    time_dim=st.sampled_from([None, 0]),
    spikes=st.booleans(),
    seed=st.integers(0, 999),
)
def test_hands_out_what_it_was_given_window_by_window(shape, lengths, time_dim, spikes, seed):
    recorder, generator = WindowRecorder(spikes, time_dim), torch.Generator().manual_seed(seed)
    for steps in lengths:
        x = torch.rand((steps, *shape), generator=generator)
        x = (x < 0.5).float() if spikes else x
        for piece in x.tensor_split(3) if time_dim == 0 else x:
            recorder(piece)
        assert recorder.length == steps
        window = recorder.window()
        if steps == 0:
            assert window is None
            assert recorder.peek() is None
        else:
            assert torch.equal(window, x.bool() if spikes else x)
            assert torch.equal(recorder.peek(), window[-1])
            assert torch.equal(recorder.dump(), window)
        recorder.clear()
        assert recorder.window() is None


def test_memory_doubles_and_is_used_again():
    recorder, sizes = WindowRecorder(), set()
    for _ in range(1000):
        recorder(torch.zeros(1))
        sizes.add(memory(recorder).shape[0])
    assert sizes == {16, 32, 64, 128, 256, 512, 1024}
    address = memory(recorder).data_ptr()
    recorder.clear()
    for _ in range(1000):
        recorder(torch.ones(1))
    assert memory(recorder).data_ptr() == address
    assert recorder.window().sum() == 1000


def test_sequences_take_the_memory_of_one_and_use_it_again():
    recorder = WindowRecorder(time_dim=0)
    recorder(torch.zeros(250, 2))
    address = memory(recorder).data_ptr()
    assert memory(recorder).shape[0] == 250
    recorder.clear()
    recorder(torch.ones(250, 2))
    assert memory(recorder).data_ptr() == address
    recorder(torch.zeros(10, 2))
    assert recorder.length == 260
    assert recorder.window().sum() == 500


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_spikes_take_a_byte_each(dtype):
    recorder = WindowRecorder(spikes=True)
    recorder(torch.ones(2, 3).to(dtype))
    assert recorder.window().dtype == torch.bool
    assert recorder.window().element_size() == 1
    assert recorder.window().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int32])
def test_other_activity_is_kept_as_it_comes(dtype):
    recorder = WindowRecorder()
    recorder(torch.tensor([3, 4]).to(dtype))
    assert recorder.window().dtype == dtype
    assert recorder.window().tolist() == [[3, 4]]


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0, torch.nan])
def test_spikes_that_are_no_spikes(value):
    for time_dim, shape in ((None, (2, 2)), (0, (3, 2, 2))):
        recorder = WindowRecorder(spikes=True, time_dim=time_dim)
        x = torch.ones(shape)
        x[-1, -1] = value
        with pytest.raises(ValueError, match=f"should be 0 or 1. Found {value}"):
            recorder(x)
        assert recorder.window() is None
        recorder(torch.ones(shape))


def take(recorder: WindowRecorder, steps) -> None:
    for step in steps:
        recorder(step)
    recorder.window()


BAD = [0.25, 1e-9, 3.0, -1.0, torch.inf, -torch.inf, torch.nan]


@pytest.fixture
def no_kernel(monkeypatch):
    """Leaves the check of spikes to torch."""
    monkeypatch.setattr("lightning_accum.observe.reducers.spike_check.has_kernel", lambda *_: False)
    monkeypatch.setattr("lightning_accum.sparse.search.count_ones", lambda _: None)


@turns("kernel", [True, False])
@turns("value", BAD)
@turns("at", [0, 1, 2, 17, 39])
@turns("size", [2, 1 << 17, 1 << 18])
def test_every_step_of_a_window_is_looked_at(value, at, size, kernel, request):
    if not kernel:
        request.getfixturevalue("no_kernel")
    recorder = WindowRecorder(spikes=True)
    steps = torch.zeros(40, 1, 2)
    steps[0, 0, 0] = 1.0
    steps[at, 0, 1] = value
    with pytest.raises(ValueError, match="should be 0 or 1"):
        take(recorder, (step.repeat(1, size // 2) for step in steps))
    recorder.clear()
    take(recorder, (steps != 0).float())
    recorder.confirm()
    assert torch.equal(recorder.window(), steps != 0)


@turns("value", BAD)
@turns("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_every_sequence_is_looked_at_whole(value, dtype):
    recorder = WindowRecorder(spikes=True, time_dim=0)
    sequence = torch.ones(3, 7, 12345).to(dtype)
    recorder(sequence)
    if dtype == torch.int64:
        value = 2 if value != value or value < 1 or value == torch.inf else int(value)
    sequence[-1, -1, -1] = value
    with pytest.raises(ValueError, match="should be 0 or 1"):
        recorder(sequence)
    assert torch.equal(recorder.window(), torch.ones(3, 7, 12345, dtype=torch.bool))


def test_what_sums_to_the_number_of_spikes_is_not_spikes():
    for values in ([2.0, 0.5, 0.5], [3.0, -1.0], [1.0, 1e-9], [(1 + 7**0.5) / 2, (1 - 7**0.5) / 2]):
        with pytest.raises(ValueError, match="0 or 1"):
            WindowRecorder(spikes=True)(torch.tensor([values]))


def test_windows_of_single_steps_are_looked_at_sixteen_together_or_when_asked(no_kernel):
    spike, rate = torch.ones(1, 2), torch.full((1, 2), 0.7)

    def windows(*steps):
        recorder = WindowRecorder(spikes=True)
        for step in steps:
            recorder.clear()
            recorder(step)
            recorder.window()
        return recorder

    with pytest.raises(ValueError, match="0 or 1"):
        windows(torch.zeros(1, 2), rate)  # at once: nothing was seen yet
    recorder = windows(spike, rate)
    with pytest.raises(ValueError, match=r"Found 0\.69.* in a recorder: is"):
        recorder.confirm()
    with pytest.raises(ValueError, match="0 or 1"):  # again, until it is cleared
        recorder.confirm()
    recorder.clear()
    recorder.confirm()
    with pytest.raises(ValueError, match="0 or 1"):
        windows(spike, rate, *[spike] * 15)
    windows(*[spike] * 40).confirm()
    for other in (torch.ones(2, 2), torch.ones(1, 2).double()):  # looked at before there is room
        with pytest.raises(ValueError, match="0 or 1"):
            windows(spike, rate, other)


def test_on_an_accelerator_only_to_confirm_waits():
    for time_dim in (None, 0):
        recorder = WindowRecorder(spikes=True, time_dim=time_dim)
        for _ in range(40):
            recorder(torch.ones(1, 1, 2, device="meta"))
        recorder.window()
        with pytest.raises(RuntimeError, match="meta"):  # it has no values
            recorder.confirm()
        recorder.confirm()  # there is nothing new


def test_complex_activity_is_not_spikes():
    with pytest.raises(TypeError, match=r"should be real. Found torch.complex64 in a recorder"):
        WindowRecorder(spikes=True)(torch.ones(1, 2, dtype=torch.complex64))


def test_a_refused_step_is_not_looked_at_later():
    recorder = WindowRecorder(spikes=True)
    recorder(torch.ones(1, 2))
    with pytest.raises(ValueError, match="shape"):
        recorder(torch.full((1, 3), 0.5))
    recorder.confirm()
    assert recorder.window().shape == (1, 1, 2)


def test_a_shape_that_changes_within_a_window():
    recorder = WindowRecorder()
    recorder(torch.ones(4, 3))
    recorder(torch.ones(4, 3))
    with pytest.raises(ValueError, match=r"\(2, 3\) after 2 steps of \(4, 3\)"):
        recorder(torch.ones(2, 3))
    assert recorder.length == 2
    recorder.clear()
    recorder(torch.ones(2, 3))
    assert recorder.window().shape == (1, 2, 3)
    sequences = WindowRecorder(time_dim=0)
    sequences(torch.ones(5, 4, 3))
    with pytest.raises(ValueError, match=r"\(2, 3\) after 5 steps of \(4, 3\)"):
        sequences(torch.ones(5, 2, 3))


def test_dtypes_that_change_between_windows():
    recorder = WindowRecorder()
    for dtype in (torch.float32, torch.int64, torch.float64):
        recorder(torch.tensor([1], dtype=dtype))
        assert recorder.window().dtype == dtype
        recorder.clear()


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"Argument `time_dim`.*`time_dim = 1`"):
        WindowRecorder(time_dim=1)
    with pytest.raises(ValueError, match="Argument `dt`"):
        WindowRecorder(dt=0.0)
    with pytest.raises(ValueError, match=r"Found shape \(\)"):
        WindowRecorder()(torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"Found shape \(2,\), `time_dim = 0`"):
        WindowRecorder(time_dim=0)(torch.ones(2))


@pytest.mark.parametrize("through", COPIES)
@pytest.mark.parametrize("time_dim", [None, 0])
def test_copies_in_the_middle_of_a_window(through, time_dim):
    recorder = WindowRecorder(spikes=True, time_dim=time_dim)
    step = torch.eye(2) if time_dim is None else torch.eye(2).unsqueeze(0)
    empty = through(recorder)
    assert empty.window() is None
    for _ in range(3):
        recorder(step)
    twin = through(recorder)
    for each in (recorder, twin):
        each(1 - step)
    expected = torch.stack([torch.eye(2)] * 3 + [1 - torch.eye(2)]).bool()
    assert torch.equal(twin.window(), expected)
    assert torch.equal(recorder.window(), expected)
    twin.clear()
    twin(step)
    assert twin.length == 1
    assert torch.equal(recorder.window(), expected)
    with pytest.raises(ValueError, match="within a window"):
        twin(step[..., :1])


def test_moving_in_the_middle_of_a_window():
    recorder = WindowRecorder()
    recorder(torch.ones(2))
    recorder.to(torch.float64)
    recorder(torch.ones(2))
    assert recorder.window().dtype == torch.float64
    assert recorder.length == 2


@pytest.mark.parametrize("spikes", [True, False])
def test_inference_mode_and_out_of_it_within_a_window(spikes):
    recorder = WindowRecorder(spikes)
    for i in range(40):
        with torch.inference_mode(i % 3 == 0):
            recorder(torch.ones(2))
    assert recorder.window().shape == (40, 2)
    with torch.inference_mode():
        recorder.load_state_dict(recorder.state_dict())
    recorder.clear()
    recorder(torch.zeros(2))
    assert recorder.window().tolist() == [[0, 0]]


@pytest.mark.parametrize("dt", [0.1, 0.3, 1.0, 2.5])
def test_views_go_back_to_the_observation_at_or_before(dt):
    recorder = WindowRecorder(dt=dt)
    assert recorder.view() is None
    for i in range(20):
        recorder(torch.tensor([float(i)]))
    for back in range(20):
        assert recorder.view(back * dt).item() == 19 - back
        assert recorder.view(max(0, back - 0.5) * dt).item() == 19 - back
    for time in (-0.01, 19.01 * dt):
        with pytest.raises(ValueError, match="within the kept history"):
            recorder.view(time)


def test_the_latest_alone():
    latest = Latest()
    with torch.inference_mode():
        latest(torch.ones(2))
    x = torch.zeros(2, requires_grad=True)
    latest(x)
    assert not latest.peek().requires_grad
    assert latest.view().tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="within the kept history"):
        latest.view(1.0)
    latest.clear()
    assert latest.peek() is None
    assert latest.dump() is None


def used(x: torch.Tensor) -> None:
    """As a connection uses what a monitor has seen."""
    publish_events(x, Events(x.flatten(0, 1)))


def raster(seed: int = 0) -> torch.Tensor:
    return torch.rand(5, 2, 3, generator=torch.Generator().manual_seed(seed)) < 0.5


def test_events_that_are_found_when_a_sequence_is_used_are_known():
    recorder, x = WindowRecorder(spikes=True, time_dim=0), raster()
    recorder(x)
    assert recorder.events() is None
    used(x)
    assert torch.equal(recorder.events().rows, Events(recorder.window().flatten(0, 1)).rows)
    for copied in COPIES:  # which have no part in what is found
        assert copied(recorder).events() is None
    recorder.clear()
    assert recorder.events() is None


def test_events_of_a_window_of_several_sequences_are_not_those_of_one():
    recorder, x = WindowRecorder(spikes=True, time_dim=0), raster()
    recorder(x)
    used(x)
    recorder(raster(1))
    assert recorder.events() is None


@pytest.mark.parametrize("when", ["before", "after", "between"])
def test_events_of_what_has_changed_are_not_believed(when: str):
    recorder, x = WindowRecorder(spikes=True, time_dim=0), raster()
    if when == "before":
        used(x)  # nobody waits: the next call may see other spikes in the same memory
    recorder(x)
    if when == "between":
        x.logical_not_()
    if when != "before":
        used(x)
    if when == "after":
        x.logical_not_()
    assert (recorder.events() is not None) == (when == "after")
    if when == "after":
        assert torch.equal(recorder.events().rows, Events(recorder.window().flatten(0, 1)).rows)


def test_in_inference_mode_nothing_is_shared():
    recorder = WindowRecorder(spikes=True, time_dim=0)
    with torch.inference_mode():
        x = raster().clone()
        recorder(x)
        used(x)
        assert recorder.events() is None


@quick
@given(
    windows=st.lists(st.lists(st.sampled_from([0, 1, 3, 3, 3]), max_size=2), max_size=8),
    dtypes=st.lists(st.sampled_from([torch.float32, torch.float64, torch.bool]), min_size=1),
    seed=st.integers(0, 999),
)
def test_events_of_sequences_are_those_of_the_window_if_they_are_known(windows, dtypes, seed):
    recorder, generator = WindowRecorder(spikes=True, time_dim=0), torch.Generator()
    generator.manual_seed(seed)
    for i, lengths in enumerate(windows):
        given = [torch.rand(steps, 2, 3, generator=generator) < 0.1 for steps in lengths]
        for x in given:
            recorder(x.to(dtypes[i % len(dtypes)]))
        window, events = recorder.window(), recorder.events()
        assert (window is None) == (recorder.length == 0)
        assert window is None or torch.equal(window, torch.cat(given))
        if events is not None:
            expected = Events(window.flatten(0, 1))
            assert torch.equal(events.rows, expected.rows)
            assert torch.equal(events.columns, expected.columns)
        recorder.clear()


def test_sequences_as_before_are_checked_and_searched_in_one_pass():
    recorder, x = WindowRecorder(spikes=True, time_dim=0), torch.eye(30).unsqueeze(1)
    for _ in range(3):
        recorder.clear()
        recorder(x)
    known = has_kernel(x.device, x.dtype)
    assert (recorder.events() is not None) == known
    recorder.clear()
    with pytest.raises(ValueError, match=r"should be 0 or 1. Found 0\.5"):
        recorder(x * 0.5)
    assert recorder.window() is None
    assert recorder.events() is None
    recorder(1 - x)
    assert torch.equal(recorder.window(), x == 0)
