"""Every statistic of the head map, its examples, and the figures of which heads matter."""

import base64
import shutil
import zlib

import numpy as np
import pandas as pd
import pytest
from drawn import drawn_figures, drawn_section
from scipy.stats import spearmanr
from synthetic_run import _write_plain
from whole_study import InMemory

from infoflow.results import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from synthetic_run import add_head_tables, make_analysis

    run = make_analysis(tmp_path_factory.mktemp("heads"))
    add_head_tables(run, model="bert-tiny")
    return run


@pytest.fixture(scope="module")
def head_map(heads):
    return figure_of(heads, "head-map")


@pytest.fixture(scope="module")
def known(head_map):
    """The rows of all statistics, and what these are."""
    return head_map.data, head_map.payload["live"]["statistics"]


def figures_with(run, *names, **changed):
    """The figures of these tables alone, and of others."""
    return drawn_figures(InMemory(run.read(), {name: run.tables[name] for name in names} | changed), "heads")


@pytest.fixture(scope="module")
def heads(run):
    return drawn_section(run, "heads")


def figure_of(heads, name):
    return next(figure for figure in heads.figures if figure.id == name)


def test_every_table_gives_its_statistics_in_groups(known):
    _, statistics = known
    assert [(one["group"], one["label"]) for one in statistics if not one["id"].startswith("offset")] == [
        ("how sharply", "confidence"),
        ("how sharply", "entropy"),
        ("where", "special tokens"),
        ("roles", "best relation"),
        ("roles", "rarest token"),
        ("roles", "induction"),
        ("does it matter", "relevance (voita)"),
        ("does it matter", "importance"),
        ("does it matter", "loss without the head"),
    ]


def test_a_head_s_relation_is_the_one_that_it_leads_most_in(known):
    rows, _ = known
    own = rows[rows["statistic"] == "relation"].sort_values(["layer", "head"]).reset_index()
    assert len(own) == len(set(zip(own["layer"], own["head"], strict=True)))
    assert own.loc[5, "note"] == "nsubj, dependent→head"
    assert set(own.drop(index=5)["note"]) == {"obj, dependent→head"}
    assert own.loc[5, "value"] - own.loc[5, "baseline"] == pytest.approx(0.2, abs=0.01)


def test_removal_is_signed_and_says_how_sure_it_is(known):
    rows, statistics = known
    one = next(one for one in statistics if one["id"] == "ablation-loss")
    own = rows[rows["statistic"] == "ablation-loss"]
    assert one["signed"]
    assert one["top"] == pytest.approx(own["value"].abs().max())
    assert set(own["note"]) == {"p < 0.001, corrected", "p = 0.600, corrected"}


def test_margins_count_what_leads_the_control(heads):
    figure = figure_of(heads, "head-map")
    sentence = next(one["sentence"] for one in figure.payload["live"]["statistics"] if one["id"] == "relation")
    assert "1 of 48 heads lead by 0.1" in sentence


def test_sentences_lie_one_after_the_other(head_map):
    """Weights of every head, then value norms; sentence by sentence."""
    ((grid, examples),) = head_map.payload["live"]["examples"].items()
    data = np.frombuffer(zlib.decompress(base64.b64decode(head_map.payload["blocks"][grid])), np.uint8)
    start, heads, layers = 0, 48, 6
    for number, sentence in enumerate(examples["sentences"]):
        size = len(sentence["queries"])
        weights = data[start : start + heads * size * size].reshape(layers, -1, size, size)
        norms = data[start + weights.size : start + weights.size + heads * size].reshape(heads, size)
        start += weights.size + norms.size
        head = 3
        expected = [max(i - 1, 0) if number == 0 else head % size for i in range(size)]
        np.testing.assert_array_equal(weights[2, head].argmax(1), expected)
        np.testing.assert_array_equal(norms[9], np.rint(255 * np.arange(1, size + 1) / size))
    assert start == len(data)
    assert examples["order"][0] == [[0, 0.9], [1, 0.7]]


def test_the_agreement_is_a_rank_correlation_over_heads(run, heads):
    figure = figure_of(heads, "heads-matter")
    keys = ["layer", "head"]
    importance = run.tables["head_importance"].set_index(keys)["value"]
    removal = run.tables["head_ablation"].set_index(keys)["value"]
    expected = spearmanr(importance, removal.reindex(importance.index)).statistic
    assert f"The rank correlation of importance and loss without the head is {expected:.2f}" in figure.words
    assert "38 of 48 in bert-tiny (all of them for the worse)" in figure.answer[-1]


def test_another_domain_has_its_sentence(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    other = RunFolder(tmp_path / "run")
    row = {"model": "bert-tiny", "objective": "masked-lm", "seed": 0, "trained": True, "kind": "all", "value": 0.61}
    numbers = {"low": 0.5, "high": 0.7, "baseline": 0.28, "count": 48, "replicates": [0.5, 0.6, 0.7]}
    frame = pd.DataFrame([row | numbers, row | numbers | {"kind": "encoder-self", "value": 0.4}])
    _write_plain(other, "ablation_transfer", frame.to_dict("records"))
    figure = figure_of(drawn_section(other, "heads"), "heads-matter")
    expected = "sentences of another domain: 0.61 (0.50 to 0.70) in bert-tiny (shuffled heads: 0.28)."
    assert figure.answer[-1].endswith(expected)
    assert "ablation_transfer" in figure.tables


def test_heads_can_go_until_the_loss_is_a_tenth_worse(heads):
    figure = figure_of(heads, "heads-removed")
    assert "can be removed before the loss is 10% worse: 40% in bert-tiny (in random order 20%)" in figure.words
    chance = figure.data[figure.data["order"] == "random"].set_index("removed")
    assert 0 < chance.loc[1.0, "high"] - chance.loc[1.0, "low"] < 0.1  # of the mean, not the range of the orders
    assert "3 random orders" in figure.caption


def test_what_removal_costs_is_paired_by_sentence(run):
    """Sentences differ far more than removal changes them; the interval of the change does not know of that."""
    rng = np.random.default_rng(0)
    sentences = rng.normal(0, 0.5, 200)  # what all shares have in common
    rows = [
        {"model": "bert-tiny", "objective": "masked-lm", "seed": 0, "trained": True, "kind": "all", "order": order,
         "draw": draw,
         "removed": share, "heads": int(48 * share), "metric": "loss", "value": 3 + share**2, "low": 2.0 + share**2,
         "high": 4.0 + share**2, "count": 24, "replicates": list(3 + share**2 + sentences + rng.normal(0, 0.01, 200))}
        for order, draw in (("importance", 0), ("random", 0), ("random", 1))
        for share in (0.0, 0.2, 0.4)
    ]  # fmt: skip
    data = figures_with(run, head_pruning_curve=pd.DataFrame(rows))["heads-removed"].data
    ranked = data[data["order"] == "importance"].set_index("removed")
    assert ranked["change"].tolist() == pytest.approx([0, 0.04, 0.16])
    assert (ranked["high"] - ranked["low"]).tolist() == [2.0, 2.0, 2.0]
    assert ranked.loc[0.0, ["change_low", "change_high"]].tolist() == [0.0, 0.0]
    width = ranked["change_high"] - ranked["change_low"]
    assert (width.loc[[0.2, 0.4]] < 0.1).all()
    assert (width.loc[[0.2, 0.4]] > 0).all()
    assert data.loc[data["order"] == "random", "change"].tolist() == pytest.approx([0, 0.04, 0.16])


def test_roles_are_those_whose_threshold_is_reached(heads):
    (grid,) = figure_of(heads, "head-map").payload["live"]["grids"]
    assert "nsubj dependent→head" in grid["roles"][5]
    assert all("nsubj dependent→head" not in names for head, names in grid["roles"].items() if head != 5)
    assert any("positional −1" in names for names in grid["roles"].values())


def test_the_most_relevant_head_has_an_equal_share_beside_it(heads, run):
    figure = figure_of(heads, "head-relevance")
    relevance = run.tables["head_relevance"]
    own = relevance[relevance["kind"] == "self"].groupby("layer")["value"].max()
    assert f"head's share of relevance is {100 * own.mean():.2f}% in bert-tiny" in figure.words
    assert f"with equal shares it would be {100 / relevance['head'].nunique():.0f}%" in figure.words
    assert "Rank correlation of relevance and confidence over heads:" in figure.answer[0]
    assert "with none at" in figure.answer[1]
