import numpy as np
import pytest
import torch

from infoflow.foundation import UserError
from infoflow.heads import relation_scores


def example(seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.softmax(3 * torch.randn(2, 3, 2, 7, 7, generator=generator, dtype=torch.float64), dim=-1)
    valid = torch.ones(3, 7, dtype=torch.bool)
    valid[1, 5:] = False
    valid[2, 0] = False
    rng = np.random.default_rng(seed)
    governors = torch.from_numpy(rng.integers(-1, 5, (3, 7)))
    relations = [[str(label) for label in row] for row in rng.choice(["nsubj", "obj", "amod"], (3, 7))]
    return weights, valid, governors, relations


def edges_of(valid, governors, relations, relation, direction):
    for b in range(len(valid)):
        for d in range(valid.shape[1]):
            g = int(governors[b, d])
            if g >= 0 and valid[b, d] and valid[b, g] and relations[b][d] == relation:
                yield (b, d, g) if direction == "dependent→head" else (b, g, d)


def favourite(weights, valid, layer, b, head, query):
    keys = [j for j in range(valid.shape[1]) if valid[b, j]]
    return max(keys, key=lambda j: (float(weights[layer, b, head, query, j]), -j))


@pytest.mark.parametrize("multi", ["per_edge", "any"])
def test_agree_with_definition(multi):
    weights, valid, governors, relations = example()
    frame = relation_scores(weights, valid, governors, relations, multi=multi)
    assert len(frame) == 2 * 2 * 3 * 2
    for row in frame.itertuples():
        edges = list(edges_of(valid, governors, relations, row.relation, row.direction))
        offsets = [goal - start for _, start, goal in edges]
        common = min(set(offsets), key=lambda o: (-offsets.count(o), o))
        hit, base = {}, {}
        for number, (b, start, goal) in enumerate(edges):
            unit = number if multi == "per_edge" else (b, start)
            found = favourite(weights, valid, row.layer, b, row.head, start) == goal
            hit[unit] = hit.get(unit, False) or found
            base[unit] = base.get(unit, False) or goal - start == common
        assert row.count == len(hit)
        assert row.accuracy == pytest.approx(np.mean(list(hit.values())))
        assert row.baseline == pytest.approx(np.mean(list(base.values())))


def test_a_perfect_head_finds_every_head_but_one_dependent_of_each():
    governors = torch.tensor([[1, -1, 1, 2]])
    weights = torch.zeros(1, 1, 1, 4, 4)
    for dependent, governor in enumerate(governors[0].tolist()):
        weights[..., dependent, max(governor, 0)] = 1
    frame = relation_scores(weights, torch.ones(1, 4, dtype=torch.bool), governors, [["x"] * 4])
    upward = frame[frame["direction"] == "dependent→head"].iloc[0]
    assert (upward["accuracy"], upward["count"]) == (1, 3)
    assert upward["baseline"] == pytest.approx(2 / 3)  # two of three edges lead one to the left


def test_padding_changes_nothing():
    weights, valid, governors, relations = example()
    padded = torch.nn.functional.pad(weights, (2, 0, 2, 0), value=torch.nan)
    padded[..., 2:, :2] = 0
    shifted = torch.nn.functional.pad(governors + 2 * (governors >= 0), (2, 0), value=-1)
    mask = torch.nn.functional.pad(valid, (2, 0))
    frame = relation_scores(padded, mask, shifted, [["", "", *row] for row in relations])
    expected = relation_scores(weights, valid, governors, relations)
    np.testing.assert_allclose(frame["accuracy"], expected["accuracy"])
    np.testing.assert_allclose(frame["baseline"], expected["baseline"])


def test_no_edges_give_an_empty_table():
    weights, valid, governors, relations = example()
    assert relation_scores(weights, valid, torch.full_like(governors, -1), relations).empty


def test_mistakes_are_named():
    weights, valid, governors, relations = example()
    with pytest.raises(UserError, match="2 lists of relations"):
        relation_scores(weights, valid, governors, relations[:2])
    with pytest.raises(UserError, match=r"must lie in −1\.\.6"):
        relation_scores(weights, valid, governors + 5, relations)
    with pytest.raises(UserError, match="Sentence 0 has no label for token"):
        relation_scores(weights, valid, governors, [row[:3] for row in relations])
    with pytest.raises(UserError, match="multi must be"):
        relation_scores(weights, valid, governors, relations, multi="all")
