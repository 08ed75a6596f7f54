"""Source shares and AUCs of translations against plain loops, in a model that translates and in one that does not."""

import copy
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from support import tiny_heads as tiny

from infoflow import analyze, load_corpus
from infoflow.detached import DetachedTranslation
from infoflow.findings import FINDINGS, evaluate
from infoflow.flow import PassOptions, Reader, measure
from infoflow.foundation import UserError
from infoflow.heads import token_relevance
from infoflow.subjects.detached.measures import Detection, source_shares

KEYS = ["score", "kind", "layer"]


def table(model, corpus, **how):
    options = PassOptions(**how.pop("options", {}))
    return measure(model, corpus, [DetachedTranslation(**how)], options)["detached_translation"]


@pytest.fixture(scope="module")
def translator(matched_models, parallel_corpus):
    """The tiny model after a short training on word-by-word translations."""
    model = matched_models["translation"]
    model = replace(model, module=copy.deepcopy(model.module))
    reader = Reader(model, parallel_corpus, max_length=64, seed=0, decoder=True)
    optimiser = torch.optim.AdamW(model.module.parameters(), lr=5e-3)
    streams = reader.padded(np.arange(len(parallel_corpus))).streams
    source, target = streams["encoder"], streams["decoder"]
    model.module.train()
    torch.manual_seed(0)
    for _ in range(150):
        loss = model.module(
            input_ids=source.input_ids, attention_mask=source.real.long(), decoder_input_ids=target.input_ids,
            labels=target.labels,
        ).loss  # fmt: skip
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.module.eval()
    return model


@pytest.fixture(scope="module")
def corpus(parallel_corpus):
    return parallel_corpus.select(np.arange(20))


@pytest.fixture(scope="module")
def whole(translator, corpus):
    return table(translator, corpus).set_index(KEYS).sort_index()


def pairs_by_hand(model, corpus):
    reader = Reader(model, corpus, max_length=512, seed=0, decoder=True)
    found = {}
    for row in range(len(corpus)):
        streams = reader.padded(np.array([row])).streams
        found[row] = streams["encoder"].input_ids[0].tolist(), streams["decoder"]
    return found


def scores_by_hand(model, source, target):
    """Share of the source in the relevance of each step, and mean log-probability, one step at a time."""
    batch = {"input_ids": torch.tensor([source]), "decoder_input_ids": target.input_ids}
    steps = target.labels.shape[1]
    shares = []
    for step in range(steps):
        frame = token_relevance(model, batch, method="alti", position=step)
        shares.append(frame.loc[frame["stack"] == "encoder", "relevance"].sum() / frame["relevance"].sum())
    with torch.no_grad():
        logits = model.module(**batch).logits[0]
    chances = [float(torch.log_softmax(logits[step].double(), 0)[target.labels[0, step]]) for step in range(steps)]
    return np.mean(shares), np.mean(chances)


def auc_by_hand(low, high):
    wins = [(a < b) + 0.5 * (a == b) for a in low for b in high]
    return sum(wins) / len(wins)


def test_a_loop_over_steps_and_pairs(translator, parallel_corpus):
    corpus = parallel_corpus.select(np.argsort([len(one.text) for one in parallel_corpus])[:10])  # the least allowed
    found = table(translator, corpus).set_index(KEYS)
    top = max(layer for _, _, layer in found.index)
    pairs = pairs_by_hand(translator, corpus)
    true = [scores_by_hand(translator, *pair) for pair in pairs.values()]
    emptied = [scores_by_hand(translator, [source[0], source[-1]], target) for source, target in pairs.values()]
    for place, (score, layer) in enumerate((("source_share", top), ("log_probability", 0))):
        row = found.loc[(score, "emptied", layer)]
        assert row["mean_faithful"] == pytest.approx(np.mean([one[place] for one in true]), abs=1e-5)
        assert row["mean_detached"] == pytest.approx(np.mean([one[place] for one in emptied]), abs=1e-5)
        expected = auc_by_hand([one[place] for one in emptied], [one[place] for one in true])
        assert row["value"] == pytest.approx(expected, abs=1e-6)
        swapped = found.loc[(score, "swapped", layer)]
        assert swapped["mean_faithful"] == row["mean_faithful"]
    difference = (
        found.loc[("source_share", "emptied", top), "value"] - found.loc[("log_probability", "emptied", 0), "value"]
    )
    assert found.loc[("source_share", "emptied", top), "beyond"] == pytest.approx(difference)


def test_swapped_sources_are_those_of_sentences_as_long(whole, translator, corpus):
    """Every source is swapped exactly once, with a neighbour in the order of lengths."""
    pairs = pairs_by_hand(translator, corpus)
    rows = sorted(pairs, key=lambda row: len(pairs[row][0]))
    differences = [abs(len(pairs[a][0]) - len(pairs[b][0])) for a, b in pairwise(rows)]
    assert max(differences) <= 5
    assert whole.loc[("log_probability", "swapped", 0), "count"] == 2 * len(corpus)


def test_a_model_that_translates_is_found_out_and_a_random_one_is_not(whole, matched_models, corpus):
    random = table(matched_models["translation"], corpus).set_index(KEYS).sort_index()
    assert whole.loc[("log_probability", "swapped", 0), "low"] > 0.7
    assert random.loc[("log_probability", "swapped", 0), "value"] < 0.65
    assert random.loc[("random", "worst", 0), "count"] == len(corpus)
    for frame in (whole, random):
        assert frame.xs("random")["value"].between(0.2, 0.8).all()


def test_shares_grow_with_cross_attention_alone():
    """Without cross-attention the share is 0; with all of it, 1; self-attention mixes positions."""
    eye = torch.eye(3)
    for across, expected in ((0.0, 0.0), (1.0, 1.0)):
        mixing = {("decoder", "self", 0): eye, ("decoder", "cross", 0): torch.full((3, 2), across / 2)}
        assert source_shares(mixing).tolist() == [[expected] * 3]
    half = {("decoder", "self", layer): torch.full((2, 2), 0.5) for layer in (0, 1)}
    half |= {("decoder", "cross", 0): torch.tensor([[0.4], [0.0]]), ("decoder", "cross", 1): torch.tensor([[0.5], [0]])}
    np.testing.assert_allclose(source_shares(half), [[0.4, 0.0], [0.5 * 0.2 + 0.5, 0.2]], atol=1e-7)


def test_auc_and_its_values_without_a_block():
    random = np.random.default_rng(0)
    low, high = random.integers(0, 6, 40).astype(float), random.integers(1, 7, 30).astype(float)
    blocks = random.integers(0, 9, 40), random.integers(0, 9, 30)
    found = Detection.of(low, high, *blocks)
    assert found.value == pytest.approx(auc_by_hand(low, high))
    for block in range(9):
        assert found.without_block[block] == pytest.approx(
            auc_by_hand(low[blocks[0] != block], high[blocks[1] != block])
        )
    same = Detection.of(low, low, blocks[0], blocks[0])
    assert same.value == pytest.approx(0.5)


def test_the_order_of_the_corpus_and_batches_change_nothing(whole, translator, corpus):
    other = corpus.select(np.random.default_rng(0).permutation(len(corpus)))
    second = table(translator, other, options={"tokens_per_batch": 16}).set_index(KEYS).sort_index()
    np.testing.assert_allclose(second["value"], whole["value"], atol=1e-6)
    np.testing.assert_allclose(second["mean_detached"], whole["mean_detached"], atol=1e-5)


def test_models_and_corpora_without_translations(translator, parallel_corpus, tmp_path):
    corpus = tiny.trees(20)
    with pytest.raises(UserError, match="it does not translate: it is a masked-lm model"):
        table(tiny.bert(corpus), corpus)
    with pytest.raises(UserError, match="fewer than 10"):
        table(translator, parallel_corpus.select(np.arange(4)))
    (tmp_path / "one.txt").write_text("the cat sees a dog\n" * 3)
    with pytest.raises(UserError, match="its decoder needs translations to read"):
        table(translator, load_corpus(str(tmp_path / "one.txt")))


def test_analyze_by_name_and_its_report(translator, parallel_corpus, tmp_path):
    translator.module.save_pretrained(tmp_path / "model")
    translator.require_tokenizer().save_pretrained(tmp_path / "model" / "source_tokenizer")
    translator.target_tokenizer.save_pretrained(tmp_path / "model" / "target_tokenizer")
    lines = [f"{one.text}\t{one.translation}\n" for one in parallel_corpus.select(np.arange(16))]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    run = analyze(
        [tmp_path / "model"],
        corpus=str(tmp_path / "pairs.tsv"),
        only=("detached_translation",),
        out=tmp_path / "run",
        control=False,
    )
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Does the share of the source show which translations ignore it?" in page
    assert {"swapped", "emptied", "replaced"} <= set(run.tables["detached_translation"]["kind"])


# Claims on invented tables.


def invented(share, likely, untrained=0.5):
    random, rows = np.random.default_rng(0), []
    about = {"model": "translation", "objective": "translation", "variant": "", "architecture": "bert", "start": ""}
    for seed in (1, 2, 3):
        for trained in (True, False):
            of_share, of_likely = (share, likely) if trained else (untrained, untrained)
            for score, layer, value in (
                ("source_share", 1, 0.5), ("source_share", 2, of_share), ("log_probability", 0, of_likely),
                ("random", 0, 0.5),
            ):  # fmt: skip
                value += 0.002 * random.standard_normal()
                keys = about | {"seed": seed, "update": -1 if trained else 0, "trained": trained, "kind": "swapped"}
                draws = (value + 0.003 * random.standard_normal(40)).tolist()
                numbers = {"value": value, "low": value - 0.01, "high": value + 0.01, "baseline": 0.5, "count": 99}
                blank = dict.fromkeys(
                    ("beyond", "beyond_low", "beyond_high", "mean_detached", "mean_faithful"), math.nan
                )
                rows.append({**keys, **numbers, **blank, "score": score, "layer": layer, "replicates": draws})
    return pd.DataFrame(rows)


def verdict(frame):
    about = {"model": "translation", "objective": "translation", "variant": "", "architecture": "bert", "start": ""}
    scores = [
        about | {"seed": seed, "update": update, "trained": update == -1, "split": split, "metric": metric,
                 "signature": "", "value": value, "low": value, "high": value, "baseline": 6.0, "count": 9,
                 "replicates": [value] * 40}
        for seed in (1, 2, 3) for split in ("validation", "test")
        for metric, update, value in (("loss", -1, 2.0), ("loss", 0, 6.0), ("bleu", -1, 30.0), ("bleu", 0, 0.1))
    ]  # fmt: skip
    tables = {"detached_translation": frame, "task_scores": pd.DataFrame(scores)}
    return evaluate(tables, [FINDINGS["heads:D1"]]).iloc[0]["verdict"]


def test_the_claim_holds_fails_and_stays_open():
    assert verdict(invented(0.95, 0.85)) == "holds"
    assert verdict(invented(0.80, 0.95)) == "fails"
    assert verdict(invented(0.9, 0.9)) == "undetermined"
