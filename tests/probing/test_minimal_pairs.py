"""Preferences of each layer against a sentence-by-sentence computation with the model's own code."""

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from infoflow import measure
from infoflow.corpus import Corpus, train_tokenizer
from infoflow.flow import PassOptions
from infoflow.foundation import SilentDisplay, UserError, use_display
from infoflow.models import load_model, readout, tap
from infoflow.probing import MinimalPairs

PAIRS = [(f"the dog{n} sees a cat .", f"the dog{n} see a cat {'now ' * (n % 3)}.") for n in range(24)]


@pytest.fixture
def notes():
    """What a run has to say, while the test lasts."""

    class Kept(SilentDisplay):
        def note(self, text):
            found.append(text)

    found = []
    with use_display(Kept()):
        yield found


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "a.tsv"
    path.write_text(
        "".join(f"{'agreement' if n % 2 else 'other'}\t{good}\t{bad}\n" for n, (good, bad) in enumerate(PAIRS))
    )
    return Corpus.from_minimal_pairs(path)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([sentence for pair in PAIRS for sentence in pair], vocab_size=120)


def causal(tokenizer):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, initializer_range=0.5)
    return load_model(GPT2LMHeadModel(config), tokenizer=tokenizer)


def masked(tokenizer):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(tokenizer), initializer_range=0.5, pad_token_id=tokenizer.pad_token_id, **sizes)
    return load_model(BertForMaskedLM(config), tokenizer=tokenizer)


def slow_scores(model, sentence):
    """Log-probability of the words at each layer, one sentence and, of a masked LM, one token at a time."""
    tokenizer = model.tokenizer
    ids = torch.tensor([tokenizer(sentence)["input_ids"]])
    special = set(tokenizer.all_special_ids)
    total = np.zeros(len(model.anatomy.predicts.layers) + 1)
    for place in range(ids.shape[1]):
        if int(ids[0, place]) in special:
            continue
        read, at = ids, place - 1
        if model.task == "masked-lm":
            read, at = ids.clone(), place
            read[0, place] = tokenizer.mask_token_id
        if at < 0:
            continue
        with torch.no_grad(), tap(model, hidden=True) as seen:
            model.module(input_ids=read)
        head = readout(model)
        for layer, states in enumerate(list(seen.hidden[model.anatomy.predicts.name])):
            with torch.no_grad():
                total[layer] += torch.log_softmax(head(states[0, at]), -1)[ids[0, place]].item()
    return total


@pytest.mark.parametrize("make", [causal, masked])
def test_preferences_are_those_of_single_sentences(make, tokenizer, pairs):
    model = make(tokenizer)
    table = measure(model, pairs, [MinimalPairs()])["minimal_pairs"]
    margins = np.array([slow_scores(model, good) - slow_scores(model, bad) for good, bad in PAIRS])
    for phenomenon, chosen in (
        ("all", np.arange(24)),
        ("agreement", np.arange(1, 24, 2)),
        ("other", np.arange(0, 24, 2)),
    ):
        own = table[table["phenomenon"] == phenomenon]
        for metric, expected in (("margin", margins[chosen].mean(0)), ("preferred", (margins[chosen] > 0).mean(0))):
            found = own[own["metric"] == metric].sort_values("layer")
            assert found["layer"].tolist() == [0, 1, 2]
            np.testing.assert_allclose(found["value"], expected, atol=1e-4)
            assert (found["count"] == len(chosen)).all()
    preferred = table[table["metric"] == "preferred"]
    assert (preferred["baseline"] == 0.5).all()
    assert ((preferred["low"] <= preferred["value"]) & (preferred["value"] <= preferred["high"])).all()


def without_leading(special):
    """A causal LM whose tokenizer puts nothing before a text, and has these special tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<end>", "Who", "What", "saw", "cats", "dogs"]
    own = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<end>"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    return causal(PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<end>", **special))


def margin(model, pairs):
    table = measure(model, Corpus.from_frame(_frame(pairs), "good", bad="bad"), [MinimalPairs()])["minimal_pairs"]
    top = table[(table["layer"] == 2) & (table["metric"] == "margin")]
    return [(row["value"], row["count"]) for _, row in top.iterrows()]


@pytest.mark.parametrize("special", [{"eos_token": "<end>"}, {"bos_token": "<end>"}])
def test_the_end_of_text_stands_before_a_sentence_where_nothing_else_does(special):
    model = without_leading(special)

    def score(text):
        ids = torch.tensor([[0, *model.tokenizer(text)["input_ids"]]])
        with torch.no_grad():
            logs = model.module(ids).logits[0].log_softmax(-1)
        return float(logs[:-1].gather(1, ids[0, 1:, None]).sum())

    expected = score("Who saw cats") - score("What saw cats")
    assert margin(model, [("Who saw cats", "What saw cats")]) == [(pytest.approx(expected, abs=1e-4), 1)]


def test_pairs_with_other_first_tokens_are_left_out_where_nothing_can_stand_before_them(notes):
    pairs = [("Who saw cats", "What saw cats"), ("Who saw cats", "Who saw dogs")]
    assert [count for _, count in margin(without_leading({}), pairs)] == [1]
    assert "1 of 2 minimal pairs are left out" in " ".join(notes)
    assert margin(without_leading({}), pairs[:1]) == []


def test_equal_sentences_are_ties_and_count_half(tokenizer):
    corpus = Corpus.from_frame(_frame([("a dog sees", "a dog sees")] * 3), "good", bad="bad")
    table = measure(causal(tokenizer), corpus, [MinimalPairs()])["minimal_pairs"]
    assert (table["ties"] == 3).all()
    assert set(table.loc[table["metric"] == "preferred", "value"]) == {0.5}
    assert set(table["phenomenon"]) == {"all"}


def test_exchanged_sides_mirror_the_preference(tokenizer, pairs):
    model = masked(tokenizer)
    turned = Corpus.from_frame(_frame([(bad, good) for good, bad in PAIRS]), "good", bad="bad")
    one, other = (
        measure(model, corpus, [MinimalPairs(phenomena=False)])["minimal_pairs"] for corpus in (pairs, turned)
    )
    share = one["metric"] == "preferred"
    np.testing.assert_allclose(one[share]["value"], 1 - other[share]["value"])
    np.testing.assert_allclose(one[~share]["value"], -other[~share]["value"], atol=1e-5)


def test_fewer_pairs_are_a_choice_by_hash(tokenizer, pairs):
    model = causal(tokenizer)
    first, turned = (
        measure(model, corpus, [MinimalPairs(pairs=7)])["minimal_pairs"].sort_values(["phenomenon", "metric", "layer"])
        for corpus in (pairs, pairs.select(np.arange(23, -1, -1)))
    )
    assert first.loc[first["phenomenon"] == "all", "count"].unique().tolist() == [7]
    np.testing.assert_allclose(first["value"], turned["value"], atol=1e-5)


def test_what_is_longer_than_the_model_reads_is_left_out(tokenizer):
    long = " ".join(["dog"] * 40)
    corpus = Corpus.from_frame(_frame([("a dog sees", "a dog see"), (long, f"{long} cat")] * 2), "good", bad="bad")
    table = measure(causal(tokenizer), corpus, [MinimalPairs()], options=PassOptions(max_length=30))["minimal_pairs"]
    assert (table["count"] == 2).all()


def test_a_corpus_without_pairs_and_models_without_probabilities(tokenizer):
    plain = Corpus.from_sentences(["the dog sees a cat ."] * 3)
    assert len(measure(causal(tokenizer), plain, [MinimalPairs()])["minimal_pairs"]) == 0
    encoder = load_model(masked(tokenizer).module.bert, tokenizer=tokenizer)
    assert "gives sentences no probability" in str(MinimalPairs().refusal(encoder))
    with pytest.raises(UserError, match=r"pairs must be at least 1, or None for all\. Got 0"):
        MinimalPairs(pairs=0)


def _frame(rows):
    return pd.DataFrame(rows, columns=["good", "bad"])
