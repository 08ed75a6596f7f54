"""The section on alignment: its sentences follow the numbers."""

import pandas as pd
import pytest
from drawn import drawn_section

from infoflow.alignment import ALIGNMENT
from infoflow.foundation import interval, replicate_weights, stream
from infoflow.results import Column

pytestmark = pytest.mark.slow

KINDS = ("aligned", "implicit", "unaligned", "shuffled", "regulariser only")
SCORES = {  # by kind, in the order of KINDS; then the baseline
    "mse": (0.15, 0.20, 0.23, 0.58, 0.92, 0.58),
    "retrieval forward": (0.35, 0.20, 0.15, 0.001, 0.0005, 0.0005),
    "retrieval backward": (0.38, 0.20, 0.15, 0.001, 0.0005, 0.0005),
    "rsa": (0.88, 0.80, 0.75, 0.30, 0.32, 0.0),
    "pwcca": (0.78, 0.70, 0.65, 0.53, 0.60, 0.09),
}
GAPS = {
    "average similarity gap": (0.04, 0.02, 0.03, 0.5, 0.04, 0.1),
    "self-similarity gap": (0.05, 0.05, 0.09, 0.2, 0.09, 0.7),
}


def row(kind, metric, states, layer, mean, baseline, seed, noise=0.002):
    value = mean + stream("test", kind, metric, layer, seed).normal(0, noise)
    replicates = value + noise * (replicate_weights() @ stream("test", "blocks").normal(0, 1, 64)) / 8
    low, high = interval(replicates)
    numbers = {"value": value, "low": low, "high": high, "baseline": baseline, "count": 2000}
    return {
        "source_model": f"masked-lm/seed-{seed}", "target_model": f"translation/seed-{seed}", "kind": kind,
        "states": states, "layer": layer, "metric": metric, "replicates": replicates.tolist(), "seed": seed,
        "least": 5 * (metric == "self-similarity"),
        "signature": "nrefs:1|case:lc" if metric == "bleu" else "", **numbers,
    }  # fmt: skip


def rows(seeds, changes):
    found = []
    for seed in seeds:
        for metric, (*values, baseline) in {**SCORES, **GAPS, **changes}.items():
            states, layer = ("encoder", -1) if "gap" in metric else ("mapped", 6)
            found += [row(k, metric, states, layer, v, baseline, seed) for k, v in zip(KINDS, values, strict=True)]
        for kind in (*KINDS, "target"):
            for metric in ("average similarity", "self-similarity"):
                found += [row(kind, metric, "encoder", n, 0.1 + 0.02 * n, 0.0, seed) for n in range(7)]
        found += [row(k, "rsa", "encoder", 6, v, 0.0, seed) for k, v in (("implicit", 0.54), ("unaligned", 0.36))]
        found += [
            row(k, "bleu", "encoder", 6, v, 0.6, seed, 0.2)
            for k, v in (("unaligned", 0.8), ("implicit", 7), ("target", 40))
        ]
    return pd.DataFrame(found)


@pytest.fixture
def section(tmp_path):
    from synthetic_run import make_study

    def build(seeds=(1, 2, 3), **changes):
        run = make_study(tmp_path / "study", seeds=seeds, tables=("training_runs",))
        seed = Column(name="seed", dtype="int64", unit="", description="seed")
        run.tables.write(rows(seeds, changes), ALIGNMENT.with_keys(seed))
        return drawn_section(run, "alignment")

    return build


def test_answers_follow_the_numbers(section):
    figures = {figure.id: figure for figure in section().figures}
    answers = {name: " ".join([figure.words, *figure.answer]) for name, figure in figures.items()}
    scores = answers["alignment-scores"]
    assert "more than a linear map" in scores
    assert "squared error is 0.0" in scores
    assert "lower, RSA is 0.1" in scores
    assert "widens the gap to translation in average similarity" in answers["alignment-curves"]
    assert "narrows the gap to translation in self-similarity" in answers["alignment-curves"]
    assert "comes nearer to that encoder's" in answers["alignment-bleu"]


def test_other_numbers_give_other_answers(section):
    worse = {"retrieval forward": (0.1, 0.2, 0.15, 0.001, 0.0005, 0.0005), "rsa": (0.75, 0.8, 0.75, 0.3, 0.3, 0.0)}
    figures = {figure.id: figure for figure in section(**worse).figures}
    scores = " ".join([figures["alignment-scores"].words, *figures["alignment-scores"].answer])
    assert "less than a linear map" in scores
    assert "RSA does not clearly differ" in scores


def test_every_seed_is_in_the_data(section):
    data = section().figures[0].data
    assert set(data["seed"]) == {-1, 1, 2, 3}
    assert len(data) == 5 * 5 * 4
