"""A recurrent spiking network tells nine speakers apart by one vowel sound, and learns by e-prop.

Real speech: JapaneseVowels (Kudo et al. 1999, doi:10.1016/S0167-8655(99)00077-X), twelve cepstral
coefficients of 7 to 29 frames. Each frame drives the network for four steps, and the answer is the
mean of the readout. The error reaches the neurons by the readout's own weights; no graph is kept.
The control is the network as it is at first, its input at the scale that suits it best, with a
linear readout fitted until it converges. Linear readouts of an utterance's mean frame, and of the
means of its thirds, have no network.

    python examples/speech.py [--seeds 5] [--fold 0] [--picture speech.png] [--short]

One of five folds of all 640 utterances is to test on. Its files: `pip install --no-deps aeon`.
"""

from __future__ import annotations

import importlib.util
import time
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import torch
from _controls import UNTRAINED, linear, linear_behind, seen_by
from _data import Split, split_at_random
from _experiment import arguments, curves, report, save, spread
from _recurrent import LEARNERS, REFITTED, TITLES, Recurrent
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import one_hot

STEPS, CHANNELS, SPEAKERS, FRAMES = 4, 12, 9, 29  # of 1 ms, for which a frame is shown
NEURONS, BATCH, EPOCHS = 100, 16, 8


def load(fold: int) -> Split:
    """Frames ``[N, FRAMES, CHANNELS]``, zeros before the first, in the scale of those to train."""
    package = importlib.util.find_spec("aeon")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "The recordings come with aeon, which is not installed. Install it with"
            " `pip install --no-deps aeon`."
        )
    folder = Path(package.origin).parent / "datasets" / "data" / "JapaneseVowels"
    parts = [read(folder / f"JapaneseVowels_{part}.ts") for part in ("TRAIN", "TEST")]
    split = split_at_random(*(torch.cat(both) for both in zip(*parts, strict=True)), fold)
    seen = split.train_images[heard(split.train_images)]

    def scaled(frames: Tensor) -> Tensor:
        return torch.where(heard(frames)[..., None], (frames - seen.mean(0)) / seen.std(0), 0.0)

    train, test = (scaled(part) for part in split[::2])
    return split._replace(train_images=train, test_images=test)


def heard(frames: Tensor) -> Tensor:
    """Whether there is sound in a frame, or the utterance has not begun."""
    return frames.any(-1)


def read(path: Path) -> tuple[Tensor, Tensor]:
    """Utterances of a file, a channel's frames after the other's in a line, and their speakers."""
    lines = [line for line in path.read_text().splitlines() if line and line[0] not in "#@"]
    frames, speakers = torch.zeros(len(lines), FRAMES, CHANNELS), []
    for i, line in enumerate(lines):
        *channels, speaker = line.split(":")
        values = torch.tensor([[float(x) for x in channel.split(",")] for channel in channels])
        frames[i, -values.shape[1] :] = values.T
        speakers.append(int(speaker) - 1)
    return frames, torch.tensor(speakers)


class Listener(Recurrent):
    """Answers by the mean of the readout over an utterance, the loss of which is cross entropy."""

    graded_input = True

    def answer(self, y: Tensor, target: Tensor) -> Tensor:
        """Returns the mean outputs ``[B, SPEAKERS]`` of the steps with a speaker."""
        heard = (target >= 0).unsqueeze(-1)
        return (y * heard).sum(0) / heard.sum(0)

    def error(self, y: Tensor, target: Tensor) -> Tensor:
        heard = (target >= 0).unsqueeze(-1)
        wrong = self.answer(y, target).softmax(-1) - one_hot(target[-1], SPEAKERS)
        return wrong * heard / heard.sum(0)

    def score(self, y: Tensor, target: Tensor) -> float:
        """Returns the share of right answers."""
        return float((self.answer(y, target).argmax(-1) == target[-1]).float().mean())


def shown(frames: Tensor, speakers: Tensor) -> tuple[Tensor, Tensor]:
    """What the network gets, in steps: frames ``[T, B, CHANNELS]``; speakers ``[T, B]``, or -1."""
    target = torch.where(heard(frames), speakers[:, None], -1)
    return tuple(part.transpose(0, 1).repeat_interleave(STEPS, 0) for part in (frames, target))


def make(learner: str, seed: int) -> Listener:
    """Returns a network that is to learn, by one of ``LEARNERS``."""
    pl.seed_everything(seed, verbose=False)
    return Listener(CHANNELS, NEURONS, SPEAKERS, learner, lr=0.005, penalty=0.01, target_rate=20.0)


def learn(learner: str, data: Split, epochs: int, seed: int) -> Listener:
    """Trains a network."""
    network, count = make(learner, seed), len(data.train_labels)
    orders = (torch.randperm(count).split(BATCH) for _ in range(epochs))
    parts = data.train_images, data.train_labels
    batches = [shown(*(part[some] for part in parts)) for order in orders for some in order]
    network.learn(batches, seed)
    return network


def mean_of(network: Listener, frames: Tensor) -> Tensor:
    """What the readout weighs, ``[B, NEURONS]``: the mean of the filtered spikes."""
    x, target = shown(frames, torch.zeros(len(frames), dtype=torch.long))
    return network.answer(network.filtered(x), target)


def of_thirds(frames: Tensor, parts: int = 3) -> Tensor:
    """The means of the thirds of an utterance's frames, ``[B, 3 * CHANNELS]``."""
    each = ([part.mean(0) for part in some[heard(some)].tensor_split(parts)] for some in frames)
    return torch.stack([torch.cat(means) for means in each])


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, one epoch", fold=0)
    epochs = 1 if args.short else EPOCHS
    torch.set_num_threads(1)
    split = load(args.fold)
    x, target = shown(*split[2:])
    reached, networks, speeds = {}, {}, {}
    for learner in LEARNERS:
        start = time.process_time()
        runs = [learn(learner, split, epochs, seed) for seed in range(args.seeds)]
        seconds = time.process_time() - start
        networks[learner] = runs
        speeds[learner] = len(runs) * epochs * len(split.train_labels) / seconds
        reached[learner] = spread([100 * network.score(network(x), target) for network in runs])
        print(f"{TITLES[learner]:28s} {reached[learner]}", flush=True)
    fixed = [linear_behind(split, partial(mean_of, make("bptt", s))) for s in range(args.seeds)]
    refitted = [linear(seen_by(split, partial(mean_of, run))) for run in networks["symmetric"]]
    mean, thirds = (linear(seen_by(split, partial(of_thirds, parts=parts))) for parts in (1, 3))
    print(f"{REFITTED:28s} {spread(refitted)}")
    simple = {
        "linear, of the mean frame": spread([mean] * args.seeds),
        "linear, of the means of thirds": spread([thirds] * args.seeds),
        "BPTT": reached["bptt"],
    }
    report(reached["symmetric"], speeds["symmetric"], {UNTRAINED: spread(fixed)}, simple)
    histories = {learner: [run.history for run in runs] for learner, runs in networks.items()}
    draw(histories, -(-len(split.train_labels) // BATCH), args.picture)


def draw(histories: dict[str, list[list[float]]], batches: int, path: str) -> None:
    """Draws the share of right answers in the batches of each epoch, before they are learned."""
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for learner, colour in zip(LEARNERS, ("C0", "C2", "C3"), strict=True):
        shares = torch.tensor(histories[learner])
        shares = 100 * shares.unflatten(1, (-1, batches)).mean(2)
        curves(axes, range(shares.shape[1]), shares, colour, TITLES[learner])
    axes.set(xlabel="epoch", ylabel="right answers, %", ylim=(0, 102))
    axes.legend(frameon=False, fontsize=8)
    save(figure, path, dpi=72)


if __name__ == "__main__":
    main()
