"""What mypy has to find in a rule of a user's own, and in how rules are made: `make types`."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Self, assert_type

from lightning_accum import BCM, STDP, EProp, Rule, Term
from lightning_accum.engine import Window


class Own(Rule):
    lr: float
    tc_pre: float = 20.0

    def check(self, h: Self) -> None:
        super().check(h)
        h.tc_pro  # type: ignore[attr-defined]  # noqa: B018

    def terms(self, window: Window, h: Self) -> Sequence[Term]:
        assert_type((h.lr, h.dt, h.time_dim), tuple[float, float, int | None])
        h.lr_pots  # type: ignore[attr-defined]  # noqa: B018
        return [Term(h.lr, window.post, window.pre.trace(h.tc_pre))]


def mistakes() -> None:  # is read, not run
    Own(0.1, 10.0, dt=0.5, carry=False)
    Own()  # type: ignore[call-arg]
    Own(lr="fast")  # type: ignore[arg-type]
    Own(0.1, timedim=0)  # type: ignore[call-arg]
    Own(0.1, 10.0, 1.0)  # type: ignore[call-arg]

    STDP(0.1, -0.1, 20.0, 20.0, trace_mode="nearest", params=["bias"])
    STDP(0.1, -0.1, trace_mode="closest")  # type: ignore[arg-type]
    EProp(0.1, tc_readout=None, threshold=1.0)

    rule = BCM(0.1)
    assert_type(rule.defaults.tc_threshold, float)
    rule.defaults.tc_treshold  # type: ignore[attr-defined]  # noqa: B018
    rule.updat()  # type: ignore[attr-defined]
    rule.lr = 0.2  # type: ignore[misc]
