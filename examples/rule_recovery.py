"""A hidden rule's rates and time constants, found from activity and changes of weights.

Ten windows of 300 ms show spikes of 30 inputs and 20 outputs at 30 Hz, and the change of each
weight by STDP, to which noise is added. Backpropagation through `change_of` finds the two rates and
two time constants, by LBFGS on their logarithms; `fit_rates`, the control, finds them by least
squares and Gauss-Newton steps. Both begin at rates of 1 or 0.1 and time constants of 20 ms, and
minimize the same error, so they should agree.

    python examples/rule_recovery.py [--seeds 5] [--picture rule_recovery.png] [--short]
"""

from __future__ import annotations

import time
from collections.abc import Callable

import matplotlib
import torch
from _experiment import arguments, report, save, spread
from torch import Tensor

from lightning_accum import STDP, RuleTrainer, change_of
from lightning_accum.rules import fit_rates

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HIDDEN = {"lr_post": 0.010, "lr_pre": -0.006, "tc_post": 34.0, "tc_pre": 17.0}
NOISE = (0.0, 0.05, 0.5, 2.0)  # of the changes' standard deviation


def recorded(seed: int, windows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes ``[T, windows, neurons]`` of both sides, and the changes ``[windows, out, in]``."""
    torch.manual_seed(seed)
    pre, post = ((torch.rand(300, windows, n) < 0.03).double() for n in (30, 20))
    return pre, post, change_of(STDP(**HIDDEN), pre, post, torch.zeros(20, 30).double())


def by_gradient(pre: Tensor, post: Tensor, change: Tensor) -> dict[str, float]:
    """Returns the values that LBFGS finds."""
    logs = torch.tensor([0.1, 0.1, 20.0, 20.0]).double().log().requires_grad_()
    optimizer = torch.optim.LBFGS([logs], max_iter=200, line_search_fn="strong_wolfe")
    size, weight = change.square().sum(), torch.zeros_like(change[0])

    def error() -> Tensor:
        optimizer.zero_grad()
        up, down, tc_post, tc_pre = logs.exp().unbind()
        found = change_of(STDP(up, -down, tc_post, tc_pre), pre, post, weight)
        loss = (found - change).square().sum() / size
        loss.backward()
        return loss

    optimizer.step(error)
    up, down, *times = logs.exp().tolist()
    return dict(zip(HIDDEN, (up, -down, *times), strict=True))


def by_least_squares(pre: Tensor, post: Tensor, change: Tensor) -> dict[str, float]:
    """Returns the values that `fit_rates` finds."""
    sides = (each.transpose(0, 1).unsqueeze(2) for each in (pre, post))  # [windows, T, 1, neurons]
    trainer = RuleTrainer(STDP(1.0, -1.0), carry=False)
    return dict(fit_rates(trainer, *sides, change, tune=["tc_post", "tc_pre"]).values)


WAYS: dict[str, Callable[..., dict[str, float]]] = {
    "gradient": by_gradient,
    "fit_rates": by_least_squares,
}


def main() -> None:
    args = arguments(__doc__, __file__, "one seed, two windows", seeds=5)
    torch.set_num_threads(1)
    windows = 2 if args.short else 10
    errors = {way: {noise: [] for noise in NOISE} for way in WAYS}
    took = dict.fromkeys(WAYS, 0.0)
    for seed in range(args.seeds):
        pre, post, clean = recorded(seed, windows)
        draw = torch.randn_like(clean)
        for noise in NOISE:
            for way, found in WAYS.items():
                begun = time.process_time()
                values = found(pre, post, clean + noise * clean.std() * draw)
                took[way] += time.process_time() - begun
                wrong = [abs(values[name] / true - 1) for name, true in HIDDEN.items()]
                errors[way][noise].append(100 * sum(wrong) / len(wrong))
    results = {}
    for way, found in errors.items():
        print(f"{way}: {took[way] / args.seeds / len(NOISE):.2f} s for each set of values")
        for noise, each in found.items():
            print(f"  noise {noise:4.0%}: {spread(each, ' % off', 4)}")
        results[way] = spread(found[0.5], " % off with noise of half the changes' deviation", 2)
    speed = args.seeds * len(NOISE) * windows / took["gradient"]
    report(results["gradient"], speed, {"fit_rates": results["fit_rates"]})
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for (way, found), mark in zip(errors.items(), "ox", strict=True):
        each = torch.tensor([found[noise] for noise in NOISE[1:]])
        axes.loglog(NOISE[1:], each.mean(1), mark, label=way)
    axes.set(xlabel="noise, in deviations of the changes", ylabel="mean error of the values (%)")
    axes.legend(frameon=False)
    save(figure, args.picture, 100)


if __name__ == "__main__":
    main()
