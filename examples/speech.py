"""A recurrent spiking network tells nine speakers apart by one vowel sound, and learns by e-prop.

Real speech: JapaneseVowels (Kudo et al. 1999, doi:10.1016/S0167-8655(99)00077-X), twelve cepstral
coefficients of 7 to 29 frames. Each frame drives the network for four steps, and the answer is the
mean of the readout. The error reaches the neurons by the readout's own weights; no graph is kept.
Controls are the same network, of which only the readout learns, and a linear readout of an
utterance's mean frame, which knows nothing of time.

    python examples/speech.py [--seeds 5] [--fold 0] [--picture speech.png] [--short]

Split 0 is the published one, 270 utterances to train and 370 to test; others mix them first. The
files come with aeon, which is not imported: `pip install --no-deps aeon`.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import NamedTuple

import lightning.pytorch as pl
import torch
from _data import Split
from _linear_readout import linear_accuracy
from _recurrent import CONTROL, TITLES, Recurrent
from _result import arguments, curves, report, save, spread
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import one_hot

STEPS, CHANNELS, SPEAKERS, FRAMES = 4, 12, 9, 29  # of 1 ms, for which a frame is shown
NEURONS, BATCH, EPOCHS = 100, 16, 15
LEARNERS = (*TITLES, CONTROL)


class Utterances(NamedTuple):
    """Frames ``[N, FRAMES, CHANNELS]``, zeros before the first, and of each whose it is, or -1."""

    frames: Tensor
    speakers: Tensor


def load(split: int) -> tuple[Utterances, Utterances]:
    """Utterances to train on and to test on, scaled to those to train on."""
    package = importlib.util.find_spec("aeon")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "The recordings come with aeon, which is not installed. Install it with"
            " `pip install --no-deps aeon`."
        )
    folder = Path(package.origin).parent / "datasets" / "data" / "JapaneseVowels"
    parts = [read(folder / f"JapaneseVowels_{part}.ts") for part in ("TRAIN", "TEST")]
    count = len(parts[0].frames)
    frames, speakers = (torch.cat(both) for both in zip(*parts, strict=True))
    if split:
        order = torch.randperm(len(frames), generator=torch.Generator().manual_seed(split))
        frames, speakers = frames[order], speakers[order]
    heard = speakers >= 0
    seen = frames[:count][heard[:count]]
    frames = torch.where(heard[..., None], (frames - seen.mean(0)) / seen.std(0), 0.0)
    return Utterances(frames[:count], speakers[:count]), Utterances(
        frames[count:], speakers[count:]
    )


def read(path: Path) -> Utterances:
    """Utterances of a file: in a line a channel's frames after the other's, and the speaker."""
    lines = [line for line in path.read_text().splitlines() if line and line[0] not in "#@"]
    frames = torch.zeros(len(lines), FRAMES, CHANNELS)
    speakers = torch.full((len(lines), FRAMES), -1)
    for i, line in enumerate(lines):
        *channels, speaker = line.split(":")
        values = torch.tensor([[float(x) for x in channel.split(",")] for channel in channels])
        frames[i, -values.shape[1] :] = values.T
        speakers[i, -values.shape[1] :] = int(speaker) - 1
    return Utterances(frames, speakers)


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


def shown(some: Utterances) -> tuple[Tensor, Tensor]:
    """What the network gets, in steps: frames ``[T, B, CHANNELS]`` and speakers ``[T, B]``."""
    return tuple(part.transpose(0, 1).repeat_interleave(STEPS, 0) for part in some)


def learn(learner: str, data: Utterances, epochs: int, seed: int) -> Listener:
    """Trains a network by one of ``LEARNERS``."""
    pl.seed_everything(seed, verbose=False)
    network = Listener(
        CHANNELS, NEURONS, SPEAKERS, learner, lr=0.005, penalty=0.01, target_rate=20.0
    )
    orders = (torch.randperm(len(data.frames)).split(BATCH) for _ in range(epochs))
    batches = [
        shown(Utterances(*(part[some] for part in data))) for order in orders for some in order
    ]
    network.learn(batches, seed)
    return network


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, one epoch", fold=0)
    epochs = 1 if args.short else EPOCHS
    torch.set_num_threads(1)
    train, test = load(args.fold)
    x, target = shown(test)
    reached, histories, speeds = {}, {}, {}
    for learner in LEARNERS:
        start = time.process_time()
        networks = [learn(learner, train, epochs, seed) for seed in range(args.seeds)]
        speeds[learner] = args.seeds * epochs * len(train.frames) / (time.process_time() - start)
        reached[learner] = [100 * network.score(network(x), target) for network in networks]
        histories[learner] = [network.history for network in networks]
        print(f"{TITLES.get(learner, learner):28s} {spread(reached[learner])}", flush=True)
    plain = [by_mean_frame(train, test)] * args.seeds
    controls = {CONTROL: spread(reached[CONTROL]), "linear, of the mean frame": spread(plain)}
    report(spread(reached["symmetric"]), speeds["symmetric"], controls)
    draw(histories, args.picture)


def by_mean_frame(train: Utterances, test: Utterances) -> float:
    """The share of right answers, in percent, of a linear readout of the mean over frames."""
    heard = [(part.speakers >= 0).unsqueeze(-1) for part in (train, test)]
    means = [
        part.frames.sum(1) / mask.sum(1) for part, mask in zip((train, test), heard, strict=True)
    ]
    split = Split(means[0], train.speakers[:, -1], means[1], test.speakers[:, -1])
    return linear_accuracy(split, *means)


def draw(histories: dict[str, list[list[float]]], path: str) -> None:
    """Draws the share of right answers in the batches of each epoch, before they are learned."""
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for learner, colour in zip(LEARNERS, ("C0", "C2", "C3", "0.5"), strict=True):
        shares = torch.tensor(histories[learner])
        shares = 100 * shares.unflatten(1, (-1, -(-270 // BATCH))).mean(2)
        curves(axes, range(shares.shape[1]), shares, colour, TITLES.get(learner, learner))
    axes.set(xlabel="epoch", ylabel="right answers, %", ylim=(0, 102))
    axes.legend(frameon=False, fontsize=8)
    save(figure, path, dpi=72)


if __name__ == "__main__":
    main()
