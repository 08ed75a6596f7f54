"""Source against prefix, one prediction at a time; divergence from the last checkpoint, type by type."""

import copy
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from infoflow.flow import PassOptions, Reader, measure
from infoflow.foundation import UserError, block_of, replicate_weights
from infoflow.heads import token_relevance
from infoflow.over_training import SeedDivergence, SourceContribution, prediction_divergence, source_share

pytestmark = pytest.mark.slow


def steps_by_hand(model, corpus, rule, explained="top"):
    """(step, share, entropy, entropy of the prefix, sentence id) of every sentence of the commonest lengths."""
    reader = Reader(model, corpus, max_length=512, seed=0, decoder=True)
    found = {}
    for row in range(len(corpus)):
        streams = reader.padded(np.array([row])).streams
        source, target = streams["encoder"], streams["decoder"]
        lengths = source.input_ids.shape[1], target.input_ids.shape[1]
        if min(lengths) < 4:
            continue
        batch = {"input_ids": source.input_ids, "decoder_input_ids": target.input_ids}
        for step in range(lengths[1]):
            token = int(target.labels[0, step]) if explained == "reference" else None
            if rule == "alti":
                token = None
            frame = token_relevance(model, batch, method=rule, position=step, target=token)
            r = {stack: part["relevance"].to_numpy() for stack, part in frame.groupby("stack")}
            prefix = r["decoder"][: step + 1]
            assert not r["decoder"][step + 1 :].any()
            share, entropy = source_share(r["encoder"], prefix)
            p = prefix / prefix.sum()
            of_prefix = -(p[p > 0] * np.log(p[p > 0])).sum()
            found.setdefault(lengths, []).append((step, share, entropy, of_prefix, corpus.content_ids[row]))
    sizes = {lengths: len({sentence for *_, sentence in steps}) for lengths, steps in found.items()}
    best = max(sizes, key=lambda lengths: (sizes[lengths], lengths))
    return best, found[best]


@pytest.mark.parametrize(("rule", "explained"), [("voita", "top"), ("voita", "reference"), ("alti", "reference")])
def test_table_against_one_prediction_at_a_time(matched_models, parallel_corpus, rule, explained):
    model, corpus = matched_models["translation"], parallel_corpus.select(np.arange(16))
    table = measure(model, corpus, [SourceContribution(rules=(rule,), explained=explained)])["source_contribution"]
    (length, steps), found = steps_by_hand(model, corpus, rule, explained)
    assert set(table["source_length"]) == {length}
    assert set(table["target_length"]) == {steps}
    assert sorted(set(table["position"])) == list(range(-1, steps))
    values = table.set_index(["position", "measure"])
    for position in range(-1, steps):
        at = [one for one in found if (one[0] >= 1 if position == -1 else one[0] == position)]
        blocks = block_of(np.array([one[-1] for one in at]))
        for column, name in enumerate(("share", "entropy", "prefix_entropy"), start=1):
            row, numbers = values.loc[(position, name)], np.array([one[column] for one in at])
            assert row["value"] == pytest.approx(numbers.mean(), rel=1e-4, abs=1e-6)
            assert row["count"] == len(at)
            weights = replicate_weights()[:, blocks]
            with np.errstate(invalid="ignore"):
                expected = (weights @ numbers) / weights.sum(1)
            np.testing.assert_allclose(row["replicates"], expected, rtol=1e-4, atol=1e-6)
        even = np.mean([length / (length + step + 1) for step in {one[0] for one in at}])
        assert values.loc[(position, "share")]["baseline"] == pytest.approx(even)
        assert values.loc[(position, "entropy")]["baseline"] == pytest.approx(math.log(length))
    assert values.loc[(0, "prefix_entropy")]["value"] == 0


def test_two_rules_stand_side_by_side_whatever_the_order(matched_models, parallel_corpus):
    model = matched_models["translation"]
    order = np.random.default_rng(0).permutation(len(parallel_corpus))
    first, second = (
        measure(model, corpus, [SourceContribution(sentences=3)], options)["source_contribution"]
        for corpus, options in (
            (parallel_corpus, None),
            (parallel_corpus.select(order), PassOptions(tokens_per_batch=16)),
        )
    )
    assert set(first["rule"]) == {"voita", "alti"}
    for column in ("value", "baseline", "count"):
        np.testing.assert_allclose(first[column], second[column], rtol=1e-4, atol=1e-7)


def test_a_rule_that_loses_relevance_has_no_rows(matched_models, parallel_corpus, monkeypatch):
    def losing(model, batch, method, **rest):
        frame = token_relevance(model, batch, method=method, **rest)
        return frame.assign(relevance=frame["relevance"] * (0.9 if method == "voita" else 1.0))

    monkeypatch.setattr("infoflow.subjects.over_training.measures._source_contribution.token_relevance", losing)
    corpus = parallel_corpus.select(np.arange(8))
    table = measure(matched_models["translation"], corpus, [SourceContribution(sentences=2)])["source_contribution"]
    assert set(table["rule"]) == {"alti"}


def test_what_cannot_be_measured_is_said(matched_models, parallel_corpus):
    with pytest.raises(UserError, match="no source besides its text"):
        measure(matched_models["causal-lm"], parallel_corpus, [SourceContribution()])
    for wrong in ({"sentences": 0}, {"explained": "best"}, {"rules": ("gradient-x-input",)}, {"rules": ()}):
        with pytest.raises(UserError, match="Got"):
            SourceContribution(**wrong)


def moved(model):
    """Another checkpoint."""
    module = copy.deepcopy(model.module)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return replace(model, module=module)


@pytest.mark.parametrize("objective", ["causal-lm", "masked-lm", "translation"])
def test_divergence_from_the_last_checkpoint(matched_models, parallel_corpus, objective):
    model = matched_models[objective]
    final, corpus = moved(model), parallel_corpus.select(np.arange(10))
    table = prediction_divergence(model, final, corpus, by_position=True).set_index("position")
    reader = Reader(model, corpus, max_length=512, seed=0, decoder=objective == "translation")
    rows = []
    for row in range(len(corpus)):
        padded = reader.padded(np.array([row]))
        if objective == "masked-lm":
            padded = reader.corrupted_batch(padded, "head-loss-noise", 0)
        source, read = padded.streams[reader.source_stack], list(padded.streams.values())[-1]
        inputs = {"input_ids": source.input_ids}
        if objective == "translation":
            inputs["decoder_input_ids"] = read.input_ids
        with torch.no_grad():
            p_t, p_last = (one.module(**inputs).logits[0].double().softmax(-1).numpy() for one in (model, final))
        for step in np.flatnonzero(read.labels[0].numpy() != -100):
            place = step if objective == "masked-lm" else step + 1
            p, q = p_last[step], p_t[step]
            rows.append((place, (p * np.log(p / q)).sum(), (p * np.log(p * len(p))).sum()))
    frame = pd.DataFrame(rows, columns=["position", "value", "baseline"])
    assert table.loc[-1]["value"] == pytest.approx(frame["value"].mean(), rel=1e-4)
    assert table.loc[-1]["baseline"] == pytest.approx(frame["baseline"].mean(), rel=1e-4)
    by_place = frame.groupby("position").mean()
    np.testing.assert_allclose(table.loc[by_place.index]["value"], by_place["value"], rtol=1e-4)
    assert prediction_divergence(final, final, corpus)["value"].tolist() == pytest.approx([0], abs=1e-12)


def test_seeds_are_compared_as_checkpoints_are(matched_models, parallel_corpus):
    model = matched_models["causal-lm"]
    other, corpus = moved(model), parallel_corpus.select(np.arange(10))
    own = measure(model, corpus, [SeedDivergence(lambda: {"seed": other}, ["of another seed"])])["seed_divergence"]
    expected = prediction_divergence(model, other, corpus)
    assert own["value"].item() == expected["value"].item() > 1e-3
    assert list(own["replicates"].item()) == list(expected["replicates"].item())


def test_divergence_is_of_one_training(matched_models, parallel_corpus):
    with pytest.raises(UserError, match="one training"):
        prediction_divergence(matched_models["causal-lm"], matched_models["masked-lm"], parallel_corpus)
