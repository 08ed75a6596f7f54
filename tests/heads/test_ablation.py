"""Ablation sweeps and curves against one variant and one sentence at a time."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from infoflow.corpus import Corpus
from infoflow.flow import NO_LABEL, PassOptions, Reader, measure
from infoflow.foundation import NUM_BLOCKS, UserError, hash64_array
from infoflow.heads import (
    Ablation,
    Confidence,
    PruningCurve,
    SentenceScorer,
    ablate,
    ablation,
    all_heads,
    importance,
    loss_scores,
    prune,
)
from infoflow.models import bleu_statistics, load_model, model_inputs, tap, translate

pytestmark = pytest.mark.slow

TASKS = ("causal-lm", "masked-lm", "translation")
KEYS = ["stack", "kind", "layer", "head"]
SMALL = PassOptions(tokens_per_batch=400)


@pytest.fixture(scope="module", params=TASKS)
def model(request, matched_models):
    model = matched_models[request.param]
    double = load_model(model.module.double(), tokenizer=model.tokenizer)
    yield replace(double, target_tokenizer=model.target_tokenizer)
    model.module.float()


@pytest.fixture(scope="module")
def corpus(parallel_corpus):
    return parallel_corpus.select(range(12))


@pytest.fixture
def scorer(model, corpus):
    return SentenceScorer(Reader(model, corpus, max_length=512, seed=0, decoder=model.task == "seq2seq"))


def keywords(scorer, row):
    """One sentence as keywords of the model, and its labels."""
    batch = scorer.batch(np.array([row]))
    streams, model = batch.padded.streams, scorer.model
    decoder = streams["decoder"].input_ids if model.task == "seq2seq" else None
    return model_inputs(model, streams[scorer.reader.source_stack].input_ids, decoder_input_ids=decoder), batch.labels


def slow_loss(scorer, row, heads, mode, reference):
    """Summed loss of one sentence, run whole and alone."""
    inputs, labels = keywords(scorer, row)
    with torch.no_grad(), ablate(scorer.model, heads, mode, reference=reference):
        logits = scorer.model.module(**inputs).logits
    return torch.nn.functional.cross_entropy(
        logits[0], labels[0], ignore_index=NO_LABEL, reduction="sum"
    ).item()  # fmt: skip


def scorer_count(model, corpus):
    """Sentences that have a token to predict."""
    scorer = SentenceScorer(Reader(model, corpus, max_length=512, seed=0, decoder=model.task == "seq2seq"))
    return sum(bool((keywords(scorer, row)[1] != NO_LABEL).any()) for row in range(len(corpus)))


def some_sets(model):
    heads = all_heads(model.anatomy)
    return [frozenset([heads[1]]), frozenset([heads[-1]]), frozenset(heads[::3]), frozenset(), frozenset(heads)]


def donor_of(scorer, row, rows):
    """The other sentence with the lowest hash, among those that are at least as long in each stack if there are any."""
    ids = scorer.reader.corpus.content_ids
    lengths = {
        one: [len(part.tokens) for part in scorer.reader.sentence_rows(one, "clean", 0).values()] for one in rows
    }
    others = [one for one in rows if ids[one] != ids[row]]
    longer = [one for one in others if all(np.greater_equal(lengths[one], lengths[row]))]
    key = ("ablation-donor", scorer.reader.seed, int(ids[row]))
    return min(longer or others, key=lambda one: int(hash64_array(key, ids[[one]])[0]))


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_fast_losses_agree_with_one_sentence_and_one_variant_at_a_time(scorer, mode):
    predicting = np.concatenate([batch.padded.rows for batch in scorer.batches(np.arange(12), 10_000)])
    rows, variants = np.sort(predicting)[:5], some_sets(scorer.model)
    scores = loss_scores(scorer, rows, variants, mode, SMALL)
    everything = {int(row): keywords(scorer, int(row))[0] for row in rows}
    if mode == "mean":
        references = {row: list(everything.values()) for row in everything}
    else:
        references = {row: [everything[donor_of(scorer, row, rows.tolist())]] for row in everything}
    for index, heads in enumerate([frozenset(), *variants]):
        expected = sum(
            slow_loss(scorer, int(row), heads, mode, None if mode == "zero" else references[int(row)]) for row in rows
        )
        assert scores.sums_VKS[index, :, 0].sum() == pytest.approx(expected, rel=1e-8), (index, mode)
    assert scores.sums_VKS.shape == (len(variants) + 1, NUM_BLOCKS, 2)


def test_batch_size_does_not_matter(model, corpus):
    for mode in ("zero", "resample"):
        small, large = (
            ablation(model, corpus, mode=mode, options=PassOptions(tokens_per_batch=budget)) for budget in (40, 9000)
        )
        np.testing.assert_allclose(small["value"], large["value"], rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(small["p"], large["p"])


def test_table_has_every_head_alone_and_alone_left(model, corpus):
    table = measure(model, corpus, [Ablation(sentences=None)], SMALL)["head_ablation"]
    heads = all_heads(model.anatomy)
    for removed in ("head", "others"):
        part = table[table["removed"] == removed]
        assert (part["count"] == (scorer_count(model, corpus))).all()
        assert [tuple(row) for row in part[KEYS].to_numpy()] == heads
        assert (part["p_corrected"] >= part["p"]).all()
        assert (part["low"] <= part["high"]).all()
    scorer = SentenceScorer(Reader(model, corpus, max_length=512, seed=0, decoder=model.task == "seq2seq"))
    kept = heads[2]
    gone = frozenset(head for head in heads if head[:3] == kept[:3] and head != kept)
    expected = loss_scores(scorer, np.arange(12), [gone], "zero", SMALL).changes()[0]
    row = table[(table["removed"] == "others") & (table[KEYS].apply(tuple, axis=1) == kept)].iloc[0]
    assert row["value"] == pytest.approx(expected[0])
    np.testing.assert_allclose(row["replicates"], expected[1:])


def test_a_dead_head_changes_nothing_and_is_not_significant(matched_models, corpus):
    model = load_model(matched_models["masked-lm"].module, tokenizer=matched_models["masked-lm"].tokenizer)
    weight = model.module.bert.encoder.layer[1].attention.output.dense.weight
    saved = weight.detach().clone()
    with torch.no_grad():
        weight[:, 8:16] = 0
    table = ablation(model, corpus, options=SMALL)
    with torch.no_grad():
        weight.copy_(saved)
    dead = table[(table["layer"] == 1) & (table["head"] == 1)].iloc[0]
    assert dead["value"] == pytest.approx(0, abs=1e-6)
    assert table["value"].abs().max() > 1e-4
    assert dead["p_corrected"] > 0.05


def test_bleu_and_a_users_function(matched_models, corpus):
    model, few = matched_models["translation"], corpus.select(range(2))
    heads = all_heads(model.anatomy)
    table = ablation(model, few, metric="bleu", beams=1)
    sources, references = zip(*((s.text, s.translation) for s in few), strict=True)
    base = bleu_statistics(translate(model, list(sources), beams=1), [[one] for one in references]).score
    with ablate(model, [heads[3]]):
        without = bleu_statistics(translate(model, list(sources), beams=1), [[one] for one in references]).score
    assert table["value"].iloc[3] == pytest.approx(without - base)
    assert set(table["metric"]) == {"bleu"}

    def length(model, corpus):
        ids = torch.tensor([[5, 6, 7]])
        with torch.no_grad():
            return np.full(len(corpus), model.module(ids, decoder_input_ids=ids).logits.std().item())

    table = ablation(model, few, metric=length)
    with ablate(model, [heads[3]]):
        shorter = length(model, few).mean()
    assert table["value"].iloc[3] == pytest.approx(shorter - length(model, few).mean())
    assert set(table["metric"]) == {"length"}
    with pytest.raises(UserError, match="one number for each of the 2"):
        ablation(model, few, metric=lambda model, corpus: np.zeros(3))
    with pytest.raises(UserError, match="loss, bleu or a function"):
        ablation(model, few, metric="accuracy")


def test_curves_remove_what_their_order_says(model, corpus):
    curve = PruningCurve(
        orders=("importance", "iterative", "oracle", "random"),
        shares=(0, 0.25, 0.5, 1.0),
        random_orders=2,
        sentences=6,
        ranked_on=None,
    )
    table = measure(model, corpus, [Ablation(sentences=6), curve], SMALL)["head_pruning_curve"]
    kinds = {"all"} if model.task != "seq2seq" else {"all", "encoder-self", "decoder-self", "decoder-cross"}
    assert set(table["kind"]) == kinds
    whole = table[table["kind"] == "all"]
    total = len(all_heads(model.anatomy))
    assert sorted(set(whole["heads"])) == [0, total // 4, total // 2, total]
    for removed in (0.0, 1.0):  # no order matters there
        assert np.ptp(whole.loc[whole["removed"] == removed, "value"]) < 1e-9
    assert whole[whole["order"] == "random"].groupby("removed").size().eq(2).all()
    random = whole[whole["order"] == "random"].groupby("removed")["value"].mean()
    np.testing.assert_allclose(whole["baseline"], random[whole["removed"]])


def test_iterative_order_ranks_again_and_protected_heads_stay(model, corpus):
    pool = all_heads(model.anatomy)

    def ranked(gone):
        """What is left in the model without these heads, but the best of each attention: least important first."""
        with ablate(model, gone):
            table = importance(model, corpus, normalise="layer")
        worth = dict(zip(map(tuple, table[KEYS].to_numpy().tolist()), table["value"], strict=True))
        left = [head for head in pool if head not in gone]
        best = {max((h for h in left if h[:3] == site), key=worth.get) for site in {h[:3] for h in left}}
        return [head for head in sorted(left, key=worth.get) if head not in best]

    once = ranked([])
    half = once[: len(pool) // 2]
    again = half + ranked(half)[: len(once) - len(half)]
    curve = PruningCurve(
        ("importance", "iterative"), shares=(0.5, 1.0), by_kind=False, keep=1, sentences=None, ranked_on=None
    )
    table = measure(model, corpus, [curve], SMALL)["head_pruning_curve"].set_index(["order", "removed"])
    scorer = SentenceScorer(Reader(model, corpus, max_length=512, seed=0, decoder=model.task == "seq2seq"))
    sets = [frozenset(half), frozenset(once), frozenset(half), frozenset(again)]
    steps = [(order, share) for order in ("importance", "iterative") for share in (0.5, 1.0)]
    assert table.loc[steps, "heads"].tolist() == [len(half), len(once), len(half), len(once)]
    expected = loss_scores(scorer, np.arange(12), sets, "zero", SMALL).scores()[1:, 0]
    np.testing.assert_allclose(table.loc[steps, "value"], expected, rtol=1e-7)


def test_settings_are_checked():
    for settings, message in (
        ({"orders": ("size",)}, "orders must be among"),
        ({"shares": (0.5, 1.5)}, "between 0 and 1"),
        ({"random_orders": 0}, "at least 1"),
        ({"mode": "noise"}, "mode must be"),
    ):
        with pytest.raises(UserError, match=message):
            PruningCurve(**settings)
    with pytest.raises(UserError, match="holm"):
        Ablation(correction="sidak")


def test_a_translation_model_needs_translations(matched_models, tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("the cat sees\na dog\n")
    with pytest.raises(UserError, match="Give a parallel"):
        ablation(matched_models["translation"], Corpus.from_text(path))


def test_translations_are_read_also_where_only_the_encoder_is_sampled(matched_models, corpus):
    """As in a study that was given a table more: nothing but interventions is left to measure."""
    model, both = matched_models["translation"], [Ablation(sentences=4, others=False), PruningCurve(sentences=2)]
    encoder_only = measure(model, corpus, both, replace(SMALL, decoder_states=False))
    for name, whole in measure(model, corpus, both, SMALL).items():
        assert len(encoder_only[name]) > 0
        pd.testing.assert_frame_equal(encoder_only[name], whole)


def test_gates_of_one_change_nothing(model, scorer):
    batch = scorer.batch(np.arange(6))
    with torch.no_grad():
        before = scorer.losses(batch)
        gates = {}
        for one in model.anatomy.attentions():
            gates.setdefault((one.stack, one.kind), []).append(torch.ones(one.num_heads))
        with tap(model, gates=gates):
            assert torch.equal(scorer.losses(batch), before)


def test_pruned_models_are_measured_head_by_head(matched_models, parallel_corpus):
    """Layers with unequal numbers of heads: streams skip what is not there."""
    model = matched_models["masked-lm"]
    pruned = prune(model, [("encoder", "self", 0, 1), ("encoder", "self", 0, 2)])
    corpus = parallel_corpus.select(range(12))
    whole, part = (measure(one, corpus, [Confidence()])["head_confidence"] for one in (model, pruned))
    assert len(part) == 6
    first = whole[(whole["layer"] == 0) & whole["head"].isin([0, 3])]["value"]
    np.testing.assert_allclose(part[part["layer"] == 0]["value"], first, rtol=1e-5)
    assert len(importance(pruned, corpus)) == 6
    assert len(ablation(pruned, corpus)) == 6
