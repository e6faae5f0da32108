"""Learns features of handwritten digits with the neurons of another spiking library.

The rule records what goes into the connection and what the library's neurons give out; nothing of
the library is changed. Before the neurons the currents compete, so that one neuron of each sample
is driven at a time. The neurons are then named after the digit that each answers most.

    python examples/foreign_neurons.py [--library norse] [--picture FILE] [--short]
"""

from __future__ import annotations

import argparse
import importlib
import warnings
from importlib.util import find_spec
from typing import Any

import lightning.pytorch as pl
import torch
from _data import Split, load_digits_split
from _experiment import Short
from _local import Local, see
from _quiet import quiet
from torch import Tensor, nn

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater, plot
from lightning_accum.metrics import MaxRateClassifier
from lightning_accum.nn import Competition, PoissonEncoder

STEPS = 50
MODULES = {
    "snntorch": "snntorch",
    "norse": "norse.torch",
    "spikingjelly": "spikingjelly.activation_based.neuron",
}


class Digits(Local):
    """Poisson input → plastic connection → competition → neurons of a library."""

    def __init__(self, library: str, neurons: int = 100) -> None:
        super().__init__()
        self.library = library
        self.encoder = PoissonEncoder(STEPS, max_rate=1000.0)
        self.fc = nn.Linear(64, neurons, bias=False)
        made: Any = importlib.import_module(MODULES[library])
        if library == "snntorch":
            neuron = made.Leaky(beta=0.9, threshold=8.0)
        elif library == "norse":
            neuron = made.LIFCell()
        else:
            neuron = made.LIFNode(tau=10.0, decay_input=False, v_threshold=8.0)
        self.neuron = Competition(neuron, neurons)
        nn.init.uniform_(self.fc.weight)
        for constraint in (Clamp(min=0.0), Normalize(norm=1.0, order=2)):
            constraint(self.fc.weight)
            attach_updater(self.fc, "weight").register_constraint(constraint)

    def forward(self, images: Tensor) -> Tensor:
        """Spikes of each neuron, ``[B, neurons]``."""
        state, rates = None, torch.zeros(len(images), self.fc.out_features)
        self.neuron.reset()
        if self.library == "snntorch":
            self.neuron.neuron.reset_mem()
        elif self.library == "spikingjelly":
            self.neuron.neuron.reset()
        for x in self.encoder(images.flatten(1)).float():
            given = self.neuron(self.fc(x), *([state] if self.library == "norse" else []))
            spikes, state = given if isinstance(given, tuple) else (given, None)
            rates += spikes.detach()
        return rates


@torch.no_grad()
def score(model: Digits, data: Split) -> tuple[float, float]:
    """Share of test images named right, and spikes per neuron and step."""
    model.eval()
    readout = MaxRateClassifier(model.fc.out_features, 10)
    readout.update(model(data.train_images), data.train_labels)
    rates = model(data.test_images)
    model.train()
    hits = readout.predict(rates) == data.test_labels
    return 100 * hits.float().mean().item(), rates.mean().item() / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", choices=MODULES, help="by default the first installed")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--picture", default="foreign_neurons.png", help="where to draw weights to")
    parser.add_argument("--short", action=Short, help="one epoch")
    args = parser.parse_args()
    quiet()
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    library = args.library or next(filter(find_spec, MODULES), None)
    if library is None or find_spec(library) is None:
        missing = f"{library} is not" if library else f"none of {', '.join(MODULES)} is"
        print(f"skipped: {missing} installed")
        return
    torch.set_num_threads(1)
    pl.seed_everything(0, verbose=False)

    data, model = load_digits_split(), Digits(library)
    untrained, _ = score(model, data)
    stdp = STDP(lr_post=0.04, lr_pre=-0.012)  # faster, and neurons forget their digit again
    cell = CellSpec(connection="fc", neuron="neuron")
    epochs = 1 if args.short else args.epochs
    updates = see(model, stdp, cell, data.train_images, batch_size=16, epochs=epochs)
    learned, rate = score(model, data)
    name = type(model.neuron.neuron).__name__
    print(f"{name} of {library}: {rate:.2%} of neurons spike in a step")
    print(f"{updates} updates by STDP, none by gradient")
    print(f"test accuracy: {learned:.1f} % (untrained {untrained:.1f} %, by chance 10 %)")
    plot.weights(model.fc.weight, columns=16)[0].savefig(args.picture, dpi=100)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
