"""How steady the demo's recipe is: its accuracy while one setting at a time is varied.

The network of `examples/digits_stdp.py` on scikit-learn's digits, with its own settings but for the
one that is named. Each column is another fold, which no setting was chosen on, and another seed of
the network. The recipe is steady if no row is more than two points below the first.

    python benchmarks/hyperparameter_sensitivity.py [--smoke] [--only rate] [--neurons 100]
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import warnings
from argparse import Namespace
from contextlib import redirect_stdout

import torch
from _measure import ROOT, setting, table

sys.path.insert(0, str(ROOT / "examples"))
from _data import load_digits_split
from digits_stdp import LR, learn

USUAL = {"rate": 1000.0, "batch_size": 64, "contrast": 1.0, "lr": LR}
VARIED = {
    "lr": (LR / 3, 3 * LR),
    "contrast": (0.5, 0.25),
    "batch_size": (16, 4, 1),
    "rate": (500.0, 250.0, 100.0),
}
NAMES = {
    "rate": "rate of the brightest pixel {:g} Hz",
    "contrast": "contrast × {:g}",
    "lr": "rate of learning {:.2g}",
    "batch_size": "batches of {}",
}


def accuracy(options: dict[str, float], seed: int, args: argparse.Namespace) -> float:
    """Test accuracy in percent of one network."""
    data = load_digits_split(fold=(1 + seed) % 5)
    data = data._replace(
        train_images=data.train_images * options["contrast"],
        test_images=data.test_images * options["contrast"],
    )
    if args.smoke:
        data = data.first(128)  # one for each neuron, at least
    # The progress of a fit is not for the page.
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        quiet = Namespace(neurons=args.neurons, epochs=args.epochs, log_dir=folder)
        return 100 * learn(data, seed, Namespace(**options, **vars(quiet)))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="128 digits, just to see it run")
    parser.add_argument("--only", nargs="*", choices=VARIED, default=list(VARIED), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--neurons", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    if args.smoke:
        args.seeds = args.epochs = 1
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", "The '.*dataloader' does not have many workers")
    warnings.filterwarnings("ignore", ".*treespec", FutureWarning)

    settings = [("the demo's own settings", USUAL)]
    for name in args.only:
        chosen = VARIED[name][:1] if args.smoke else VARIED[name]
        settings += [(NAMES[name].format(v), {**USUAL, name: v}) for v in chosen]
    print(setting("lightning"))
    rows = []
    for label, options in settings:
        found = [accuracy(options, seed, args) for seed in range(args.seeds)]
        each = ", ".join(f"{value:.1f}" for value in found)
        rows.append([label, f"{statistics.mean(found):.1f}", each])
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    print(f"\n{args.neurons} neurons, {args.epochs} epochs\n")
    table(["", "test accuracy in %, mean", "each fold"], rows)


if __name__ == "__main__":
    main()
