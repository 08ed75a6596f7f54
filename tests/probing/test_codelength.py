"""Description length: limits, units, and one plain torch probe at a time."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from infoflow.foundation import UserError, stream
from infoflow.probing import Schedule, VariationalTraining, online_codelength, variational_codelength
from infoflow.subjects.probing.measures._codelength import PREFIXES, sent_blocks, shuffled_batches
from infoflow.subjects.probing.measures._codelength_codes import (
    first_parameters,
    gate_kl,
    log_alpha,
    mean_logits,
    normal_kl,
    sampled_logits,
    surviving_inputs,
    total_kl,
)

pytestmark = pytest.mark.slow

CLASSES = 5
FAST = Schedule(epochs=12)


def problem(num=600, width=6, layers=2, seed=0):
    """Layer 0 tells the label, up to noise; layer 1 tells nothing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num, layers, width)).astype(np.float32)
    y = (x[:, 0] @ np.random.default_rng(99).normal(size=(width, CLASSES))).argmax(1)
    return x, np.where(rng.random(num) < 0.1, rng.integers(0, CLASSES, num), y)


def random_labels(num=800, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num, 8)).astype(np.float32), rng.integers(0, CLASSES, num)


def plain_probe(x, y, dev, prefix, hidden, classes, schedule, batch=64, seed=0):
    """One probe in plain torch, on one layer."""
    sizes = (x.shape[1], *hidden, classes)
    rng = stream(f"codelength-{prefix}", seed)
    linears = []
    for given, out in pairwise(sizes):
        linear = nn.Linear(given, out)
        bound = 1 / math.sqrt(given)
        linear.weight.data = torch.from_numpy(rng.uniform(-bound, bound, (given, out))).float().T.contiguous()
        linear.bias.data = torch.from_numpy(rng.uniform(-bound, bound, (1, out))).float()[0]
        linears += [linear, nn.ReLU()]
    probe = nn.Sequential(*linears[:-1])
    optimiser = torch.optim.Adam(probe.parameters(), lr=schedule.rate, foreach=False)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=schedule.factor, patience=0)
    best, kept, since = math.inf, probe.state_dict(), 0
    for epoch in range(schedule.epochs):
        order = stream(f"codelength-{prefix}", seed, epoch).permutation(len(x))
        for start in range(0, len(x), batch):
            chosen = order[start : start + batch]
            optimiser.zero_grad()
            nn.functional.cross_entropy(probe(x[chosen]), y[chosen]).backward()
            optimiser.step()
        with torch.no_grad():
            loss = float(nn.functional.cross_entropy(probe(dev[0]), dev[1]))
        plateau.step(loss)
        if loss < best - schedule.least:
            best, since = loss, 0
            kept = {name: value.clone() for name, value in probe.state_dict().items()}
        else:
            since += 1
        if since > 4:
            break
    probe.load_state_dict(kept)
    return probe.requires_grad_(False)


def plain_online(x, y, dev, groups, hidden, schedule, seed=0):
    """The definition, sentence by sentence."""
    names = np.unique(groups)
    shuffled = names[stream("codelength-order", 0).permutation(len(names))]
    prefixes = []
    for share in PREFIXES:
        sentences = shuffled[: int(share * len(names))]
        members = np.concatenate([np.flatnonzero(groups == name) for name in sentences]) if len(sentences) else []
        if len(members) and (not prefixes or len(members) > len(prefixes[-1])):
            prefixes.append(members)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    dev = tuple(torch.from_numpy(each) for each in dev)
    bits = len(prefixes[0]) * math.log2(CLASSES)
    for index, members in enumerate(prefixes):
        probe = plain_probe(x[members], y[members], dev, index, hidden, CLASSES, schedule, seed=seed)
        if index + 1 < len(prefixes):
            sent = prefixes[index + 1][len(members) :]
            bits -= float(probe(x[sent]).log_softmax(1)[range(len(sent)), y[sent]].sum()) / math.log(2)
    data = -float(probe(x).log_softmax(1)[range(len(x)), y].sum()) / math.log(2)
    return bits, data


def test_agrees_with_one_plain_probe_after_another():
    x, y = problem()
    dev = problem(150, seed=5)
    groups = np.sort(np.random.default_rng(3).integers(0, 80, len(y)))
    schedule = Schedule(epochs=8)
    found = online_codelength(x, y, CLASSES, [0, 4], groups=groups, dev=dev, hidden=(16,), schedule=schedule)
    assert found.bits.shape == (2, 2)
    for s, seed in enumerate((0, 4)):
        for layer in range(2):
            bits, data = plain_online(x[:, layer], y, (dev[0][:, layer], dev[1]), groups, (16,), schedule, seed)
            assert found.bits[s, layer] == pytest.approx(bits, rel=1e-3)
            assert found.data_bits[s, layer] == pytest.approx(data, rel=1e-3)
    np.testing.assert_allclose(found.target_bits.sum(0), found.bits, rtol=1e-5)
    np.testing.assert_allclose(found.model_bits + found.data_bits, found.bits)


def test_one_layer_is_the_special_case():
    x, y = problem(200)
    several = online_codelength(x, y, CLASSES, [0], hidden=(8,), schedule=FAST)
    alone = online_codelength(torch.from_numpy(x[:, 1]), y, CLASSES, 0, hidden=(8,), schedule=FAST)
    assert isinstance(alone.bits, float)
    assert alone.bits == pytest.approx(several.bits[0, 1], rel=1e-4)
    assert alone.target_bits.shape == (200,)
    variational = {"hidden": (8,), "training": VariationalTraining(epochs=3)}
    several = variational_codelength(x, y, CLASSES, [0], **variational)
    alone = variational_codelength(x[:, 1], y, CLASSES, **variational)
    assert alone.bits == pytest.approx(several.bits[0, 1], rel=1e-4)


@pytest.mark.parametrize("hidden", [(), (32, 32)])
@pytest.mark.parametrize("with_dev", [False, True])
def test_random_labels_do_not_compress(hidden, with_dev):
    x, y = random_labels()
    dev = random_labels(200, seed=2) if with_dev else None
    right = online_codelength(x, y, CLASSES, dev=dev, hidden=hidden)
    assert right.uniform_bits == pytest.approx(800 * math.log2(CLASSES))
    assert 0.9 < right.compression < 1.005
    assert right.units == "bits"
    mixed = online_codelength(x, y, CLASSES, dev=dev, hidden=hidden, legacy_units=True)
    assert mixed.units == "mixed"
    assert mixed.compression > 1.3
    first = mixed.blocks[0] * math.log2(CLASSES)
    assert right.bits == pytest.approx(first + (mixed.bits - first) / math.log(2))


@pytest.mark.parametrize(("rate", "targets", "epochs"), [(1e-3, 3_000, 639), (1e-2, 3_000, 200), (1e-3, 10**6, 200)])
def test_a_variational_probe_is_trained_until_its_weights_can_be_coded(rate, targets, epochs):
    """With 200 epochs of 3,000 targets, perceptrons of separable labels took 3,500 bits; with 400, 560."""
    assert VariationalTraining(rate=rate).epochs_of(targets) == epochs
    assert VariationalTraining(epochs=7).epochs_of(targets) == 7


def test_random_labels_do_not_compress_variationally():
    x, y = random_labels(600)
    training = VariationalTraining(rate=0.01, epochs=120)
    right = variational_codelength(x, y, CLASSES, hidden=(16,), training=training)
    assert 0.9 < right.compression < 1.005
    mixed = variational_codelength(x, y, CLASSES, hidden=(16,), training=training, legacy_units=True)
    assert mixed.compression == pytest.approx(right.compression / math.log(2), rel=1e-6)
    assert mixed.compression > 1.3


def test_what_features_spell_out_costs_little_more_than_the_first_block():
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, 4000)
    x = 4 * np.eye(CLASSES, dtype=np.float32)[y]
    found = online_codelength(x, y, CLASSES, dev=(x[:200], y[:200]), test=(x[:50], y[:50]), hidden=(32,))
    first = found.blocks[0] * math.log2(CLASSES)
    assert first <= found.bits < first + 0.05 * found.uniform_bits
    assert found.data_bits < 0.005 * found.uniform_bits
    assert found.accuracy == 1
    variational = variational_codelength(
        x, y, CLASSES, hidden=(), training=VariationalTraining(rate=0.01, epochs=30), test=(x, y)
    )
    assert variational.accuracy == 1
    assert variational.compression > 10


def test_an_informative_layer_is_cheaper_and_keeps_inputs():
    x, y = problem(900)
    online = online_codelength(x, y, CLASSES, [0, 1], hidden=(16,))
    assert (online.compression[:, 0] > 1.3).all()
    assert (online.compression[:, 1] < 1.06).all()  # labels are not quite uniform
    training = VariationalTraining(rate=0.01, epochs=80)
    variational = variational_codelength(x, y, CLASSES, hidden=(16,), training=training)
    assert variational.surviving.shape == (2, 2)
    assert variational.surviving[0, 0] == 6 > variational.surviving[1, 0]
    assert variational.model_bits[0] > 2 * variational.model_bits[1]
    strict = surviving_inputs([each[0] for each in variational.log_alpha], [-100.0, 100.0])
    assert strict.tolist() == [0, 16]


def test_classes_that_come_late_cost_finite_bits():
    x, _ = random_labels(400)
    y = np.zeros(400, dtype=np.int64)
    order, blocks = sent_blocks(np.arange(400), PREFIXES, 0)
    y[order[-3:]] = CLASSES - 1  # seen in the last block only
    found = online_codelength(x, y, CLASSES, hidden=(8,))
    assert np.isfinite(found.bits)
    assert found.target_bits[order[-1]] > 1
    assert 0 < found.target_bits[order[blocks[0]]] < found.target_bits[order[-1]]


def test_blocks_hold_whole_sentences_and_drop_empty_or_equal_ones():
    groups = np.repeat(np.arange(40), 3)
    order, blocks = sent_blocks(groups, PREFIXES, 0)
    assert blocks == (3, 6, 15, 30, 60, 120)  # of 40 sentences .001 to .016 are none, .032 one
    assert sorted(order) == list(range(120))
    for end in blocks:
        assert len(set(groups[order[:end]]) & set(groups[order[end:]])) == 0
    assert sent_blocks(np.zeros(7, dtype=int), PREFIXES, 0)[1] == (7,)
    with pytest.raises(UserError, match="rise"):
        sent_blocks(groups, (0.5, 0.2, 1.0), 0)


def test_ignored_labels_count_nowhere():
    x, y = problem(300)
    ignored = np.concatenate([y, np.full(50, -1)])
    more = np.concatenate([x, 100 * np.ones((50, *x.shape[1:]), dtype=np.float32)])
    alone = online_codelength(x, y, CLASSES, hidden=(8,), schedule=FAST)
    beside = online_codelength(more, ignored, CLASSES, hidden=(8,), schedule=FAST)
    np.testing.assert_array_equal(alone.bits, beside.bits)
    assert beside.targets == 300
    assert (beside.target_bits[300:] == 0).all()
    one_block = online_codelength(x[:1], y[:1], CLASSES, schedule=FAST)
    assert one_block.bits[0] == pytest.approx(math.log2(CLASSES))


def plain_kl(parameters, probe):
    """The formulas, number by number, in nats."""
    total = 0.0
    for at in range(0, len(parameters), 6):
        gate, gate_spread, weight, weight_spread, bias, bias_spread = (
            each[probe].double().flatten().tolist() for each in parameters[at : at + 6]
        )
        for mean, spread in zip(gate, gate_spread, strict=True):
            alpha = spread - math.log(mean**2 + 1e-8)
            sigmoid = 1 / (1 + math.exp(-(1.87320 + 1.48695 * alpha)))
            total -= 0.63576 * sigmoid - 0.5 * math.log1p(math.exp(-alpha)) - 0.63576
        for mean, spread in zip(weight + bias, weight_spread + bias_spread, strict=True):
            total += -0.5 * spread + 0.5 * (math.exp(spread) + mean**2) - 0.5
    return total


def test_divergences_agree_with_the_formulas():
    parameters = first_parameters([0, 1], 2, (4, 3, CLASSES))
    parameters[0][1, 0, 2] = 0.01
    found = total_kl(parameters)
    for probe in range(4):
        assert float(found[probe]) == pytest.approx(plain_kl(parameters, probe), rel=1e-5)
    standard = torch.distributions.Normal(0.0, 1.0)
    mean, spread = torch.tensor([[[0.3, -1.2]]]), torch.tensor([[[-2.0, 0.5]]])
    expected = torch.distributions.kl_divergence(torch.distributions.Normal(mean, (spread / 2).exp()), standard)
    assert float(normal_kl(mean, spread)) == pytest.approx(float(expected.sum()), rel=1e-6)
    gates = torch.linspace(-8, 8, 50)
    costs = torch.stack([gate_kl(each[None]) for each in gates])
    assert (costs.diff() < 0).all()  # the more noise, the cheaper
    assert float(costs[-1]) < 0.01


def test_sampled_probes_agree_with_samples_of_weights():
    """Local reparametrisation: mean and variance of the logits are those of drawn gates and weights."""
    parameters = first_parameters([0], 1, (4, 3))
    parameters[1] += 6
    parameters[3] += 6
    parameters[5] += 6
    x = torch.randn(1, 1, 4, generator=torch.Generator().manual_seed(0)).expand(1, 40_000, 4)
    generator = torch.Generator().manual_seed(1)
    local = sampled_logits(parameters, x, lambda size: torch.randn(1, 40_000, size, generator=generator))[0]
    gate, gate_spread, weight, weight_spread, bias, bias_spread = (each[0] for each in parameters)

    def draw(mean, spread):
        noise = torch.randn(40_000, *mean.shape, generator=generator)
        return mean + (spread / 2).exp() * noise

    gated = x[0] * draw(gate, gate_spread)[:, 0]
    drawn = torch.einsum("ni,nio->no", gated, draw(weight, weight_spread)) + draw(bias, bias_spread)[:, 0]
    torch.testing.assert_close(local.mean(0), drawn.mean(0), atol=0.03, rtol=0)
    torch.testing.assert_close(local.std(0), drawn.std(0), atol=0.03, rtol=0)
    expected = (x[:, :1] * gate) @ weight + bias
    torch.testing.assert_close(mean_logits(parameters, x[:, :1]), expected)


def test_variational_agrees_with_a_plain_loop():
    x, y = problem(80, layers=1)
    training = VariationalTraining(rate=0.01, epochs=3, batch=32)
    found = variational_codelength(x, y, CLASSES, [0], hidden=(7,), training=training)
    from infoflow.foundation import hash64

    sizes = (6, 7, CLASSES)
    values = [nn.Parameter(each[0].clone()) for each in first_parameters([0], 1, sizes)]
    optimiser = torch.optim.Adam(values, lr=0.01, foreach=False)
    generator = torch.Generator().manual_seed(hash64("codelength-noise", 0) % 2**63)
    inputs, labels = torch.from_numpy(x[:, 0]), torch.from_numpy(y)
    batches = shuffled_batches(80, 32, "codelength-variational", [0])
    for epoch in range(3):
        for index in batches(epoch):
            hidden = inputs[index[0]]
            for layer in range(2):
                gate, gate_spread, weight, weight_spread, bias, bias_spread = values[6 * layer : 6 * layer + 6]
                hidden = hidden.relu() if layer else hidden
                hidden = hidden * (gate + (gate_spread / 2).exp() * torch.randn(hidden.shape, generator=generator))
                mean, variance = hidden @ weight + bias, hidden**2 @ weight_spread.exp() + bias_spread.exp()
                hidden = mean + variance.sqrt() * torch.randn(mean.shape, generator=generator)
            kl = total_kl([each[None] for each in values])[0]
            loss = nn.functional.cross_entropy(hidden, labels[index[0]], reduction="sum") + kl * len(index[0]) / 80
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    kl = plain_kl([each.detach()[None] for each in values], 0)
    assert float(found.model_bits[0, 0]) == pytest.approx(kl / math.log(2), rel=1e-3)
    alphas = log_alpha(values[0].detach(), values[1].detach())[0]
    np.testing.assert_allclose(found.log_alpha[0][0, 0], alphas.numpy(), atol=1e-2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.full(50, CLASSES)}, "lie in 0"),
        ({"y": np.full(50, -1)}, "none of them with a label"),
        ({"y": np.zeros(49, dtype=int)}, "targets"),
        ({"y": np.zeros(50)}, "whole numbers"),
        ({"classes": 1}, "at least 2"),
        ({"x": np.full((50, 3), np.nan, dtype=np.float32)}, "finite"),
        ({"groups": np.zeros(3, dtype=int)}, "sentence of each target"),
        ({"dev": (np.zeros((5, 4), dtype=np.float32), np.zeros(5, dtype=int))}, "width of x"),
        ({"batch": 0}, "batch"),
    ],
)
def test_bad_input(changes, message):
    given = {"x": np.zeros((50, 3), dtype=np.float32), "y": np.zeros(50, dtype=int), "classes": CLASSES} | changes
    with pytest.raises(UserError, match=message):
        online_codelength(**given)


def test_codes_are_the_same_where_a_pass_has_closed_gradients():
    x, y = problem(150)
    settings = {"hidden": (4,), "schedule": Schedule(epochs=2)}
    with torch.inference_mode():
        closed = online_codelength(torch.from_numpy(x).clone(), y, CLASSES, **settings)
    np.testing.assert_array_equal(closed.bits, online_codelength(x, y, CLASSES, **settings).bits)
