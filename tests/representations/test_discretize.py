import numpy as np
import pytest
import torch
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import pairwise_distances_argmin

from infoflow.foundation import UserError
from infoflow.representations import discretize, mutual_information
from infoflow.representations._discretize import _reassignment_ratio, _start, cluster, nearest


def clumps(num_types, per_type, width=8, spread=0.1, seed=0):
    rng = np.random.default_rng(seed)
    types = np.repeat(np.arange(num_types), per_type)
    centres = rng.normal(size=(num_types, width))
    return (centres[types] + spread * rng.normal(size=(len(types), width))).astype(np.float32), types


@pytest.mark.parametrize("seed", range(4))
def test_few_well_separated_clumps_are_all_found(seed):
    """The specification: 30 clumps; a random start reaches only 0.85 to 0.93 of the information."""
    x, types = clumps(30, 40)
    assert mutual_information(discretize(x, 30, seed=seed), types) == pytest.approx(np.log(30), rel=0.005)


def test_the_seed_decides_and_nothing_else():
    x, _ = clumps(20, 30)
    assert torch.equal(discretize(x, 15, seed=1), discretize(torch.from_numpy(x).double(), 15, seed=1))
    assert not torch.equal(discretize(x, 15, seed=1), discretize(x, 15, seed=2))


@pytest.mark.parametrize(("clusters", "rows"), [(30, 2_000), (700, 800), (40, 31_000)])
def test_labels_are_scikit_learns_from_the_same_start(clusters, rows):
    """Its own trial of the start, on 3 batches, changes none."""
    x, _ = clumps(20, rows // 20, spread=1.0)
    start = _start(torch.from_numpy(x), clusters, seed=3)
    theirs = MiniBatchKMeans(
        clusters,
        init=start,
        batch_size=10_240,
        max_iter=max(1, 20 * min(10_240, len(x)) // len(x)),
        n_init=1,
        reassignment_ratio=_reassignment_ratio(x, start),
        random_state=3,
    ).fit(x)
    found = cluster(x, clusters, seed=3)
    np.testing.assert_array_equal(found.labels, theirs.labels_)
    np.testing.assert_array_equal(found.centres, theirs.cluster_centers_)


@pytest.mark.parametrize("clusters", [1, 40, 600])
def test_the_share_of_reassigned_clusters_counts_as_scikit_learn_does(clusters):
    x, _ = clumps(20, 100, spread=1.0)
    start = _start(torch.from_numpy(x), clusters, seed=3)
    counts = np.bincount(pairwise_distances_argmin(x, start))
    assert _reassignment_ratio(x, start) == min(0.003, 0.1 * len(x) / clusters / counts.max())


def test_labels_are_nearest_centres():
    x, _ = clumps(20, 30, spread=1.0)
    found = cluster(x, 12)
    assert found.labels.min() >= 0
    assert found.labels.max() < 12
    states = torch.from_numpy(x)
    again = nearest(states, torch.from_numpy(found.centres))
    distances = torch.cdist(states.double(), torch.from_numpy(found.centres).double())
    assert torch.equal(again.labels, distances.argmin(1))
    torch.testing.assert_close(again.squares.double(), distances.square().min(1).values, rtol=1e-4, atol=1e-4)
    assert (again.labels.numpy() == found.labels).mean() > 0.97  # the last batch moved the centres once more
    centres = np.stack([x[found.labels == label].mean(0) for label in range(12)])
    optimal = ((x - centres[found.labels]) ** 2).sum()
    assert float(again.squares.sum()) <= 1.1 * optimal


def test_one_cluster_and_as_many_as_rows():
    x = torch.eye(6)
    assert torch.equal(discretize(x, 1), torch.zeros(6, dtype=torch.int64))
    assert len(discretize(x, 6).unique()) == 6


def test_repeated_rows_share_a_label_and_leave_clusters_empty():
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]]).repeat(40, 1)
    found = cluster(x, 10)
    assert len(np.unique(found.labels)) == 3
    squares = nearest(x, torch.from_numpy(found.centres)).squares
    assert float(squares.sum()) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("clusters", [0, 7])
def test_impossible_numbers_of_clusters_are_refused(clusters):
    with pytest.raises(UserError, match=rf"clusters must lie in 1..6, the number of rows. Got {clusters}"):
        discretize(torch.eye(6), clusters)


def test_states_must_be_finite():
    with pytest.raises(UserError, match="NaN or infinity"):
        discretize(torch.full((5, 2), torch.nan), 2)
