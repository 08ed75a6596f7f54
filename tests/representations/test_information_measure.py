"""Information about input and output: rows against explicit sums, and the measure on a model."""

import json
from dataclasses import replace

import numpy as np
import pytest

from infoflow.flow import NO_LABEL, PassOptions, measure, measure_shard, merge_shards
from infoflow.foundation import UserError, block_of, file_digest
from infoflow.representations import MutualInformation, _clusters, corrected_information, estimate_information
from infoflow.representations._clusters import cluster, fold_of
from infoflow.representations._information_table import CONVERGED, CountedTokens, InformationRows

pytestmark = pytest.mark.slow

IDS = 60


def make_counted(num=4000, layers=3, clusterings=2, seed=0, labelled=True):
    """Tokens by Zipf's law; each layer's clusters tell less of them, and nothing of the labels."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, IDS + 1)
    token = rng.choice(IDS, num, p=shares / shares.sum())
    clusters = np.empty((layers, clusterings, num), dtype=np.uint16)
    for layer in range(layers):
        noisy = rng.random((clusterings, num)) < 0.2 * layer
        clusters[layer] = np.where(noisy, rng.integers(0, 25, (clusterings, num)), token % 25)
    label = rng.permutation(token) if labelled else np.full(num, NO_LABEL)
    sentence, position = np.arange(num) // 10, np.arange(num) % 10
    return CountedTokens(sentence=sentence, position=position, token=token, label=label, clusters=clusters)


def rows_of(counted, **changes):
    settings = {"frequent": np.ones(IDS, dtype=bool), "model": "m", "stack": "encoder", "regime": "clean"}
    inertia = np.zeros(len(counted.clusters))
    return InformationRows(counted=counted, clusters=25, inertia=inertia, **settings | changes).rows()


def test_rows_are_means_over_clusterings():
    counted = make_counted()
    rows = [row for row in rows_of(counted) if row["side"] == "input"]
    for row, layer in zip(rows, counted.clusters.astype(np.int64), strict=True):
        found = [estimate_information(each, counted.token, block_of(counted.sentence)) for each in layer]
        assert row["value"] == pytest.approx(np.mean([each.value for each in found]), abs=1e-9)
        assert row["plug_in"] == pytest.approx(np.mean([each.plug_in for each in found]), abs=1e-9)
        assert row["at_half"] == pytest.approx(np.mean([each.by_size[-2] for each in found]), abs=1e-9)
        assert row["value_by_size"][-1] == pytest.approx(row["value"])
        assert row["tokens_by_size"] == pytest.approx([250, 500, 1000, 2000, 4000])
        assert row["low"] < row["value"] < row["high"]
    values = [row["value"] for row in rows]
    assert values == sorted(values, reverse=True)
    assert values[0] < rows[0]["entropy"]


def test_the_order_of_tokens_does_not_matter():
    counted = make_counted()
    shuffled = counted.take(np.random.default_rng(1).permutation(len(counted)))
    assert rows_of(counted) == rows_of(shuffled)


def test_labels_that_clusters_do_not_know_give_nothing():
    output = [row for row in rows_of(make_counted()) if row["side"] == "output"]
    for row in output:
        assert row["plug_in"] > 0.1
        assert row["value"] == pytest.approx(0, abs=0.03)
        assert row["baseline"] == pytest.approx(0, abs=0.03)
        assert row["low"] < 0 < row["high"]


def test_the_interval_carries_sentences_clustering_and_bias():
    counted = make_counted(num=1500)
    row = [row for row in rows_of(counted) if row["side"] == "input"][2]
    blocks, layer = block_of(counted.sentence), counted.clusters[2].astype(np.int64)
    found = [estimate_information(each, counted.token, blocks) for each in layer]
    without = np.mean([each.without_block for each in found], axis=0)
    sentences = 63 / 64 * ((without - without.mean()) ** 2).sum()
    of_layers = [
        [corrected_information(c, counted.token, blocks) for c in each.astype(np.int64)] for each in counted.clusters
    ]
    spread = np.sqrt(np.mean(np.var(of_layers, axis=1, ddof=1)))
    assert row["clustering_spread"] == pytest.approx(spread)
    drift = np.mean([each.drift for each in found])
    assert abs(drift) >= abs(row["value"] - row["at_half"])
    expected = np.sqrt(sentences + spread**2 / 2 + drift**2 + row["optimism"] ** 2)
    assert np.std(row["replicates"]) == pytest.approx(expected, rel=0.25)


def test_one_clustering_has_no_spread():
    row = rows_of(make_counted(clusterings=1))[0]
    assert np.isnan(row["clustering_spread"])
    assert np.isfinite([row["low"], row["high"]]).all()


def test_few_tokens_have_not_converged():
    few, many = (rows_of(make_counted(num=num, labelled=False))[2] for num in (300, 60_000))
    assert not few["converged"]
    assert abs(few["value"] - few["at_half"]) > CONVERGED
    assert many["converged"]


def test_centres_that_know_their_own_sentences_only_have_not_converged():
    """One clustering knows the tokens of a half of the sentences, the other those of the other half."""
    counted = make_counted(num=60_000, layers=1)
    own = fold_of(counted.sentence) == np.arange(2)[:, None]
    noise = np.random.default_rng(0).integers(0, 25, own.shape)
    row = rows_of(replace(counted, clusters=np.where(own, counted.clusters[0], noise)[None].astype(np.uint16)))[0]
    blocks = block_of(counted.sentence)
    halves = [
        [corrected_information(labels[at], counted.token[at], blocks[at]) for at in (fold, ~fold)]
        for labels, fold in zip(np.where(own, counted.clusters[0], noise), own, strict=True)
    ]
    assert row["optimism"] == pytest.approx(np.mean([on_own - on_other for on_own, on_other in halves]) / 2)
    assert row["optimism"] > 1
    assert not row["converged"]
    assert row["high"] - row["low"] > 2 * 1.9 * row["optimism"]
    assert abs(rows_of(counted)[0]["optimism"]) < 0.03


def test_a_clustering_is_fitted_to_one_half_of_the_sentences(matched_models, parallel_corpus, monkeypatch):
    fitted = []
    monkeypatch.setattr(_clusters, "cluster", lambda rows, *rest: fitted.append(rows) or cluster(rows, *rest))
    model = matched_models["causal-lm"]
    halves = [parallel_corpus.select(np.flatnonzero(fold_of(parallel_corpus.content_ids) == f), "half") for f in (0, 1)]
    expected = [information(model, half, types=10_000)["count"].max() for half in halves]
    fitted.clear()
    information(model, parallel_corpus, types=10_000, clusters=20)
    assert [len(rows) for rows in fitted[:2]] == expected
    assert expected[0] != expected[1]


def test_only_frequent_labels_count():
    counted = make_counted()
    frequent = np.arange(IDS) < 10
    sides = {row["side"]: row for row in rows_of(counted, frequent=frequent)}
    assert sides["input"]["count"] == len(counted)
    assert sides["output"]["count"] == (counted.label < 10).sum()
    assert sides["output"]["types"] == 10


# -- on a model --------------------------------------------------------------------------------------------------------


def information(model, corpus, options=None, **settings):
    measured = MutualInformation(**{"clusters": 5, "types": 30} | settings)
    return measure(model, corpus, [measured], options)["mutual_information"]


def test_every_frequent_token_is_counted(matched_models, parallel_corpus):
    model = matched_models["causal-lm"]
    frame = information(model, parallel_corpus, types=8)
    encoded = [model.tokenizer(sentence.text)["input_ids"] for sentence in parallel_corpus]
    special = set(model.tokenizer.all_special_ids)
    plain = [[token for token in ids if token not in special] for ids in encoded]
    counts = np.bincount(np.concatenate(plain))
    frequent = set(np.argsort(-counts, kind="stable")[:8].tolist())
    at = [(a in frequent, b in frequent) for ids in plain for a, b in zip(ids, [*ids[1:], None], strict=True)]
    sides = frame.groupby("side")["count"].unique()
    assert sides["input"].tolist() == [sum(a for a, _ in at)]
    assert sides["output"].tolist() == [sum(a and b for a, b in at)]
    assert frame["layer"].tolist() == [0, 1, 2, 0, 1, 2]


def test_the_input_side_of_clean_text_does_not_depend_on_the_task(matched_models, parallel_corpus):
    counts = {
        name: information(model, parallel_corpus, PassOptions(decoder_states=False)).query("side == 'input'")["count"]
        for name, model in matched_models.items()
    }
    assert len({tuple(each) for each in counts.values()}) == 1


def test_a_decoder_that_reads_translations_is_measured_too(matched_models, parallel_corpus):
    frame = information(matched_models["translation"], parallel_corpus)
    assert set(frame["stack"]) == {"encoder", "decoder"}
    assert set(frame.loc[frame["stack"] == "encoder", "side"]) == {"input"}
    assert set(frame.loc[frame["stack"] == "decoder", "side"]) == {"input", "output"}


def test_training_keeps_replaced_tokens_only(matched_models, parallel_corpus):
    frame = information(matched_models["masked-lm"], parallel_corpus, regime="training", clusters=2)
    assert set(frame["side"]) == {"input", "output"}
    assert frame["regime"].eq("training").all()
    assert frame["count"].nunique() == 1  # the same occurrences on both sides
    with pytest.raises(UserError, match="only masked LMs read corrupted text in training"):
        information(matched_models["causal-lm"], parallel_corpus, regime="training")


def test_fewer_occurrences_are_some_of_them(matched_models, parallel_corpus):
    model = matched_models["causal-lm"]
    whole = information(model, parallel_corpus)["count"].max()
    part = information(model, parallel_corpus, occurrences=100)["count"].max()
    assert 60 < part < 140 < whole


@pytest.mark.parametrize(("clusters", "expected"), [(0, 2), (5, 5)])
def test_clusters_follow_the_tokens_unless_told(matched_models, parallel_corpus, clusters, expected):
    frame = information(matched_models["causal-lm"], parallel_corpus, clusters=clusters)
    assert frame["clusters"].eq(expected).all()


def test_too_many_clusters_are_reduced_with_a_warning(matched_models, parallel_corpus):
    with pytest.warns(UserWarning, match=r"too few for 1,000 clusters: using \d\d, one per 10 tokens"):
        information(matched_models["causal-lm"], parallel_corpus, clusters=1000)


def test_shards_give_what_one_process_gives(matched_models, parallel_corpus, tmp_path):
    model, measures = matched_models["causal-lm"], [MutualInformation(clusters=5, types=30)]
    alone = measure(model, parallel_corpus, measures)["mutual_information"]
    shards = [measure_shard(model, parallel_corpus, measures, i, 2, tmp_path / str(i)) for i in range(2)]
    merged = merge_shards(model, parallel_corpus, measures, shards, tmp_path / "work").tables["mutual_information"]
    assert merged.to_dict("records") == alone.to_dict("records")


def test_counts_of_other_centres_are_not_added(matched_models, parallel_corpus, tmp_path):
    model, measures = matched_models["causal-lm"], [MutualInformation(clusters=5, types=30)]
    shards = [measure_shard(model, parallel_corpus, measures, i, 2, tmp_path / str(i)) for i in range(2)]
    path = next(shards[1].glob("measure-*.npz"))
    with np.load(path) as arrays:
        changed = dict(arrays)
    changed["decoder.fingerprint"] = changed["decoder.fingerprint"][::-1].copy()
    np.savez(path, **changed)
    manifest = json.loads((shards[1] / "shard.json").read_text())
    manifest["sha256"][path.name] = file_digest(path)
    (shards[1] / "shard.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="have different clusters"):
        merge_shards(model, parallel_corpus, measures, shards, tmp_path / "work")


def test_hardly_any_tokens_give_an_empty_table(matched_models, parallel_corpus):
    few = parallel_corpus.select(np.arange(2), "few")
    assert len(information(matched_models["causal-lm"], few)) == 0
