"""`experiments/validation/grounded`: the committed table has every measure and quality, with possible numbers."""

import csv
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from infoflow import representations

FOLDER = Path(__file__).parents[1] / "experiments" / "validation" / "grounded"


@pytest.fixture(scope="module")
def run():
    spec = spec_from_file_location("grounded_run", FOLDER / "run.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_measure_has_every_quality(run):
    with (FOLDER / "grounded.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    qualities = []
    for layer in map(str, run.SEPARATED):
        qualities += [(layer, test, quality) for test in run.TESTS for quality in ("AUPRC", "conformity")]
        qualities.append((layer, "mean of three", "AUPRC"))
    qualities += [(str(run.LAYERS), name, "Spearman") for name in run.PREDICTIONS]
    qualities.append(("all", "layers", "conformity"))
    found = [tuple(row[column] for column in ("view", "measure", "layer", "test", "quality")) for row in rows]
    expected = [(view, name, *q) for view in ("sentence", "token") for name in run.MEASURES for q in qualities]
    assert found == expected
    for row in rows:
        assert hasattr(representations, row["measure"].split(",")[0]) or "not ours" in row["measure"]
        low, value, high = (float(row[column]) for column in ("low", "value", "high"))
        assert -1 <= low <= value <= high <= 1 or (row["quality"] == "AUPRC" and 0 <= low <= high <= 1), row
        assert row["quality"] == "Spearman" or low >= 0, row


def test_separation_is_the_average_precision_of_scikit_learn(run):
    sizes, random = [4, 5, 6], np.random.default_rng(0)
    values = random.normal(size=(15, 15))
    values += values.T
    group = np.repeat([0, 1, 2], sizes)
    values += 0.8 * (group[:, None] == group)
    weights = run.drawn(sizes)[:3]
    precision, order = run.separation(values, sizes, weights)
    a, b = np.triu_indices(15, 1)
    for draw, times in enumerate(weights):
        expected, conform = [], []
        for one in range(3):
            pairs = (group[a] == one) | (group[b] == one)
            inner, weight = ((group[a] == one) & (group[b] == one))[pairs], (times[a] * times[b])[pairs]
            score = values[a, b][pairs]
            expected.append(average_precision_score(inner, score, sample_weight=weight))
            above = score[inner][:, None] > score[~inner]
            conform.append(np.average(above, weights=weight[inner][:, None] * weight[~inner]))
        assert precision[draw] == pytest.approx(np.mean(expected))
        assert order[draw] == pytest.approx(np.mean(conform))


def test_layers_in_order_conform(run):
    depth = np.arange(5)
    near = -np.abs(depth[:, None] - depth).astype(float)
    assert run.monotonicity(near) == 1
    assert run.monotonicity(-near) == 0
