"""A spiking network decides which digit it sees, and learns to from reward.

After Mozafari et al. (2019, doi:10.1016/j.patcog.2019.05.015), at a small size. The convolution of
`conv_stdp.py` learns without labels. Of 200 neurons above it, 20 for each digit, the first to spike
decides. If it is right, it learns by STDP, otherwise by the reverse. From rewards, 1 and -1, their
running mean is subtracted, which makes the paper's adaptive rates. Thresholds rise with activity
while it learns. In the control, each image has the reward of another of its batch.

    python examples/reward_decision.py [--seeds 5] [--picture reward_decision.png] [--short]
"""

from __future__ import annotations

import time
from functools import partial

import lightning.pytorch as pl
import torch
from _data import load_mnist5k
from _local import Local, see
from _quiet import quiet
from _result import arguments, report, spread
from conv_stdp import MAPS, STEPS, Network, spots
from matplotlib.image import imsave
from torch import Tensor, nn
from torch.nn.functional import conv_transpose2d, max_pool2d
from torch.optim.lr_scheduler import ExponentialLR

from lightning_accum import MSTDP, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.nn import AdaptiveLIF, Linear, RewardBaseline, WinnerTakeAll

EACH, EPOCHS = 20, 8  # neurons for each digit, and how often each image is seen


def first_spikes(net: Network, times: Tensor) -> Tensor:
    """The step in which each map first spikes in windows of 4 × 4; STEPS: never."""
    early = (net(part).cumsum(0).sum(0) for part in times.split(50))
    return torch.cat([STEPS - max_pool2d(part, 4).flatten(1) for part in early])


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


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, 100 images", seeds=5, fold=0)
    quiet()
    torch.set_num_threads(1)
    data = load_mnist5k(args.fold)
    data = data.first(100) if args.short else data
    seen = spots(data.train_images), spots(data.test_images)
    found, seconds = {True: list[float](), False: list[float]()}, 0.0
    for seed in range(args.seeds):
        pl.seed_everything(seed, verbose=False)
        net = Network()
        net.learn(seen[0][:1000])
        train, test = (first_spikes(net, times) for times in seen)
        for shuffled, values in found.items():
            layer = Decision(train, shuffled)
            seconds -= time.process_time()
            layer.learn(train, data.train_labels)
            seconds += time.process_time()
            values.append(100 * (layer(test) == data.test_labels).float().mean().item())
    speed = 2 * args.seeds * EPOCHS * len(train) / seconds
    report(spread(found[False]), speed, {"rewards shuffled": spread(found[True])})
    filters = net.conv.weight[:, :1] - net.conv.weight[:, 1:]  # light spots less dark ones
    fields = conv_transpose2d(layer.fc.weight[::2].view(-1, MAPS, 7, 7), filters, stride=4)
    fields = (fields / fields.amax((1, 2, 3), keepdim=True)).view(10, -1, 29, 29)
    imsave(args.picture, fields.permute(1, 2, 0, 3).reshape(-1, 290).numpy(), cmap="Greys_r")
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
