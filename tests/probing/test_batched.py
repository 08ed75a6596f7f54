"""Probes that train together, against one alone, a plain loop, and scikit-learn's logistic regression."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from infoflow.probing import NO_ANSWER, LabelledRows, ProbeGrid, ProbeSettings, train_probes
from infoflow.subjects.probing.measures._batched import _examples, _first_weights, _Training
from infoflow.subjects.probing.measures._features import ProbeInputs, Scaling

pytestmark = pytest.mark.slow

LAYERS, WIDTH, CLASSES = 3, 8, 4


def gaussians(num: int, distance: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Examples of normal classes; the second layer is far from standard units, the third knows nothing."""
    rng = np.random.default_rng(seed)
    means = np.random.default_rng(99).normal(size=(CLASSES, WIDTH)) * distance
    labels = rng.integers(0, CLASSES, num)
    signal = means[labels] + rng.normal(size=(num, WIDTH))
    states = np.stack([signal, 1000 + 50 * signal @ np.diag(np.arange(1, 9)), rng.normal(size=(num, WIDTH))], axis=1)
    return states.astype(np.float32), labels


def labelled(num: int, sets: int = 2, seed: int = 0, distance: float = 1.0) -> LabelledRows:
    states, labels = gaussians(num, distance, seed)
    shuffled = [np.random.default_rng(seed + k).permutation(labels) for k in range(1, sets)]
    return LabelledRows(rows=states, labels=np.stack([labels, *shuffled]))


def grid(layers=range(LAYERS), seeds=(0, 1), sets=(0, 1)) -> ProbeGrid:
    cells = np.array([(layer, seed, k) for layer in layers for seed in seeds for k in sets])
    return ProbeGrid(layer=cells[:, 0], seed=cells[:, 1], labels=cells[:, 2])


TRAIN, DEV, TEST = labelled(300), labelled(120, seed=7), labelled(400, seed=8)
FOUR = np.array([CLASSES, CLASSES])


def alone(settings: ProbeSettings, layer: int, seed: int, k: int) -> tuple[dict[str, torch.Tensor], int]:
    """One probe by a plain loop, in NumPy's and torch's simplest words: the best weights and the epochs."""
    scaling = Scaling.of(TRAIN.rows)
    states, dev = (
        torch.tensor((part.rows[:, layer] - scaling.mean[layer]) / scaling.spread[layer]) for part in (TRAIN, DEV)
    )
    drawn = _first_weights(np.array([seed]), WIDTH, CLASSES, settings, torch.device("cpu"))
    weights = {name: value[0].requires_grad_() for name, value in drawn.items()}

    def loss_of(inputs, part, start=0):
        if settings.hidden:
            inputs = torch.relu(inputs @ weights["hidden"] + weights["hidden_bias"])
        logits = inputs @ weights["output"] + weights["output_bias"]
        wanted = torch.tensor(part)
        return -logits.log_softmax(1)[torch.arange(len(wanted)), wanted].mean(), (logits.argmax(1) == wanted).float()

    decayed = [value for name, value in weights.items() if "bias" not in name]
    others = [value for name, value in weights.items() if "bias" in name]
    optimiser = torch.optim.Adam(
        [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": others}],
        lr=settings.rate,
        foreach=False,
    )
    examples = _examples(np.array([seed]), len(states), settings.batch)
    best, kept, waited, epochs = (-1.0, 0.0), {}, 0, 0
    while epochs < settings.epochs and waited < settings.patience:
        for _ in range(max(32, -(-len(states) // settings.batch))):
            index = next(examples)[0]
            optimiser.zero_grad()
            loss_of(states[index], TRAIN.labels[k, index])[0].backward()
            optimiser.step()
        loss, right = loss_of(dev, DEV.labels[k])
        score = (float(right.mean()), -float(loss.detach()))
        waited, epochs = 0 if score[0] > best[0] else waited + 1, epochs + 1
        if score > best:
            best, kept = score, {name: value.detach().clone() for name, value in weights.items()}
    return kept, epochs


@pytest.mark.parametrize("hidden", [0, 5])
def test_probes_agree_with_a_loop_over_single_ones(hidden):
    settings = ProbeSettings(hidden=hidden, weight_decay=0.01, rate=0.01, epochs=12, batch=50)
    asked = grid()
    found = train_probes(TRAIN, DEV, asked, FOUR, settings)
    assert len(set(found.epochs.tolist())) > 1  # some left before others
    for p in range(len(asked)):
        weights, epochs = alone(settings, int(asked.layer[p]), int(asked.seed[p]), int(asked.labels[p]))
        assert found.epochs[p] == epochs
        for name, value in weights.items():
            torch.testing.assert_close(found.parameters[name][p], value, atol=2e-4, rtol=2e-3)


@pytest.mark.parametrize("settings", [ProbeSettings(epochs=8, rate=0.01), ProbeSettings(hidden=6, dropout=0.3)])
def test_a_probe_does_not_depend_on_those_beside_it(settings):
    asked = grid()
    together = train_probes(TRAIN, DEV, asked, FOUR, settings)
    for p in (0, 5, 11):
        single = train_probes(TRAIN, DEV, asked.part(np.array([p])), FOUR, settings)
        assert single.epochs[0] == together.epochs[p]
        for name, value in single.parameters.items():
            torch.testing.assert_close(value[0], together.parameters[name][p], atol=1e-4, rtol=1e-3)
        assert (single.predict(TEST.rows)[0] == together.predict(TEST.rows)[p]).mean() > 0.995


def test_groups_and_streamed_inputs_change_nothing(monkeypatch):
    settings = ProbeSettings(hidden=4, epochs=5)
    whole = train_probes(TRAIN, DEV, grid(), FOUR, settings)
    monkeypatch.setattr("infoflow.subjects.probing.measures._batched._GROUP", 1)
    monkeypatch.setattr("infoflow.subjects.probing.measures._batched._PART", 1 << 12)
    monkeypatch.setattr("infoflow.subjects.probing.measures._features._CHUNK", 1 << 10)
    monkeypatch.setattr("infoflow.subjects.probing.measures._features._HELD", 0)
    parts = train_probes(TRAIN, DEV, grid(), FOUR, settings)
    for name, value in whole.parameters.items():
        torch.testing.assert_close(value, parts.parameters[name], atol=1e-4, rtol=1e-3)
    assert np.array_equal(whole.predict(TEST.rows), parts.predict(TEST.rows))


def test_inputs_held_and_streamed_are_the_same():
    scaling = Scaling.of(TRAIN.rows)
    np.testing.assert_allclose(scaling.mean, TRAIN.rows.astype(np.float64).mean(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scaling.spread, TRAIN.rows.astype(np.float64).std(0), rtol=1e-4)
    held, streamed = (ProbeInputs(TRAIN.rows, scaling, torch.device("cpu"), held=size) for size in (1 << 30, 0))
    order, layer = torch.tensor([1, 0, 1]), torch.tensor([2, 0, 1])
    index = np.array([[5, 2, 9, 11], [0, 299, 3, 3]])
    expected = (TRAIN.rows - scaling.mean) / scaling.spread
    for inputs in (held, streamed):
        found = inputs.batch(index, order, layer).numpy()
        for p in range(3):
            np.testing.assert_allclose(found[p], expected[index[order[p]], int(layer[p])], atol=1e-6)
        every = torch.cat(list(inputs.all(layer, 77)), dim=1).numpy()
        np.testing.assert_allclose(every, expected[:, layer.numpy()].transpose(1, 0, 2), atol=1e-6)


@pytest.mark.parametrize("distance", [0.5, 1.0, 4.0])
def test_linear_probes_agree_with_logistic_regression(distance):
    train, dev, test = (labelled(num, 1, seed, distance) for num, seed in ((2000, 1), (500, 2), (2000, 3)))
    settings = ProbeSettings(rate=0.01, patience=8)
    found = train_probes(train, dev, grid(seeds=(0,), sets=(0,)), np.array([CLASSES]), settings)
    said = found.predict(test.rows)
    for layer in range(LAYERS):
        scaling = found.scaling
        scaled = [(part.rows[:, layer] - scaling.mean[layer]) / scaling.spread[layer] for part in (train, test)]
        regression = LogisticRegression(C=1e3, max_iter=2000).fit(scaled[0], train.labels[0])
        ours, theirs = (np.mean(each == test.labels[0]) for each in (said[layer], regression.predict(scaled[1])))
        assert abs(ours - theirs) < 3 * np.sqrt(0.25 / 2000)
        if distance == 4.0 and layer < 2:
            assert (said[layer] == regression.predict(scaled[1])).mean() > 0.99
            assert ours > 0.99


def test_units_of_the_states_change_nothing():
    """The second layer holds the first one's states in other units, far from 0."""
    found = train_probes(TRAIN, DEV, grid(seeds=(0,), sets=(0,)), FOUR, ProbeSettings(rate=0.01))
    said = found.predict(TEST.rows)
    assert (said[0] == said[1]).mean() > 0.99
    assert abs(np.mean(said[2] == TEST.labels[0]) - 1 / CLASSES) < 0.1


def test_renamed_labels_give_renamed_predictions():
    swap = np.array([2, 0, 3, 1])
    renamed = [LabelledRows(rows=part.rows, labels=swap[part.labels]) for part in (TRAIN, DEV)]
    settings = ProbeSettings(rate=0.01, epochs=30)
    first, second = (train_probes(*parts, grid(), FOUR, settings) for parts in ((TRAIN, DEV), renamed))
    agreement = (swap[first.predict(TEST.rows)] == second.predict(TEST.rows)).mean(1)
    assert agreement[grid().labels == 0][:4].min() > 0.95  # first weights differ


def test_labels_that_are_not_asked_teach_nothing():
    labels = TRAIN.labels.copy()
    labels[1] = np.where(np.arange(300) % 2, labels[0], NO_ANSWER)
    noise = np.random.default_rng(0).normal(size=TRAIN.rows.shape).astype(np.float32)
    rows = np.where((np.arange(300) % 2 == 1)[:, None, None], TRAIN.rows, noise)
    dev = np.stack([DEV.labels[0], np.full(120, NO_ANSWER)])
    dev[1, :60] = DEV.labels[0, :60]
    found = train_probes(
        LabelledRows(rows=rows, labels=labels), LabelledRows(rows=DEV.rows, labels=dev), grid((0,), (0,), (1,)), FOUR,
        ProbeSettings(rate=0.01),
    )  # fmt: skip
    right = found.predict(TEST.rows)[0] == TEST.labels[0]
    assert right.mean() > 0.75
    best = np.mean((found.predict(DEV.rows)[0] == DEV.labels[0])[:60])
    assert found.dev_accuracy[0] == pytest.approx(best)


def test_outputs_beyond_a_sets_classes_are_closed():
    labels = np.stack([TRAIN.labels[0], TRAIN.labels[0] % 2])
    dev = np.stack([DEV.labels[0], DEV.labels[0] % 2])
    found = train_probes(
        LabelledRows(rows=TRAIN.rows, labels=labels), LabelledRows(rows=DEV.rows, labels=dev), grid((0,)),
        np.array([4, 2]), ProbeSettings(rate=0.01, weight_decay=0.1),
    )  # fmt: skip
    said = found.predict(TEST.rows)
    assert said[grid((0,)).labels == 1].max() == 1
    assert said[grid((0,)).labels == 0].max() == 3
    own = train_probes(
        LabelledRows(rows=TRAIN.rows, labels=labels[1:]), LabelledRows(rows=DEV.rows, labels=dev[1:]),
        grid((0,), (0,), (0,)), np.array([2]), ProbeSettings(rate=0.01, weight_decay=0.1),
    )  # fmt: skip
    assert (own.predict(TEST.rows)[0] == said[1]).mean() > 0.97


def test_the_best_weights_are_kept_and_who_stopped_stays_as_it_was():
    parts = [LabelledRows(rows=part.rows[:40], labels=part.labels[:, :40]) for part in (TRAIN, DEV)]
    settings = ProbeSettings(hidden=64, rate=0.03, epochs=25, patience=2)
    found = train_probes(*parts, grid(), FOUR, settings)
    said = found.predict(parts[1].rows)
    accuracy = (said == parts[1].labels[grid().labels]).mean(1)
    np.testing.assert_allclose(accuracy, found.dev_accuracy, atol=1e-6)
    assert (found.epochs < 25).any()


def test_dropout_and_decay_lower_what_random_labels_teach():
    plain, held_back = (
        train_probes(TRAIN, TRAIN, grid(sets=(1,)), FOUR, settings).dev_accuracy.mean()
        for settings in (
            ProbeSettings(hidden=100, rate=0.01),
            ProbeSettings(hidden=100, rate=0.01, dropout=0.6, weight_decay=0.03),
        )
    )
    assert plain > held_back + 0.1


def test_few_examples_get_as_many_steps():
    settings = ProbeSettings(batch=50, epochs=1)
    few = LabelledRows(rows=TRAIN.rows[:10], labels=TRAIN.labels[:, :10])
    scaling = Scaling.of(few.rows)
    inputs = [ProbeInputs(part.rows, scaling, torch.device("cpu")) for part in (few, DEV)]
    labels = [torch.from_numpy(part.labels) for part in (few, DEV)]
    training = _Training(grid((0,), (0,), (0,)), FOUR, inputs, labels, settings)
    taken = []
    original = training._step
    training._step = lambda: (taken.append(1), original())
    training.run()
    assert len(taken) == 32


def test_capacity_counts_the_parameters():
    for settings in (ProbeSettings(), ProbeSettings(hidden=5)):
        found = train_probes(TRAIN, DEV, grid((0,), (0,), (0,)), FOUR, settings)
        assert sum(value[0].numel() for value in found.parameters.values()) == settings.capacity(WIDTH, CLASSES)
