import base64
import math

import numpy as np
import pandas as pd
import pytest
from drawn import drawn_figures
from whole_study import InMemory


def heads_figures(study, **changed):
    names = ("head_confidence", "head_entropy", "head_positional")
    return drawn_figures(InMemory(study.read(), {name: study.tables[name] for name in names} | changed), "heads")


def test_without_relevance_heads_stand_by_confidence(study):
    figure = heads_figures(study)["head-relevance"]
    data, table = figure.data, study.tables["head_confidence"]
    assert "relevance" not in data  # these tables have none: heads stand by confidence
    assert len(data) == 3 * 3 * 2 * 48
    own = data[(data["series"] == "masked-lm") & (data["seed"] == 0) & data["trained"] & (data["layer"] == 2)]
    assert own["confidence"].is_monotonic_decreasing
    same = table[(table["objective"] == "masked-lm") & (table["seed"] == 0) & table["trained"]]
    same = same[(same["layer"] == 2) & (same["stack"] == "encoder") & (same["kind"] == "self")]
    assert sorted(own["confidence"]) == pytest.approx(sorted(same["value"]))
    assert figure.tables == ("head_confidence",)


def test_an_offset_that_cannot_occur_makes_no_head_positional(study):
    """A causal head has no next token: its share is NaN, and must not win."""
    positional = study.tables["head_positional"]
    causal = positional["objective"] == "causal-lm"
    impossible = positional[causal & (positional["offset"] == -1)].assign(offset=1, value=math.nan)
    changed = pd.concat([positional, impossible], ignore_index=True)
    plain, more = heads_figures(study), heads_figures(study, head_positional=changed)
    pd.testing.assert_frame_equal(plain["head-relevance"].data, more["head-relevance"].data)


def test_statistics_come_with_the_nearest_offsets_first(study):
    statistics = heads_figures(study)["head-map"].payload["live"]["statistics"]
    labels = ["confidence", "entropy", "previous token", "next token", "2 tokens back", "2 tokens ahead"]
    assert [statistic["label"] for statistic in statistics] == labels
    assert statistics[0]["top"] == 1.0
    assert statistics[1]["top"] == pytest.approx(study.tables["head_entropy"]["value"].max(), rel=2e-3)


def test_the_map_holds_the_table_s_numbers(study, story):
    figure = next(figure for figure in story.figures if figure.id == "head-map")
    table = study.tables["head_entropy"]
    limits = next(one["limits"] for one in figure.payload["live"]["statistics"] if one["id"] == "entropy")
    for grid in figure.payload["live"]["grids"][:6]:
        stack, kind = grid["id"].split("/")[-2:]
        own = table[(table["objective"] == grid["series"]) & (table["seed"] == grid["seed"])]
        own = own[(own["trained"] == grid["trained"]) & (own["stack"] == stack) & (own["kind"] == kind)]
        for column in ("value", "low", "high", "baseline") if grid["trained"] else ("value",):
            steps = np.frombuffer(base64.b64decode(grid["statistics"]["entropy"][column]), "<u2")
            numbers = limits[0] + (limits[1] - limits[0]) * steps / 65534
            for row in own.to_dict("records"):
                shown = numbers[row["layer"] * grid["heads"] + row["head"]]
                assert shown == pytest.approx(row[column], abs=5e-5)


def test_the_sentence_counts_strong_heads(study, story):
    sentence = next(figure for figure in story.figures if figure.id == "head-map").answer[0]
    table = study.tables["head_confidence"]
    own = table[(table["objective"] == "masked-lm") & table["trained"]]
    assert (
        f"{own['value'].mean():.2f} in masked LM ({(own['value'] >= 0.8).sum()} of {len(own)} heads reach 0.8)"
        in sentence
    )
