"""Principal components of a stream that drifts, by Sanger's rule with 8 × 64 numbers.

The directions in which a stream of 64 numbers varies turn slowly, all the time. Each learner sees
20 samples at once, keeps none of them, and is asked for eight directions. The result is the
variance of the stream in them, in percent of what the best eight have, over the second half of the
stream.

Sanger's rule (1989, doi:10.1016/0893-6080(89)90044-0) at a constant rate forgets by itself. The
controls: a singular value decomposition that is carried from batch to batch and forgets, in as much
memory (Levy & Lindenbaum 2000, doi:10.1109/83.855432); incremental PCA, which does not forget; and
the components of the start. The simple method is a covariance that forgets, in 64 × 64 numbers.
Rates are those that are best on a stream of their own.

    python examples/drifting_pca.py [--seeds 5] [--picture drifting_pca.png] [--short]
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial

import torch
from _experiment import arguments, curves, report, save, spread
from matplotlib.figure import Figure
from sklearn.decomposition import IncrementalPCA  # type: ignore[import-untyped]
from torch import Tensor, nn

from lightning_accum import Cell, RuleTrainer, Sanger

SIZE, KEPT, BATCH = 64, 8, 20
TURN = 0.005  # radians a batch, of the fastest plane
Learner = Callable[[Tensor], Tensor]  # a batch to directions, [KEPT, SIZE]


def stream(batches: int, seed: int) -> Iterable[tuple[Tensor, Tensor]]:
    """Batches of samples ``[BATCH, SIZE]``, each with its covariance."""
    generator = torch.Generator().manual_seed(seed)
    turn = torch.randn(SIZE, SIZE, generator=generator)
    turn = turn - turn.T
    turn = torch.linalg.matrix_exp(TURN / torch.linalg.matrix_norm(turn, 2) * turn)
    axes = torch.linalg.qr(torch.randn(SIZE, SIZE, generator=generator)).Q
    deviations = 0.85 ** torch.arange(SIZE)
    for _ in range(batches):
        axes = turn @ axes
        mixing = axes * deviations
        yield torch.randn(BATCH, SIZE, generator=generator) @ mixing.T, mixing @ mixing.T


def sanger(rate: float) -> Learner:
    """Neurons under Sanger's rule, in 8 × 64 numbers."""
    connection, neurons = nn.Linear(SIZE, KEPT, bias=False), nn.Identity()
    torch.manual_seed(0)
    nn.init.orthogonal_(connection.weight.requires_grad_(False))
    trainer = RuleTrainer(Sanger(rate))
    trainer.register_cell("components", Cell(connection, neurons))

    def see(x: Tensor) -> Tensor:
        neurons(connection(x))
        trainer()
        trainer.update()
        return connection.weight

    return see


def decomposition(forget: float) -> Learner:
    """A truncated singular value decomposition that forgets, in 8 × 64 numbers."""
    kept = torch.zeros(KEPT, SIZE)

    def see(x: Tensor) -> Tensor:
        both = torch.cat([(1 - forget) ** 0.5 * kept, (forget / BATCH) ** 0.5 * x])
        _, values, rows = torch.linalg.svd(both, full_matrices=False)
        kept.copy_(values[:KEPT, None] * rows[:KEPT])
        return rows[:KEPT]

    return see


def covariance(forget: float) -> Learner:
    """The directions of a covariance that forgets, in 64 × 64 numbers."""
    kept = torch.zeros(SIZE, SIZE)

    def see(x: Tensor) -> Tensor:
        kept.lerp_(x.T @ x / BATCH, forget)
        return torch.linalg.eigh(kept).eigenvectors[:, -KEPT:].T

    return see


def incremental(_: float, last: int | None = None) -> Learner:
    """Incremental PCA, which forgets nothing; of the first batches only, if ``last`` is set."""
    pca, seen = IncrementalPCA(KEPT), [0]

    def see(x: Tensor) -> Tensor:
        seen[0] += 1
        if last is None or seen[0] <= last:
            pca.partial_fit(x.numpy())
        return torch.as_tensor(pca.components_, dtype=x.dtype)

    return see


def follow(learner: Learner, batches: int, seed: int) -> Tensor:
    """The share in percent of the best eight directions' variance, after each batch."""
    found = []
    for x, truth in stream(batches, seed):
        axes = torch.linalg.qr(learner(x).T).Q
        best = torch.linalg.eigvalsh(truth)[-KEPT:].sum()
        found.append(100 * (axes.T @ truth @ axes).trace() / best)
    return torch.stack(found)


RATES = (0.05, 0.1, 0.2, 0.3, 0.5)
SMALL, LARGE = KEPT * SIZE, SIZE * SIZE  # numbers that are kept from batch to batch
LEARNERS: dict[str, tuple[Callable[[float], Learner], int, tuple[float, ...]]] = {
    "Sanger's rule": (sanger, SMALL, RATES),
    "decomposition that forgets": (decomposition, SMALL, RATES),
    "incremental PCA": (incremental, SMALL, ()),
    "components of the start": (partial(incremental, last=50), SMALL, ()),
    "covariance that forgets": (covariance, LARGE, RATES),
}


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, 100 batches", seeds=5)
    batches = 100 if args.short else 1000
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="sklearn")
    found, took = dict[str, Tensor](), 0.0
    print("share of the variance in the best eight directions:")
    for name, (make, memory, rates) in LEARNERS.items():
        start = time.process_time()
        tried = {rate: follow(make(rate), batches, 1000)[batches // 2 :].mean() for rate in rates}
        rate = max(tried, key=tried.__getitem__) if tried else 0.0
        found[name] = torch.stack([follow(make(rate), batches, i) for i in range(args.seeds)])
        took = took or time.process_time() - start
        print(f"  {name}: {memory:,} numbers" + (f", rate {rate:g}" if rate else ""))
    late = {name: runs[:, batches // 2 :].mean(1).tolist() for name, runs in found.items()}
    values = {name: spread(each, digits=2) for name, each in late.items()}
    (_, result), *controls, simple = values.items()
    speed = (args.seeds + len(RATES)) * batches * BATCH / took
    report(result, speed, dict(controls), dict([simple]))
    axes = Figure(figsize=(6, 3), layout="constrained").subplots()
    for i, (name, runs) in enumerate(found.items()):
        curves(axes, range(batches), runs, f"C{i}", name)
    axes.set(xlabel="batches", ylabel="share of variance (%)")
    axes.legend(frameon=False, fontsize=7)
    save(axes.figure, args.picture, 120)


if __name__ == "__main__":
    main()
