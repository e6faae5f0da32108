"""A synapse is found and strengthened by rewards that come seconds after its pairs of spikes.

This is the distal reward problem of Izhikevich (2007, doi:10.1093/cercor/bhl152). Of 5,000
synapses one is chosen: whenever its neuron spikes within 10 ms of its input, a reward comes 1 to 3
seconds later, after many more spikes on both sides. STDP makes each synapse eligible for about a
second, a reward releases dopamine for 0.2 seconds, and a weight changes by the product of both. By
chance, others are eligible too when dopamine comes, but not each time. In the control, the chosen
synapse gets rewards as often, at times that have nothing to do with its own pairs.

Time constants and levels of dopamine are the paper's. What differs: the network is one layer of LIF
neurons with noise, instead of 1,000 recurrent neurons, and eight copies with their own spikes and
their own dopamine share its weights, as a batch. In the control, each gets the rewards of another.

    python examples/distal_reward.py [--seeds 3] [--picture distal_reward.png] [--short]
"""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from _experiment import arguments, curves, save, spread
from _quiet import SILENT, quiet
from matplotlib.figure import Figure, SubFigure
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum.functional import decay_factor, trace
from lightning_accum.nn import LIF, Linear

INPUTS, NEURONS, COPIES, STEPS = 100, 50, 8, 1000  # a batch is one second, in steps of 1 ms
RATE, NOISE = 1.0, 0.12  # of inputs, in Hz; of the current of a neuron in a step
FIRST, STRONGEST = 0.1, 0.4  # weights, relative to the threshold
UP, DOWN, TC_ELIGIBLE, STDP_DECAY = 0.3, -0.45, 1000.0, decay_factor(20.0)
DOPAMINE = la.Neuromodulator(tc=200.0, baseline=0.002, gain=0.5)  # µM, by each reward


class Network(pl.LightningModule):
    """Inputs that spike by chance, and noisy neurons, the first of which is rewarded."""

    def __init__(self, control: bool) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.control = control
        self.fc = Linear(INPUTS, NEURONS, bias=False).requires_grad_(False)
        nn.init.constant_(self.fc.weight, FIRST)
        updater = la.attach_updater(self.fc, "weight")
        updater.register_constraint(la.Clamp(0.0, STRONGEST))
        self.lif = LIF(NEURONS, tc_mem=20.0, time_dim=0)
        self.due = torch.zeros(4 * STEPS, COPIES)  # rewards of this second and of three to come
        self.weights, self.seen = list[Tensor](), list[Tensor]()

    def training_step(self, batch: int, batch_idx: int) -> dict[str, Tensor]:
        spikes = torch.rand(STEPS, COPIES, INPUTS) < RATE / 1000
        noise = NOISE * torch.randn(STEPS, COPIES, NEURONS)
        answers = self.lif(self.fc(spikes) + noise)
        pre, post = spikes[:, :, 0].float(), answers[:, :, 0]
        lately = pre.unfold(0, 10, 1).amax(-1)  # in the latest 10 ms
        self.due = torch.cat([self.due[STEPS:], torch.zeros(STEPS, COPIES)])
        for step, copy in (lately * post[9:]).nonzero().tolist():
            late = step + 9 + 1000 + int(torch.randint(2000, ()))
            self.due[late, (copy + self.control) % COPIES] += 1
        reward = self.due[:STEPS]
        self.seen.append(torch.stack([pre, post, reward]))
        self.weights.append(self.fc.weight.flatten().clone())
        return {"reward": reward}

    def configure_optimizers(self) -> None:
        return None


def learn(seed: int, control: bool, seconds: int) -> Network:
    """A network that has learned."""
    pl.seed_everything(seed, verbose=False)
    network = Network(control)
    rule = la.MSTDPET(UP, DOWN, tc_eligibility=TC_ELIGIBLE, reward=DOPAMINE)
    options = {"time_dim": 0, "batch_reduction": "sum", "carry": True, "input_keys": ["reward"]}
    cells = {"layer": la.CellSpec("fc", "lif")}
    learner = la.CellTrainerCallback(rule, cells, summary=False, **options)
    trainer = pl.Trainer(max_epochs=1, callbacks=[learner], accelerator="cpu", **SILENT)
    trainer.fit(network, DataLoader(range(seconds), batch_size=None))
    return network


def draw_reward(figure: SubFigure, network: Network) -> None:
    """Draws spikes of the chosen synapse, its eligibility, and the reward that follows."""
    pre, post, reward = torch.cat(network.seen, dim=1).unbind(0)
    step, copy = reward[4000:-2000].nonzero()[0].tolist()  # the reward comes after 4 of 6 seconds
    pre, post, reward = pre[:, copy], post[:, copy], reward[:, copy]
    pairs = UP * post * trace(pre, STDP_DECAY) + DOWN * trace(post, STDP_DECAY) * pre
    eligible = trace(pairs, decay_factor(TC_ELIGIBLE)) / TC_ELIGIBLE
    level = DOPAMINE.baseline + DOPAMINE.gain * trace(reward, decay_factor(DOPAMINE.tc))
    some, seconds = slice(step, step + 6000), torch.arange(6000) / 1000
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 3])
    spikes = [seconds[side[some] > 0] for side in (post, pre)]
    above.eventplot(spikes, colors=["tab:blue", "k"], linelengths=0.8)
    above.set(yticks=[0, 1], yticklabels=["neuron", "input"], title="One reward")
    below.plot(seconds, 1000 * eligible[some], label="eligibility (1/1,000)")
    below.plot(seconds, level[some], color="tab:red", label="dopamine (µM)")
    below.set(xlabel="seconds", xlim=(0, 6))
    below.legend(fontsize=7)


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, 20 seconds", seconds=600)
    args.seconds = 20 if args.short else args.seconds
    quiet()
    torch.set_num_threads(1)
    figure = Figure(figsize=(9, 3), layout="constrained")
    left, right = figure.subfigures(1, 2)
    axes = right.subplots()
    for control, colour in ((True, "0.6"), (False, "tab:blue")):
        networks = [learn(seed, control, args.seconds) for seed in range(args.seeds)]
        weights = torch.stack([torch.stack(each.weights) for each in networks])
        chosen, others = weights[..., 0], weights[..., 1:]
        name = "rewards of another copy" if control else "its own rewards"
        curves(axes, range(args.seconds), chosen, colour, name)
        rank = (others[:, -1] > chosen[:, -1:]).sum(1) + 1
        found = spread(chosen[:, -1].tolist(), "", 2)
        print(f"{name}: weight {found}, rank of 5,000: {rank.tolist()}")
    axes.plot(others.mean((0, 2)), color="k", ls=":", label="mean of all others")
    axes.set(title="The chosen synapse", xlabel="seconds", ylabel="weight", ylim=(0, 0.42))
    axes.legend(fontsize=7)
    draw_reward(left, networks[0])
    save(figure, args.picture, 120)


if __name__ == "__main__":
    main()
