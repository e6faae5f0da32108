"""A recurrent network that reads digits row by row learns by e-prop what its readout cannot."""

import digits_rows as science
import torch

SPLIT = science.load_digits_split()
EPOCHS = 4


def test_learns_beside_backpropagation_from_all_rows():
    found = {m: science.learn(m, SPLIT, EPOCHS) for m in ("BPTT", "e-prop", "readout only")}
    accuracy = {method: run.accuracies[-1] for method, run in found.items()}
    for method in ("e-prop", "readout only"):  # the mean of two seeds, which differ by 0.05
        second = science.learn(method, SPLIT, EPOCHS, seed=1).accuracies[-1]
        accuracy[method] = (accuracy[method] + second) / 2
    assert accuracy["e-prop"] > 0.7  # 0.1 by chance
    assert accuracy["e-prop"] > accuracy["BPTT"] - 0.1
    assert accuracy["e-prop"] > accuracy["readout only"] + 0.05
    # the control keeps its hidden weights
    science.pl.seed_everything(0, verbose=False)
    drawn = science.Reader("readout only", SPLIT, EPOCHS)
    for method, run in found.items():
        for name, before in drawn.state_dict().items():
            if isinstance(before, torch.Tensor) and name.endswith("weight"):
                same = torch.equal(before, run.get_parameter(name))
                assert same == (method == "readout only" and not name.startswith("readout")), name
    # the rows before the last matter
    images = SPLIT.test_images.clone()
    images[:, :-1] = images[torch.randperm(len(images), generator=torch.Generator()), :-1]
    right = (found["e-prop"].read(images) == SPLIT.test_labels).float().mean()
    assert right < found["e-prop"].accuracies[-1] / 2
