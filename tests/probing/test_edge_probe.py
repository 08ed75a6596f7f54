"""Edge probes: one plain torch probe at a time, what they can learn, F1."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from infoflow.foundation import hash64, stream
from infoflow.probing import EdgeSettings, Schedule, Spans, edge_probe, expected_layer, micro_f1

CLASSES, WIDTH, LAYERS = 3, 6, 4


def spans(num=240, seed=0, told_in=2, pairs=True):
    """Layer `told_in` and those above tell the label by the sign pattern of one word of the first span."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, num)
    starts, lengths = 4 * np.arange(num), rng.integers(1, 4, num)
    states = 0.5 * rng.normal(size=(4 * num, LAYERS, WIDTH)).astype(np.float32)
    telling = starts + rng.integers(0, lengths)
    for layer in range(told_in, LAYERS):
        states[telling, layer, labels] += 4
    first = np.stack([starts, starts + lengths], axis=1)
    second = np.stack([starts, starts + 1], axis=1) if pairs else None
    return Spans(states=states, first=first, second=second, labels=labels)


class PlainProbe(nn.Module):
    """One probe on layers 0..highest."""

    def __init__(self, seed, highest, settings, num_spans):
        super().__init__()
        rng = stream("edge-probe", seed)

        def uniform(given, *shape):
            bound = 1 / math.sqrt(given)
            return nn.Parameter(torch.from_numpy(rng.uniform(-bound, bound, shape)).float())

        self.highest, size, hidden = highest, settings.width, settings.hidden
        self.mix, self.scale = nn.Parameter(torch.zeros(highest + 1)), nn.Parameter(torch.ones(()))
        self.projections = nn.ParameterList()
        for _ in range(num_spans):
            self.projections.extend([uniform(WIDTH, WIDTH, size), uniform(WIDTH, 1, size), uniform(size, size, 1)])
        joined = num_spans * size
        self.first, self.bias = uniform(joined, joined, hidden), uniform(joined, 1, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.last, self.last_bias = uniform(hidden, hidden, CLASSES), uniform(hidden, 1, CLASSES)

    def forward(self, data, example, alive=None):
        pooled = []
        for place, ends in enumerate(each for each in (data.first, data.second) if each is not None):
            words = torch.from_numpy(data.states[ends[example, 0] : ends[example, 1], : self.highest + 1])
            mixed = self.scale * (self.mix.softmax(0)[None, :, None] * words).sum(1)
            weight, bias, query = self.projections[3 * place : 3 * place + 3]
            projected = mixed @ weight + bias
            pooled.append(((projected @ query).softmax(0) * projected).sum(0))
        hidden = self.norm(torch.tanh(torch.cat(pooled) @ self.first + self.bias[0]))
        return (hidden if alive is None else hidden * alive) @ self.last + self.last_bias[0]


def plain(train, dev, test, seed, highest, settings):
    probe = PlainProbe(seed, highest, settings, 1 if train.second is None else 2)
    mix = [probe.mix, probe.scale]
    others = [each for each in probe.parameters() if not any(each is one for one in mix)]
    rate = settings.schedule.rate
    groups = [{"params": mix, "lr": settings.mix_speed * rate}, {"params": others}]
    optimiser = torch.optim.Adam(groups, lr=rate, foreach=False)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=settings.schedule.factor, patience=0)
    generator = torch.Generator().manual_seed(hash64("edge-dropout", seed) % 2**63)
    best, kept = math.inf, None

    def loss(data, example, alive=None):
        return nn.functional.cross_entropy(probe(data, example, alive), torch.tensor(data.labels[example]))

    for epoch in range(settings.schedule.epochs):
        order = stream("edge-probe", seed, epoch).permutation(len(train))
        for start in range(0, len(train), settings.batch):
            chosen = order[start : start + settings.batch]
            drawn = torch.rand((len(chosen), settings.hidden), generator=generator)
            alive = (drawn < 1 - settings.dropout) / (1 - settings.dropout)
            optimiser.zero_grad()
            torch.stack([loss(train, int(i), alive[b]) for b, i in enumerate(chosen)]).mean().backward()
            optimiser.step()
        with torch.no_grad():
            reached = float(torch.stack([loss(dev, i) for i in range(len(dev))]).mean())
        plateau.step(reached)
        if reached < best - settings.schedule.least:
            best, kept = reached, {name: value.clone() for name, value in probe.state_dict().items()}
    probe.load_state_dict(kept)
    with torch.no_grad():
        return probe.mix.softmax(0), torch.stack([probe(test, i) for i in range(len(test))]).argmax(1)


@pytest.mark.parametrize("pairs", [True, False])
def test_agrees_with_one_plain_probe_after_another(pairs):
    train, dev, test = (spans(num, seed, pairs=pairs) for seed, num in enumerate((60, 30, 40)))
    settings = EdgeSettings(width=5, hidden=7, batch=16, mix_speed=3.0, schedule=Schedule(rate=0.02, epochs=4))
    found = edge_probe(train, dev, test, CLASSES, [0, 3], settings)
    assert found.predicted.shape == (2, LAYERS, 40)
    for s, seed in enumerate((0, 3)):
        for highest in range(LAYERS):
            weights, predicted = plain(train, dev, test, seed, highest, settings)
            np.testing.assert_allclose(found.weights[s, highest, : highest + 1], weights, atol=2e-3)
            assert (found.weights[s, highest, highest + 1 :] == 0).all()
            assert (found.predicted[s, highest] == predicted.numpy()).mean() > 0.97
    np.testing.assert_allclose(found.weights.sum(2), 1, rtol=1e-5)


def test_the_layer_that_tells_is_found():
    settings = EdgeSettings(width=16, hidden=16, schedule=Schedule(rate=0.01, epochs=15))
    train, dev, test = (spans(num, seed, told_in=2) for seed, num in enumerate((500, 100, 300)))
    found = edge_probe(train, dev, test, CLASSES, [0, 1], settings)
    scores = (found.predicted == test.labels).mean((0, 2))
    assert max(scores[:2]) < 0.5 < 0.9 < min(scores[2:])
    assert expected_layer(scores) == pytest.approx(2, abs=0.35)
    full = found.weights[:, -1].mean(0)
    assert full[2:].sum() > 0.6
    again = edge_probe(train, dev, test, CLASSES, [1], settings)
    np.testing.assert_array_equal(again.predicted[0], found.predicted[1])


def test_several_labels_with_sigmoids():
    parts = [spans(num, seed, told_in=0, pairs=False) for seed, num in enumerate((400, 80, 100))]
    several = []
    for part in parts:
        labels = np.eye(CLASSES, dtype=bool)[part.labels]
        labels[:, 2] |= part.labels == 0  # two labels, or one
        several.append(Spans(states=part.states, first=part.first, second=None, labels=labels))
    settings = EdgeSettings(width=16, hidden=16, output="sigmoid", schedule=Schedule(rate=0.01, epochs=10))
    found = edge_probe(*several, CLASSES, 0, settings)
    assert found.predicted.shape == (1, LAYERS, 100, CLASSES)
    assert micro_f1(found.predicted[0, -1], several[2].labels) > 0.9


def test_micro_f1_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    gold, said = rng.integers(0, 4, (2, 200))
    assert micro_f1(said, gold) == pytest.approx((said == gold).mean())
    assert micro_f1(said, gold, [0, 2]) == pytest.approx(f1_score(gold, said, labels=[1, 3], average="micro"))
    gold, said = rng.random((2, 100, 4)) < 0.4
    assert micro_f1(said, gold, [1]) == pytest.approx(f1_score(gold, said, labels=[0, 2, 3], average="micro"))
    assert np.isnan(micro_f1(np.zeros(3, dtype=int), np.zeros(3, dtype=int), [0]))
