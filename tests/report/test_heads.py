import base64
import math

import numpy as np
import pandas as pd
import pytest
from drawn import shown_tables

from infoflow.report.heads._heads import _positional_frame
from infoflow.report.heads._statistics import head_statistics


@pytest.fixture(scope="module")
def frames(study):
    names = ("head_confidence", "head_entropy", "head_positional")
    return {name: shown_tables(study)[name] for name in names}


def test_the_better_neighbour_counts(frames):
    pairs = _positional_frame(frames["head_confidence"], frames["head_positional"])
    table = frames["head_positional"]
    for row in pairs.sample(20, random_state=0).itertuples():
        own = table[(table["model"] == row.model) & (table["trained"] == row.trained) & (table["kind"] == "self")]
        own = own[(own["stack"] == row.stack) & (own["layer"] == row.layer) & (own["head"] == row.head)]
        assert row.share == own.loc[own["offset"].abs() == 1, "value"].max()


def test_an_offset_that_cannot_occur_is_left_out(frames):
    """A causal head has no next token: its share is NaN, and must not win."""
    positional = frames["head_positional"].copy()
    causal = positional["series"] == "causal-lm"
    impossible = positional[causal & (positional["offset"] == -1)].assign(offset=1, value=math.nan)
    pairs = _positional_frame(frames["head_confidence"], pd.concat([positional, impossible]))
    assert pairs["share"].notna().all()
    assert set(pairs.loc[pairs["series"] == "causal-lm", "offset"]) == {-1}


def test_statistics_come_with_the_nearest_offsets_first(frames):
    _, statistics = head_statistics(frames)
    labels = ["confidence", "entropy", "previous token", "next token", "2 tokens back", "2 tokens ahead"]
    assert [statistic.label for statistic in statistics] == labels
    assert statistics[0].top == 1.0
    assert statistics[1].top == frames["head_entropy"]["value"].max()


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
