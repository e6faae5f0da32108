"""Directions of a moving bar, learned by STDP from events that Tonic turns into frames.

A bar moves over an event camera to the left or to the right, and returns at the other side. Its
front makes ON events and its back OFF events, which each pixel has equally often for both
directions: only their order tells. Competing neurons learn without labels, and then stand for the
direction that excites them most. Tonic's frames are counts, which STDP rejects: they are cut to 1.
The picture has each neuron's weights of ON events, red, less those of OFF events, blue.

    pip install "lightning-accum[events]"
    python examples/events_tonic.py [--picture events_tonic.png] [--short]
"""

import argparse
import copy

import numpy as np
import torch
from _experiment import Short, spread
from _local import Local, see
from _quiet import quiet
from tonic.transforms import ToFrame
from torch import Tensor, nn

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater, plot
from lightning_accum.metrics import MaxRateClassifier
from lightning_accum.nn import AdaptiveLIF, WinnerTakeAll

WIDTH, HEIGHT, MS = 16, 8, 100
EVENT = np.dtype([(name, int) for name in "txyp"])  # t in microseconds
to_frames = ToFrame((WIDTH, HEIGHT, 2), time_window=2000, start_time=0, end_time=1000 * MS)


def bar(rng: np.random.Generator, right: bool) -> np.ndarray:
    """Events of a bar, three columns wide, that moves by one in 3 to 5 ms, and 100 of noise."""
    start = np.arange(0, MS, rng.uniform(3, 5))[:, None, None]  # [steps, rows, OFF and ON]
    front = rng.integers(WIDTH) + np.arange(len(start)) * (1 if right else -1)
    events = np.zeros((len(start), HEIGHT, 2), EVENT)
    events["t"] = 1000 * (start + rng.uniform(0, 2, events.shape))
    events["x"] = (front[:, None, None] + [-3 if right else 3, 0]) % WIDTH
    events["y"], events["p"] = np.arange(HEIGHT)[:, None], np.arange(2)
    noise = [rng.integers(most, size=100) for most in (1000 * MS, WIDTH, HEIGHT, 2)]
    kept = events[(events["t"] < 1000 * MS) & (rng.random(events.shape) < 0.8)]
    return np.sort(np.concatenate([kept, np.rec.fromarrays(noise, EVENT)]), order="t")


class Network(Local):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * WIDTH * HEIGHT, 40, bias=False).requires_grad_(False)
        options = {"theta_plus": 0.2, "tc_theta": 1e4, "dt": 2.0, "time_dim": 0}
        self.lif = AdaptiveLIF(40, 10.0, v_threshold=2.0, inhibition=WinnerTakeAll(5), **options)
        nn.init.uniform_(self.fc.weight)
        for constraint in (Clamp(min=0.0), Normalize(norm=1.0, order=2)):
            constraint(self.fc.weight)
            attach_updater(self.fc, "weight").register_constraint(constraint)

    def forward(self, frames: Tensor) -> Tensor:
        self.lif.reset()
        return self.lif(self.fc(frames.transpose(0, 1).flatten(2)))


def accuracy(net: Network, frames: Tensor, labels: Tensor, tests: int = 300) -> float:
    readout, rates = MaxRateClassifier(num_neurons=40, num_classes=2), net.eval()(frames).sum(0)
    readout.update(rates[:-tests], labels[:-tests])
    return 100 * (readout.predict(rates) == labels)[-tests:].float().mean().item()


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--short", action=Short, help="one seed, fewer samples")
parser.add_argument("--picture", default="events_tonic.png", help="where to draw to")
args, rng, learned, untrained = parser.parse_args(), np.random.default_rng(0), [], []
quiet()
labels = torch.arange(600 if args.short else 1500) % 2
counts = torch.from_numpy(np.stack([to_frames(bar(rng, label == 1)) for label in labels]))
print(f"events of a pixel in a frame: up to {counts.max()}, cut to 1 in {(counts > 1).sum()}")
frames = counts.clamp(max=1).float()
for seed in range(1 if args.short else 5):
    torch.manual_seed(seed)
    net, rule = Network(), STDP(0.02, -0.006, tc_pre=10.0, tc_post=10.0)
    untrained.append(accuracy(copy.deepcopy(net), frames, labels))
    see(net, rule, CellSpec("fc", "lif"), frames[:-300], batch_size=8, dt=2.0, time_dim=0)
    learned.append(accuracy(net, frames, labels))
print(f"test accuracy, untrained: {spread(untrained)}\nresult: {spread(learned)}, by chance 50 %")
off, on = net.fc.weight.view(-1, 2, HEIGHT, WIDTH).unbind(1)
plot.weights(on - off, columns=8)[0].savefig(args.picture, dpi=100)
print(f"drawn to {args.picture}")
