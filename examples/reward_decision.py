"""A spiking network decides which digit it sees, and learns to from reward.

After Mozafari et al. (2019, doi:10.1016/j.patcog.2019.05.015), at a small size. The convolution of
`conv_stdp.py` learns without labels. Of 200 neurons above it, 20 for each digit, the first to spike
decides. If it is right, it learns by STDP, otherwise by the reverse. From rewards, 1 and -1, their
running mean is subtracted, which makes the paper's adaptive rates. Thresholds rise with activity
while it learns.

Controls have the same features, and no more than a reward for each decision: a network whose images
have the reward of others of their batch, one that does not learn, and 200 centres of k-means that
decide by the nearest, whose digits are found by trying them. Simple methods that know the digits,
instead of whether a decision was right, do better than all of these: centres of k-means of each
digit, their means, and a linear readout by least squares.

    python examples/reward_decision.py [--seeds 5] [--picture reward_decision.png] [--short]
"""

from __future__ import annotations

import time
from functools import partial

import lightning.pytorch as pl
import numpy as np
import torch
from _controls import by_classes, k_means, nearest, nearest_sample, repeated, ridge, share
from _data import Split, load_mnist5k
from _experiment import arguments, report, spread
from _local import Local, see
from _quiet import quiet
from conv_stdp import MAPS, STEPS, Network, spots
from matplotlib.image import imsave
from torch import Tensor, nn
from torch.nn.functional import conv_transpose2d
from torch.optim.lr_scheduler import ExponentialLR

from lightning_accum import MSTDP, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.nn import AdaptiveLIF, Linear, RewardBaseline, WinnerTakeAll

EACH, EPOCHS = 20, 8  # neurons for each digit, and how often each image is seen


def first_spikes(net: Network, times: Tensor) -> Tensor:
    """The step in which each map first spikes in windows of 4 × 4; STEPS: never."""
    return STEPS - net.early(times, 4, 4)


class Decision(Local):
    """Spikes of features → plastic connection → neurons, of which the first to spike decides."""

    def __init__(self, times: Tensor, shuffled: bool) -> None:
        super().__init__()
        self.shuffled = shuffled
        length = (times < STEPS).sum(1).float().mean().sqrt().item()  # of an image's spikes
        self.fc = Linear(times.shape[1], 10 * EACH, bias=False).requires_grad_(False)
        self.lif = AdaptiveLIF(
            10 * EACH, 1e6, 0.1 * length, v_threshold=0.6 * length, refractory=STEPS, time_dim=0
        )
        self.lif.inhibition = WinnerTakeAll(STEPS)
        self.expected = RewardBaseline(decay=0.999, initial=-0.8)  # by chance
        nn.init.uniform_(self.fc.weight)
        updater = attach_updater(self.fc, "weight")
        for constraint in (Clamp(min=0.0), Normalize(norm=1.0, order=2)):
            constraint(self.fc.weight)
            updater.register_constraint(constraint)

    def forward(self, times: Tensor) -> Tensor:
        """The digits that are decided for; the last step drives all neurons, so that one spikes."""
        self.lif.reset()
        currents = self.fc(times == torch.arange(STEPS).view(-1, 1, 1))
        currents[-1] += 100 * self.lif.v_threshold
        return self.lif(currents).sum(0).argmax(1) // EACH

    def training_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> dict[str, Tensor]:
        right = 2.0 * (self(batch[0]) == batch[1]) - 1
        self.lif.theta -= self.lif.theta.mean()
        if self.shuffled:
            order = torch.randperm(len(right))
            right[order] = right[order.roll(1)]  # each image has the reward of another
        return {"reward": self.expected(right)}

    def learn(self, times: Tensor, labels: Tensor) -> None:
        """Sees each image eight times, at rates that fall to a tenth."""
        rule = MSTDP(0.015, -0.015, 1e6, 1e6)
        slower = {"lr_scheduler": partial(ExponentialLR, gamma=0.75), "lr_interval": "epoch"}
        options = {"batch_size": 10, "epochs": EPOCHS, "input_keys": ["reward"], **slower}
        options |= {"time_dim": 0, "batch_reduction": "sum"}
        see(self, rule, CellSpec("fc", "lif"), times, labels, **options)
        self.lif.theta.zero_()
        self.eval()


def by_reward(early: Split, seed: int, spherical: bool) -> float:
    """What 200 centres of k-means reach that decide by the nearest, and find digits by reward.

    Each centre tries the digit that seems most often right, by Thompson sampling, for as many
    decisions as the network has.
    """
    centres = k_means(early.train_images, 10 * EACH, seed, spherical)
    found, unseen = (nearest(part, centres, spherical) for part in early[::2])
    generator, tries = np.random.default_rng(seed), np.ones((2, len(centres), 10))  # wrong, right
    for _ in range(EPOCHS):
        for i in generator.permutation(len(found)):
            wrong, right = tries[:, found[i]]
            digit = int(generator.beta(right, wrong).argmax())
            tries[int(digit == early.train_labels[i]), found[i], digit] += 1
    digits = torch.as_tensor((tries[1] / tries.sum(0)).argmax(1))
    return share(digits[unseen], early.test_labels)


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, 400 images", seeds=5, fold=0)
    quiet()
    torch.set_num_threads(1)
    data = load_mnist5k(args.fold)
    data = data.first(400) if args.short else data
    seen = data.map(spots)
    learned, untrained, once, seconds = list[float](), list[float](), dict[str, float](), 0.0
    for seed in range(args.seeds):
        pl.seed_everything(seed, verbose=False)
        net = Network()
        net.learn(seen.train_images[:1000])
        times = seen.map(partial(first_spikes, net))
        train, test = times[::2]
        layer = Decision(train, shuffled=False)
        untrained.append(share(layer(test), data.test_labels))
        seconds -= time.process_time()
        layer.learn(train, data.train_labels)
        seconds += time.process_time()
        learned.append(share(layer(test), data.test_labels))
        if seed == 0:  # what is fitted once counts for each seed
            early = times.map(lambda found: (STEPS - found).float())
            other = Decision(train, shuffled=True)
            other.learn(train, data.train_labels)
            once["rewards shuffled"] = share(other(test), data.test_labels)
            once["k-means, digits by reward"] = by_reward(early, seed, spherical=False)
            once["spherical k-means, digits by reward"] = by_reward(early, seed, spherical=True)
            simple = {
                "nearest of 20 centres of k-means of each digit": by_classes(early, EACH, seed),
                "the same, spherical": by_classes(early, EACH, seed, spherical=True),
                "nearest mean of a digit": by_classes(early, 1, seed),
                "ridge regression": ridge(early),
                "nearest image": nearest_sample(early),
            }
    controls = {"untrained": spread(untrained), **repeated(once, args.seeds)}
    speed = args.seeds * EPOCHS * len(train) / seconds
    report(spread(learned), speed, controls, repeated(simple, args.seeds))
    filters = net.conv.weight[:, :1] - net.conv.weight[:, 1:]  # light spots less dark ones
    fields = conv_transpose2d(layer.fc.weight[::2].view(-1, MAPS, 7, 7), filters, stride=4)
    fields = (fields / fields.amax((1, 2, 3), keepdim=True)).view(10, -1, 29, 29)
    imsave(args.picture, fields.permute(1, 2, 0, 3).reshape(-1, 290).numpy(), cmap="Greys_r")
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
