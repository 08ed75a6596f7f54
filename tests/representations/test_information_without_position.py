"""Clusters of states minus the mean state at their position: against explicit loops, and what then changes nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from infoflow.flow import describe_measure, measure
from infoflow.representations import (
    MutualInformation,
    MutualInformationWithoutPosition,
    StateClusters,
    cluster,
    mutual_information,
    position_means,
)

CLUSTERS = "infoflow.representations._clusters"
TYPES, LENGTH = 30, 10


def slow_means(states, positions, num, least=20):
    rows = [[state for state, at in zip(states, positions, strict=True) if at == place] for place in range(num)]
    rare = [state for own in rows if len(own) < least for state in own] or list(states)
    shared = np.mean(rare, axis=0)
    return np.array([*(np.mean(own, axis=0) if len(own) >= least else shared for own in rows), shared])


@pytest.mark.parametrize("frequent", [4, 12])
def test_means_are_those_of_an_explicit_loop(frequent):
    rng = np.random.default_rng(0)
    positions = np.concatenate([rng.integers(0, frequent, 30 * frequent), np.array([12, 13, 13])])[: 30 * frequent + 3]
    positions = positions if frequent == 4 else positions[:-3]
    states = rng.normal(size=(len(positions), 3)) + positions[:, None]
    found = position_means(torch.from_numpy(states).float(), torch.from_numpy(positions), 15)
    np.testing.assert_allclose(found, slow_means(states, positions, 15), atol=1e-5)


def fitted(states, positions, clusters=60, remove=True):
    """As `ClusterFit` does, for one layer and clustering."""
    means = position_means(states, positions, LENGTH)
    centres = cluster(states - means[positions] if remove else states, clusters).centres
    offsets = means[None, None] if remove else None
    return StateClusters(centres[None, None], np.zeros(1), offsets)


def chain(num=6000):
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, TYPES + 1)
    types = rng.choice(TYPES, num, p=shares / shares.sum())
    states = rng.normal(size=(TYPES, 8))[types] + 0.2 * rng.normal(size=(num, 8))
    return types, np.arange(num) % LENGTH, states, rng.normal(size=(LENGTH, 8))


def test_a_constant_of_any_size_at_each_position_changes_nothing():
    types, positions, states, constants = chain()
    at = torch.from_numpy(positions)

    def information(size, remove):
        rows = torch.from_numpy(states + size * constants[positions]).float()
        labels = fitted(rows, at, remove=remove).labels(0, rows, at)[0]
        return float(mutual_information(labels, types))

    plain, *changed = (information(size, remove=True) for size in (0, 1, 100))
    assert changed == pytest.approx([plain] * 2, abs=0.02)
    assert information(100, remove=False) < plain - 0.5
    assert plain > 2.3


def test_positions_beyond_those_fitted_take_the_mean_of_all():
    _, positions, states, _ = chain()
    rows, at = torch.from_numpy(states).float(), torch.from_numpy(positions)
    found = fitted(rows, at)
    far = found.labels(0, rows[:50], torch.full((50,), 500))
    expected = [int(((row - rows.mean(0) - found.centres[0, 0]) ** 2).sum(1).argmin()) for row in rows[:50]]
    assert far[0].tolist() == expected


def test_other_means_are_other_clusters():
    _, positions, states, _ = chain(num=600)
    found = fitted(torch.from_numpy(states).float(), torch.from_numpy(positions), clusters=5)
    assert found.offsets is not None
    moved = replace(found, offsets=found.offsets + 1)
    assert not np.array_equal(found.facts()["fingerprint"], moved.facts()["fingerprint"])


def test_on_a_model_the_fitted_states_have_no_mean_at_any_position(matched_models, parallel_corpus, monkeypatch):
    rows = {}
    monkeypatch.setattr(f"{CLUSTERS}._LEAST_AT_POSITION", 1)
    for kind in (MutualInformation, MutualInformationWithoutPosition):
        seen = rows.setdefault(kind, [])
        monkeypatch.setattr(
            f"{CLUSTERS}.cluster", lambda own, *rest, s=seen: s.append(own.clone()) or cluster(own, *rest)
        )
        frame = measure(matched_models["causal-lm"], parallel_corpus, [kind(clusters=5, types=30)])[kind.table.name]
        assert frame["layer"].tolist() == [0, 1, 2, 0, 1, 2]
    kept, removed = rows.values()
    assert [len(each) for each in kept] == [len(each) for each in removed]
    for own in removed:
        assert own.mean(0).abs().max() < 1e-4
    assert kept[0].mean(0).abs().max() > 0.01


def test_it_counts_the_tokens_of_the_plain_estimate(matched_models, parallel_corpus):
    measures = [kind(clusters=5, types=30) for kind in (MutualInformation, MutualInformationWithoutPosition)]
    plain, removed = measure(matched_models["causal-lm"], parallel_corpus, measures).values()
    assert removed["count"].tolist() == plain["count"].tolist()
    assert removed["value"].tolist() != plain["value"].tolist()


# -- many clusters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "most", "expected"),
    [(40_000, 500, 200), (10**6, 500, 500), (40_000, 10_000, 200), (2 * 10**5, 10_000, 2000), (10**6, 10_000, 10_000)],
)
def test_the_number_of_clusters_goes_beyond_500_only_on_request(tokens, most, expected):
    assert MutualInformation(most_clusters=most)._affordable(tokens) == expected


def test_results_of_the_usual_number_keep_their_keys():
    assert "most_clusters" not in describe_measure(MutualInformation())
    assert describe_measure(MutualInformation(most_clusters=10_000))["most_clusters"] == 10_000


def test_states_for_fitting_stay_within_their_bytes(matched_models, parallel_corpus, monkeypatch):
    model, read = matched_models["causal-lm"], []
    width = model.anatomy.stack("decoder").width
    monkeypatch.setattr(f"{CLUSTERS}._CHUNK", 4)
    monkeypatch.setattr(f"{CLUSTERS}.cluster", lambda own, *rest: read.append(len(own)) or cluster(own, *rest))
    for limit in (1 << 30, 4 * width * 2 * 30):  # thirty states of each fold
        monkeypatch.setattr(f"{CLUSTERS}._FIT_BYTES", limit)
        measure(model, parallel_corpus, [MutualInformation(clusters=10, types=30, clusterings=2)])
    assert max(read[-2:]) < min(read[:2])
    assert max(read[-2:]) >= 30
