"""Structural probes: exact tree metrics, one plain torch probe at a time, scores by loops."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import shortest_path
from scipy.stats import spearmanr

from infoflow.foundation import UserError, stream
from infoflow.probing import (
    Schedule,
    StructuralMaps,
    depth_scores,
    distance_scores,
    random_maps,
    structural_probe,
    tree_distances,
    tree_sentence,
)
from infoflow.representations import spearman_rows
from infoflow.subjects.probing.measures._structural_measure import is_syntax
from infoflow.subjects.probing.measures._structural_probe import chain, macro_average, spanning_tree, squared_distances

WIDTH = 14


def random_tree(rng, num):
    order = rng.permutation(num)
    heads = [-1] * num
    for place, word in enumerate(order[1:], start=1):
        heads[word] = int(order[rng.integers(0, place)])
    return heads


def treebank(num, seed=0, shortest=5, longest=12, start=0):
    """Trees, their sentences, and states whose layer 0 is noise and whose layer 1 is the exact metric, rotated."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(np.random.default_rng(7).normal(size=(WIDTH, WIDTH)))[0]
    sentences, states = [], []
    for _ in range(num):
        length = int(rng.integers(shortest, longest + 1))
        heads = random_tree(rng, length)
        exact = np.zeros((length, WIDTH))
        for word in range(length):
            above = word
            while heads[above] >= 0:  # one axis for each edge on the way to the root
                exact[word, above] = 1
                above = heads[above]
        everything = np.ones(length, dtype=bool)
        sentences.append(tree_sentence(heads, start + sum(map(len, states)), everything, everything))
        states.append(np.stack([rng.normal(size=(length, WIDTH)), exact @ rotation], axis=1))
    return sentences, np.concatenate(states).astype(np.float32)


def scored(found, states, sentences, layer, scores=distance_scores):
    return scores(sentences, [each[0, layer] for each in found.predict(states, sentences)])


@pytest.mark.parametrize("structure", ["distance", "depth"])
def test_exact_tree_metrics_are_recovered(structure):
    train, states = treebank(300)
    dev, more = treebank(50, seed=1, start=len(states))
    test, last = treebank(60, seed=2, start=len(states) + len(more))
    states = np.concatenate([states, more, last])
    found = structural_probe(states, train, dev, structure, [0], schedule=Schedule(rate=0.01, factor=0.5, epochs=40))
    scores = distance_scores if structure == "distance" else depth_scores
    noise, exact = (scored(found, states, test, layer, scores) for layer in range(2))
    assert exact.hits.sum() > 0.97 * exact.num_edges.sum()
    assert macro_average(exact.spearman, exact.length) > 0.9
    assert noise.hits.sum() < 0.5 * noise.num_edges.sum()
    assert macro_average(noise.spearman, noise.length) < 0.5  # a word's distance to itself is always right
    control = random_maps([0], 2, WIDTH, WIDTH, structure)
    untrained = scored(control, states, test, 1, scores)
    assert macro_average(untrained.spearman, exact.length) < macro_average(exact.spearman, exact.length) - 0.02


def test_the_identity_is_exact_on_exact_metrics():
    sentences, states = treebank(20)
    identity = np.eye(WIDTH, dtype=np.float32)[None, None].repeat(2, axis=1)
    for structure, scores in (("distance", distance_scores), ("depth", depth_scores)):
        found = StructuralMaps(maps=identity, structure=structure).predict(states, sentences)
        exact = scores(sentences, [each[0, 1].round(3) for each in found])  # rounding errors would break ties
        assert (exact.hits == exact.num_edges).all()
        np.testing.assert_allclose(exact.spearman, 1)


def plain(states, train, dev, structure, seed, rank, schedule):
    """One probe in plain torch, one sentence at a time."""
    drawn = stream("structural-probe", seed).uniform(-0.05, 0.05, (rank, WIDTH))
    weight = torch.nn.Parameter(torch.from_numpy(drawn).float())
    optimiser = torch.optim.Adam([weight], lr=schedule.rate, foreach=False)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=schedule.factor, patience=0)

    def loss(sentence):
        words = torch.from_numpy(states[sentence.rows])
        num, total = len(sentence), torch.zeros(())
        for i in range(num):
            if structure == "depth":
                total = total + (sentence.depths[i] - ((weight @ words[i]) ** 2).sum()).abs() / num
                continue
            for j in range(num):
                distance = ((weight @ (words[i] - words[j])) ** 2).sum()
                total = total + (sentence.distances[i, j] - distance).abs() / num**2
        return total

    best, kept, since = math.inf, None, 0
    for epoch in range(schedule.epochs):
        order = stream(f"structural-{structure}", seed, epoch).permutation(len(train))
        for start in range(0, len(train), 4):
            optimiser.zero_grad()
            torch.stack([loss(train[i]) for i in order[start : start + 4]]).mean().backward()
            optimiser.step()
        with torch.no_grad():
            reached = float(torch.stack([loss(each) for each in dev]).mean())
        plateau.step(reached)
        better = reached < best - schedule.least
        best, kept, since = (reached, weight.detach().clone(), 0) if better else (best, kept, since + 1)
        if since > 4:
            break
    return kept


@pytest.mark.parametrize("structure", ["distance", "depth"])
def test_agrees_with_one_plain_probe_after_another(structure):
    train, states = treebank(18, longest=8)
    dev, more = treebank(6, seed=1, longest=8, start=len(states))
    states = np.concatenate([states, more])
    schedule = Schedule(rate=0.01, factor=0.1, least=1e-4, epochs=6)
    found = structural_probe(states, train, dev, structure, [0, 2], rank=5, batch=4, schedule=schedule)
    assert found.maps.shape == (2, 2, 5, WIDTH)
    for s, seed in enumerate((0, 2)):
        for layer in range(2):
            expected = plain(states[:, layer], train, dev, structure, seed, 5, schedule)
            np.testing.assert_allclose(found.maps[s, layer], expected, atol=2e-3)


def test_tree_distances_agree_with_shortest_paths():
    rng = np.random.default_rng(0)
    for num in (1, 2, 9):
        heads = random_tree(rng, num)
        graph = np.zeros((num, num))
        for word, head in enumerate(heads):
            if head >= 0:
                graph[word, head] = graph[head, word] = 1
        distances, depths = tree_distances(heads)
        np.testing.assert_array_equal(distances, shortest_path(graph))
        np.testing.assert_array_equal(depths, distances[heads.index(-1)])


@pytest.mark.parametrize("heads", [[-1, -1], [1, 0], [-1, 2, 1], [0, -1], [-1, 7], []])
def test_what_is_no_tree_is_told(heads):
    assert tree_distances(heads) is None
    assert tree_sentence(heads, 0, np.ones(len(heads), dtype=bool), np.ones(len(heads), dtype=bool)) is None


def test_words_without_states_and_punctuation():
    # 0 -> 1 -> 2 (no state) -> 3, and the full stop 4 on the root
    found = tree_sentence([-1, 0, 1, 2, 0], 10, np.array([1, 1, 0, 1, 1], bool), np.array([1, 1, 1, 1, 0], bool))
    assert found.rows.tolist() == [10, 11, 13, 14]
    assert found.distances[1, 2] == 2  # over the word that is not there
    assert not found.edges[1, 2]
    scores = distance_scores([found], [found.distances])
    assert (scores.hits[0], scores.num_edges[0]) == (1, 1)  # 0 - 1 alone: the stop's edge does not count


WORDS = ["Das", "Haus", ",", "5", "$", "."]
TAGS = {
    "stts": ["PDS", "NN", "$,", "CARD", "XY", "$."],
    "penn": ["DT", "NN", ",", "CD", "$", "."],
    "chinese": ["DT", "NN", "PU", "CD", "M", "PU"],
    "unknown set": ["D", "N", "Fc", "Z", "Zm", "Fp"],
    "none": ["_"] * 6,
}


@pytest.mark.parametrize("xpos", TAGS)
@pytest.mark.parametrize("upos", [None, ["_"] * 6, ["PRON", "NOUN", "PUNCT", "NUM", "SYM", "PUNCT"]])
def test_punctuation_is_no_syntax_in_any_set_of_tags(xpos, upos):
    expected = [True, True, False, True, True, False]
    assert is_syntax(WORDS, TAGS[xpos], upos).tolist() == expected
    assert is_syntax(WORDS, None, upos).tolist() == expected


def test_the_universal_tag_of_a_word_comes_before_all_others():
    assert is_syntax(["a", "-", "。"], ["-LRB-", "NN", "NN"], ["NOUN", "PUNCT", "_"]).tolist() == [True, False, False]
    assert is_syntax(["dogs", "'"], ["NNS", "POS"], None).all()


def test_spearman_agrees_with_scipy_and_constant_rows_are_counted():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 5, (2, 6, 9)).astype(float)
    first[2] = 3
    found = spearman_rows(first, second)
    assert np.isnan(found[2])
    for row in (0, 1, 3, 4, 5):
        assert found[row] == pytest.approx(spearmanr(first[row], second[row]).statistic)
    sentences, _ = treebank(1)
    scores = distance_scores(sentences, [np.zeros((len(sentences[0]),) * 2)])
    assert np.isnan(scores.spearman[0])
    assert scores.constant[0] == len(sentences[0])
    assert not scores.in_average[0]


def test_spanning_trees_agree_with_kruskal_and_keep_edges_of_length_0():
    rng = np.random.default_rng(0)
    distances = rng.random((8, 8))
    distances = distances + distances.T
    distances[2, 5] = distances[5, 2] = 0
    group, edges = list(range(8)), set()
    for i, j in sorted(combinations(range(8), 2), key=lambda pair: distances[pair]):
        if group[i] != group[j]:
            edges.add((i, j))
            group = [group[i] if each == group[j] else each for each in group]
    found = spanning_tree(distances)
    assert {(i, j) for i, j in zip(*np.nonzero(found), strict=True) if i < j} == edges
    assert (2, 5) in edges
    assert spanning_tree(np.zeros((1, 1))).sum() == 0
    assert spanning_tree(chain(5)).sum() == 8


def test_one_word_sentences_and_macro_average():
    everything = np.ones(1, dtype=bool)
    one = tree_sentence([-1], 0, everything, everything)
    scores = distance_scores([one], [np.zeros((1, 1))])
    assert (scores.hits[0], scores.num_edges[0]) == (0, 0)
    assert np.isnan(scores.spearman[0])
    assert depth_scores([one], [np.zeros(1)]).hits[0] == 1
    values, lengths = np.array([1.0, 0.0, 0.5]), np.array([5, 5, 9])
    assert macro_average(values, lengths) == 0.5
    weights = np.array([[1.0, 1, 1], [2, 0, 1], [0, 0, 1]])
    np.testing.assert_allclose(macro_average(values, lengths, weights), [0.5, 0.75, 0.5])
    states = np.zeros((1, 1, 3), dtype=np.float32)
    with pytest.raises(UserError, match="two words and more"):
        structural_probe(states, [one], [one])


def test_squared_distances_agree_with_differences():
    words = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    expected = ((words[:, :, None] - words[:, None]) ** 2).sum(-1)
    torch.testing.assert_close(squared_distances(words), expected, atol=1e-5, rtol=1e-4)
