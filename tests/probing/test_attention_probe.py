"""Probes of trees: their scores against loops, what they can learn, and the measure."""

import numpy as np
import pytest
import torch
from support import tiny_heads as tiny

from infoflow.flow import PassOptions
from infoflow.foundation import UserError
from infoflow.heads import Annotation
from infoflow.heads._attention_probe import (
    AttentionTree,
    AttentionWordsTree,
    DistanceWordsTree,
    ProbeSentence,
    _sentences,
    distance_features,
)
from infoflow.probing import AttentionProbe


def sentence(governors, heads=3, width=4, seed=0, oracle=False, absent=()):
    generator = torch.Generator().manual_seed(seed)
    num = len(governors)
    maps = torch.softmax(torch.randn(heads, num, num + 2, generator=generator), 2)
    if oracle:  # head 0 attends from each word to its governor, the root to CLS
        maps[0] = 0
        for d, g in enumerate(governors):
            maps[0, d, g if g >= 0 else num] = 1
    present = torch.ones(num, dtype=torch.bool)
    present[list(absent)] = False
    return ProbeSentence(
        maps=maps[:, :, :num].contiguous(), ends=maps[:, :, num:].contiguous(),
        vectors=torch.randn(num, width, generator=generator), governors=torch.tensor(governors), present=present,
    )  # fmt: skip


def randomised(probe, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for parameter in probe.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return probe


def test_attention_scores_agree_with_definition():
    given, probe = sentence([1, -1, 1, 2], absent=(3,)), randomised(AttentionTree(3))
    found = probe(given).detach()
    (w, u), root = probe.weights.detach(), probe.root.detach()
    for j in range(4):
        for i in range(4):
            a, back = given.maps[:, i, j], given.maps[:, j, i]
            expected = sum(w[k] * a[k] + u[k] * back[k] for k in range(3))
            expected = -torch.inf if i == j or i == 3 else float(expected)
            assert float(found[j, i]) == pytest.approx(expected, rel=1e-5)
        mean = given.ends[:, j].mean(0)
        assert float(found[j, 4]) == pytest.approx(float(root[0] * mean[0] + root[1] * mean[1]), rel=1e-5)
    probabilities = found[given.present].log_softmax(1)
    loss = -float(probabilities[[0, 1, 2], [1, 4, 1]].sum())
    assert float(probe.loss(given).detach()) == pytest.approx(loss, rel=1e-5)


def test_scores_with_words_agree_with_definition():
    given, probe = sentence([1, -1, 1, 2]), randomised(AttentionWordsTree(3, 4))
    found = probe(given).detach()
    probe.requires_grad_(False)
    for j in range(4):
        for i in (k for k in range(4) if k != j):
            weights = (
                probe.head.weight @ given.vectors[i] + probe.dependent.weight @ given.vectors[j] + probe.dependent.bias
            )
            features = torch.cat([given.maps[:, i, j], given.maps[:, j, i]])
            assert float(found[j, i]) == pytest.approx(float(weights @ features), rel=1e-4, abs=1e-5)


def test_scores_of_distances_agree_with_definition():
    given, probe = sentence([1, -1, 1, 2]), randomised(DistanceWordsTree(4))
    found = probe(given).detach()
    probe.requires_grad_(False)
    for j, i in ((0, 1), (2, 0), (3, 2)):
        hidden = probe.head.weight @ given.vectors[i] + probe.dependent.weight @ given.vectors[j]
        hidden = hidden + probe.dependent.bias + probe.distance.weight @ distance_features(torch.tensor(i - j))
        expected = probe.out.weight @ torch.tanh(hidden) + probe.out.bias
        assert float(found[j, i]) == pytest.approx(float(expected), rel=1e-4, abs=1e-4)


def test_distance_features():
    assert distance_features(torch.tensor([1, -2, 4, -9])).tolist() == [
        [1, 1, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, pytest.approx(np.log(2))],
        [1, 0, 0, 0, 0, 1, 0, pytest.approx(np.log(4))],
        [0, 0, 0, 0, 0, 0, 0, pytest.approx(np.log(9))],
    ]


def test_a_head_that_points_to_governors_is_found():
    trees = [[1, -1, 1, 2], [2, 2, -1, 4, 2], [-1, 0, 1, 0, 3], [1, 2, -1]]
    probe = AttentionTree(3)
    optimiser = torch.optim.Adam(probe.parameters(), lr=0.02)
    for step in range(200):
        optimiser.zero_grad()
        probe.loss(sentence(trees[step % 4], seed=step, oracle=True)).backward()
        optimiser.step()
    for seed, tree in enumerate(trees, start=500):
        given = sentence(tree, seed=seed, oracle=True)
        assert probe(given).argmax(1).tolist() == given.targets.tolist()
    assert probe.weights[1].argmax() == 0


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(60)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_sentences_hold_word_attention_and_trees(corpus, family):
    reader = tiny.reader_of(getattr(tiny, family)(corpus), corpus)
    trees = Annotation.of(corpus, ("head",))
    rows = np.array([7, 3, 20])
    for row, given in _sentences(reader, trees, rows):
        alone = tiny.batch_of(reader, np.array([row]))
        (stream,) = alone.streams.values()
        words = stream.words[0].tolist()
        layers = next(iter(alone.attention.values()))
        assert given.governors.tolist() == corpus[row].head
        assert bool(given.present.all())
        whole = given.maps.sum(2) + given.ends.sum(2)
        torch.testing.assert_close(whole, torch.ones_like(whole), atol=1e-4, rtol=0)
        queries = [t for t, word in enumerate(words) if word == 2]
        head = layers[1][0, 1]
        expected = head[queries][:, 0].mean()  # CLS
        assert float(given.ends[layers[0].shape[1] + 1, 2, 0]) == pytest.approx(float(expected), abs=1e-5)
        table = reader.model.module.get_input_embeddings().weight
        vector = table[stream.input_ids[0, queries]].mean(0) / table.std()
        torch.testing.assert_close(given.vectors[2], vector, atol=1e-4, rtol=1e-4)


def test_the_measure(corpus):
    reader = tiny.reader_of(tiny.bert(corpus), corpus)
    probe = AttentionProbe(sentences=50)
    train, test = probe._split(reader)
    assert (len(train), len(test)) == (35, 15)
    assert not set(train.tolist()) & set(test.tolist())
    before = torch.get_rng_state()
    frame = probe.table.conform(probe.run(reader, PassOptions()))
    assert torch.equal(before, torch.get_rng_state())
    assert frame["probe"].tolist() == ["attention", "attention+words", "distance+words"]
    words = sum(len(corpus[int(row)].head) for row in test)
    assert frame["count"].eq(words).all()
    neighbours = {
        o: sum(g == d + o and g >= 0 for row in test for d, g in enumerate(corpus[int(row)].head)) / words
        for o in (-1, 1)
    }
    assert frame["baseline"].iloc[0] == pytest.approx(neighbours[1])  # English words stand before their heads
    assert frame["value"].between(0, 1).all()
    again = probe.run(reader, PassOptions())
    np.testing.assert_allclose(frame["value"], again["value"])


def test_what_is_missing(parallel_corpus, matched_models):
    reader = tiny.reader_of(matched_models["translation"], parallel_corpus)
    assert AttentionProbe().run(reader, PassOptions()).empty
    with pytest.raises(UserError, match="held_out lie between 0 and 1"):
        AttentionProbe(held_out=1.0)
