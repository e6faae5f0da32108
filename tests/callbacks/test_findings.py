"""From counts to what is said: each finding by itself, without a Trainer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from lightning_accum.callbacks._all_findings import findings
from lightning_accum.callbacks._counts import Counts, Weights
from lightning_accum.callbacks._finding import Finding
from lightning_accum.callbacks._parameter_record import ParameterRecord
from lightning_accum.callbacks._rate_watch import Rate
from lightning_accum.cells.activity import Activity, Silence
from lightning_accum.updates import Clamp, Updater

RATES = {"lr_post": 0.1, "lr_pre": -0.1}


def found(weights: dict[str, Any] | None = None, **counts: Any) -> list[Finding]:
    one = () if weights is None else (Weights("weight", **weights),)
    return findings(Counts("enc", **{"weights": one, **counts}))


def only(weights: dict[str, Any] | None = None, **counts: Any) -> Finding:
    (finding,) = found(weights, **counts)
    assert finding.cell == "enc"
    assert "`enc" in finding.text
    assert finding.text.endswith((".", "`"))
    return finding


@pytest.mark.parametrize("ended", [False, True])
def test_nothing_is_said_of_a_cell_that_learns(ended: bool) -> None:
    activity = Activity(0.1, 0.02, 10_000, True)
    assert found({}, activity=activity, h=RATES, ended=ended, batches=20, windows=20) == []
    assert found({}, windows=None) == []  # a trainer that counts no windows


# ---------------------------------------------------------------------- nothing recorded
def test_nothing_recorded() -> None:
    finding = only({"applied": 0, "moved": 0.0}, windows=0, batches=1, why_nothing="Because.")
    assert finding.warns
    assert finding.text.endswith("Found none in 1 training batch. Because.")


def test_a_layer_at_rest_is_no_mistake() -> None:
    assert not only({"applied": 0, "moved": 0.0}, windows=0, rests=True, why_nothing="A.").warns


@pytest.mark.parametrize("moved", [0.5, None])
def test_only_other_processes_recorded(moved: float | None) -> None:
    finding = only({"applied": 3, "moved": moved}, windows=0, batches=3, why_nothing="Because.")
    assert finding.warns
    assert "Found none here in 3 training batches, and `weight` changed" in finding.text
    assert finding.text.endswith("Because.")


def test_no_process_recorded_although_their_zeros_were_applied() -> None:
    finding = only({"applied": 3, "moved": 0.0}, windows=0, batches=1, why_nothing="Because.")
    assert finding.text.endswith("Found none in 1 training batch. Because.")


def test_nothing_recorded_after_the_first_epoch() -> None:
    counts: dict[str, Any] = {"windows": 5, "batches": 10, "late_batches": 5, "ended": True}
    finding = only({}, **counts, why_nothing="Because.")
    assert not finding.warns
    assert finding.text == "`enc` recorded nothing after its first epoch. Because."
    assert found({}, **{**counts, "late_windows": 1}) == []
    assert found({}, **{**counts, "ended": False}) == []
    assert found({}, **{**counts, "windows": None}) == []


@pytest.mark.parametrize(("looks", "since", "told"), [(2, 3, 0), (3, 10, 1), (3, 11, 0), (9, 2, 1)])
def test_neurons_that_fired_only_at_first(looks: int, since: int, told: int) -> None:
    counts: dict[str, Any] = {
        "silence": Silence(looks, 12, since),
        "activity": Activity(0.1, 0.02, 10_000, True),
        "windows": 20,
        "batches": 20,
        "ended": True,
    }
    lines = found({}, **counts)
    assert len(lines) == told
    assert all("in none of the last" in line.text and not line.warns for line in lines)
    assert found({}, **{**counts, "ended": False}) == []
    assert all("nonfinite" in each.key for each in found({"finite": False}, **counts))


# ---------------------------------------------------------------------- never applied
@pytest.mark.parametrize(
    ("counts", "held", "why"),
    [
        ({"by": "module"}, True, "was not stepped: call `step()` on it"),
        ({"by": "module"}, False, "registered after the fit began"),
        ({"by": "callback"}, False, "registered after the fit began"),
        ({"by": "loop"}, False, "Call `step()` on the FabricCellTrainer."),
        ({"by": "callback", "ended": True}, True, "train for longer, or apply more often"),
        ({"by": "callback", "failed": True}, True, "by a smaller `apply_every_n_batches`"),
    ],
)
def test_never_applied(counts: dict[str, Any], held: bool, why: str) -> None:
    weights = {"applied": 0, "pending": True, "moved": 0.0, "held": held}
    finding = only(weights, **counts, batches=12)
    assert finding.warns
    assert why in finding.text
    assert "pending after 12 training batches, and none applied" in finding.text


def test_an_update_that_is_still_to_come() -> None:
    assert found({"applied": 0, "pending": True, "moved": 0.0}, by="callback") == []


def test_left_pending() -> None:
    finding = only({"applied": 3, "pending": True}, ended=True)
    assert not finding.warns
    assert found({"applied": 3, "pending": True}) == []  # in the midst of a fit that is usual


# ---------------------------------------------------------------------- nothing moved
STILL: dict[str, Any] = {"moved": 0.0, "applied": 12, "ratio": 0.0}


@pytest.mark.parametrize(
    ("weights", "counts", "warns", "why"),
    [
        ({}, {"h": {"lr_post": 0.0, "lr_pre": 0}}, False, "`lr_post` and `lr_pre` are 0."),
        ({"applied": 0}, {"h": {"lr": 0.0}}, False, "`lr` is 0."),
        ({"rate": Rate(0.0)}, {}, False, "updates are applied to it with `lr = 0`."),
        ({}, {"activity": Activity(0.0, 0.1, 9, True)}, True, "input was always 0"),
        ({}, {"activity": Activity(0.1, 0.0, 9, True)}, True, "never fired: lower"),
        ({"applied": 0}, {}, True, "exported as a gradient and no optimizer"),
        ({"at_limits": 1.0}, {}, True, "All weights are at a limit"),
        ({"ratio": 0.1}, {}, True, "something set it back to its first values"),
        ({"reset_by": ("keep",)}, {}, True, "A constraint, `keep`, sets it to these values"),
        ({}, {"why_unmoved": "Its kernel is 0."}, True, "Its kernel is 0."),
        ({}, {"h": RATES}, True, "in float32 change in steps of about 1e-07"),
        ({"dtype": torch.bfloat16, "largest": 0.5}, {"h": RATES}, True, "up to 0.5 in bfloat16"),
        ({"dtype": torch.int64}, {"h": {}}, True, "raise the rates"),
    ],
)
def test_unmoved(weights: dict[str, Any], counts: dict[str, Any], warns: bool, why: str) -> None:
    finding = only({**STILL, **weights}, **{"h": RATES, **counts})
    assert finding.warns is warns
    assert why in finding.text


@pytest.mark.parametrize(
    "weights",
    [{"moved": 1e-6}, {"moved": None}, {"dropped": 12}, {"applied": 0, "pending": True}],
)
def test_moved_or_told_otherwise(weights: dict[str, Any]) -> None:
    keys = [f.key for f in found({**STILL, **weights}, h=RATES)]
    assert "unmoved weight" not in keys


# ---------------------------------------------------------------------- learning, but ill
@pytest.mark.parametrize(
    ("began", "when"), [(True, "came during the fit"), (False, "it held when")]
)
def test_nonfinite(began: bool, when: str) -> None:
    weights = {"finite": False, "began_finite": began, "moved": 0.0, "growth": float("nan")}
    finding = only({**weights, "grows": True})
    assert finding.warns
    assert when in finding.text


def test_growth() -> None:
    finding = only({"growth": 900.4, "grows": True})
    assert not finding.warns
    assert "`enc.weight` grew 900 times" in finding.text


@pytest.mark.parametrize(
    "weights", [{"growth": 9.0}, {"grows": False}, {"bounded": True}, {"growth": None}]
)
def test_growth_that_is_no_matter(weights: dict[str, Any]) -> None:
    assert found({"growth": 900.0, "grows": True, **weights}) == []


def test_fires_in_most_steps() -> None:
    finding = only({}, activity=Activity(0.1, 0.86, 10_000, True))
    assert not finding.warns
    assert "spike in 86% of the steps" in finding.text


def test_an_input_in_most_steps() -> None:
    finding = only({}, activity=Activity(0.9, 0.1, 10_000, True, True))
    assert not finding.warns
    assert finding.text.startswith("The input of `enc` spikes in 90% of the steps")
    assert found({}, activity=Activity(0.9, 0.1, 10_000, True, False)) == []  # indices, or rates


@pytest.mark.parametrize(
    "activity", [(0.1, 0.5, 10_000, True), (0.1, 0.9, 999, True), (0.1, 0.9, 10_000, False)]
)
def test_activity_that_is_no_matter(activity: tuple[Any, ...]) -> None:
    assert found({}, activity=Activity(*activity)) == []


def test_single_steps() -> None:
    counts: dict[str, Any] = {"longest": 1, "windows": 9, "h": {"tc_pre": 20.0}}
    finding = only({}, **counts)
    assert not finding.warns
    assert "`carry=True`" in finding.text
    assert "pass `time_dim=0`" in finding.text
    whole = only({}, **{**counts, "h": {"tc_pre": 20.0, "time_dim": 0}})
    assert "`x.transpose(0, 1)` if a loader gives the batch first" in whole.text
    for other in ({"longest": 2}, {"windows": 1}, {"h": {"lr": 1.0}}, {"carry": True}):
        assert found({}, **{**counts, **other}) == []


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ({"distance": 3e-6, "applied": 12}, True),
        ({"distance": 3e-6, "applied": 2}, False),
        ({"distance": 9e-5, "applied": 1000}, True),
        ({"distance": 2e-4, "applied": 1000}, False),
        ({"distance": None, "applied": 12}, False),  # from zero
        ({"distance": 3e-6, "applied": 12, "at_limits": 0.9}, False),
    ],
)
def test_weights_that_hardly_move(weights: dict[str, Any], told: bool) -> None:
    assert found(weights, h=RATES, batches=20, windows=20) == []  # before the end
    said = found(weights, h=RATES, batches=20, windows=20, ended=True)
    assert [(each.key, each.warns) for each in said] == [("hardly moved weight", False)] * told


# ---------------------------------------------------------------------- competition
@pytest.mark.parametrize(("still", "told"), [(0.05, 0), (0.1, 1), (0.8, 1)])
def test_neurons_that_never_won(still: float, told: int) -> None:
    h = {"lr": 0.1, "winners": 1}
    lines = found({"still": still}, h=h, ended=True)
    assert len(lines) == told
    assert all(f"{still:.0%} of the neurons of `enc` never won" in line.text for line in lines)
    assert found({"still": still}, h=h) == []
    assert found({"still": still}, h=RATES, ended=True) == []


@pytest.mark.parametrize("shape", [(4, 5), (4, 3, 2, 2), (4, 70_000), (100_000, 3)])
def test_the_share_of_neurons_that_stayed(shape: tuple[int, ...]) -> None:
    layer = nn.Module()
    layer.weight = nn.Parameter(torch.zeros(shape))
    updater = Updater(layer, "weight")
    record = ParameterRecord(updater, "weight")
    assert record.weights(updater, {}).still == 1.0
    layer.weight.data[: shape[0] // 4] += 1.0
    assert record.weights(updater, {}).still == pytest.approx(0.75, abs=1e-4)


@pytest.mark.parametrize(("share", "told"), [(0.5, 0), (0.9, 1), (1.0, 1)])
def test_limits_beyond_which_weights_began(share: float, told: int) -> None:
    texts = [each.text for each in found({"began_beyond": share, "limits": (1.0, None)})]
    assert len(texts) == told
    assert all("began beyond the limits" in text and "at least 1" in text for text in texts)


def test_weights_that_limits_made_alike_are_not_told_to_compete() -> None:
    weights = {"shared": 1.0, "began_beyond": 1.0, "limits": (1.0, 2.0)}
    (finding,) = found(weights, ended=True)
    assert "at least 1 and at most 2" in finding.text


@pytest.mark.parametrize(("lower", "upper", "share"), [(1.0, 2.0, 1.0), (0.0, 1.0, 0.0)])
def test_the_share_of_weights_that_began_beyond_the_limits(
    lower: float, upper: float, share: float
) -> None:
    fc = nn.Linear(4, 3)
    nn.init.uniform_(fc.weight, 0.2, 0.6)
    updater = Updater(fc, "weight")
    updater.register_constraint(Clamp(lower, upper))
    record = ParameterRecord(updater, "weight")
    updater.weight = torch.full((3, 4), 0.1)
    updater()
    assert record.weights(updater, {}).began_beyond == share
