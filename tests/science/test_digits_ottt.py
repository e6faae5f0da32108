"""Three hidden layers learn digits by OTTT; its gradients point where those of BPTT do."""

import digits_ottt as science
import torch

SPLIT = science.load_digits_split()


def test_learns_beside_backpropagation_without_a_gradient_of_hidden_layers():
    found = {method: science.learn(method, SPLIT, epochs=3) for method in science.METHODS}
    accuracy = {method: network.accuracies[-1] for method, network in found.items()}
    assert accuracy["OTTT"] > 0.9  # 0.1 by chance
    assert accuracy["OTTT"] > accuracy["BPTT"] - 0.03
    assert accuracy["OTTT"] > accuracy["readout only"] + 0.2
    science.pl.seed_everything(0, verbose=False)
    drawn = science.Deep("OTTT", SPLIT)
    for before, now in zip(drawn.layers, found["OTTT"].layers, strict=True):
        assert (now.weight - before.weight).norm() > 0.1 * before.weight.norm()
        assert not now.weight.requires_grad


def test_gradients_are_exact_in_the_last_layer_and_shorter_below():
    cosines, ratios = science.compare(SPLIT, seed=0)
    torch.testing.assert_close(torch.stack([cosines[-1], ratios[-1]]), torch.ones(2))
    assert (cosines > 0.99).all()
    assert ratios[0] < 0.1 < ratios[1] < 0.3
