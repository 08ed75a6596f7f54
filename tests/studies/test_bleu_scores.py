"""BLEU of a study's models: whatever the script of the target, the same models have learned their task."""

import numpy as np
import pytest
import transformers
from sacrebleu.metrics.bleu import BLEU

from infoflow.corpus import Corpus, generate_grammar, train_tokenizer
from infoflow.foundation import stream
from infoflow.models import load_model
from infoflow.objectives import OBJECTIVES
from infoflow.studies import bleu_scores

LEARNED = next(metric for metric in OBJECTIVES["translation"].metrics if metric.name == "bleu").learned


@pytest.fixture(scope="module")
def model():
    """What it writes is said beside it; its tokenizer normalises."""
    tokenizer = train_tokenizer(["a b c"], 20)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "d_model": 8}
    sizes |= {"encoder_attention_heads": 1, "decoder_attention_heads": 1, "max_position_embeddings": 64}
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    ids |= {"forced_eos_token_id": None}
    return load_model(
        transformers.BartForConditionalGeneration(transformers.BartConfig(vocab_size=20, **sizes, **ids)), tokenizer
    )


@pytest.fixture(scope="module")
def grammar():
    return [(one.text, one.translation.lower()) for one in generate_grammar(24)]


def scores(monkeypatch, model, pairs, write, spell):
    """The row of a model that writes `write(source, target)`, all targets spelled otherwise."""
    corpus = Corpus.from_sentences([source for source, _ in pairs])
    table = corpus.dataset.add_column("translation", [spell(target) for _, target in pairs])
    corpus = Corpus.from_dataset(table, text="text", translation="translation", name="grammar")
    said = {source: spell(write(source, target)) for source, target in pairs}
    monkeypatch.setattr("infoflow.models.translate", lambda _, texts, beams: [said[text] for text in texts])
    return bleu_scores(model, corpus, 10**6, 1, "test").iloc[0]


@pytest.mark.parametrize("spelling", ["joined", "Chinese characters"])
def test_targets_without_spaces_reach_the_verdicts_of_those_with(monkeypatch, model, grammar, spelling):
    known: dict[str, str] = {}
    vocabulary = [word for _, target in grammar for word in target.split()]

    def spell(text):
        if spelling == "joined":
            return text.replace(" ", "")
        return "".join(known.setdefault(word, chr(0x4E00 + len(known))) for word in text.split())

    def damaged(share):
        drawn = stream("damaged", str(share))
        return lambda _, target: " ".join(
            str(drawn.choice(vocabulary)) if drawn.random() < share else word for word in target.split()
        )

    writers = {
        "perfect": lambda source, target: target,
        "good": damaged(0.3),
        "bad": damaged(0.9),
        "copy": lambda source, target: source.lower(),
        "one for all": lambda source, target: grammar[3][1],
    }
    verdicts = {}
    for name, write in writers.items():
        rows = [scores(monkeypatch, model, grammar, write, way) for way in (str, spell)]
        verdicts[name] = [LEARNED(*(float(row[name]) for name in ("low", "high", "baseline"))) for row in rows]
        assert "tok:13a" in rows[0]["signature"]
        assert ("tok:char" if spelling == "joined" else "tok:zh") in rows[1]["signature"]
    assert {name: first for name, (first, _) in verdicts.items()} == {
        "perfect": True,
        "good": True,
        "bad": False,
        "copy": False,
        "one for all": False,
    }
    assert all(first == second for first, second in verdicts.values())


def test_a_perfect_model_reaches_100_although_its_tokenizer_normalises(monkeypatch, model):
    targets = [f"Le {n}ᵉʳ mai il fait {n} ℃ à Ｐａｒｉｓ, ½ ﬁn" for n in range(8)]
    pairs = [(f"may {n} in paris", target) for n, target in enumerate(targets)]
    tokenizer = train_tokenizer([text for pair in pairs for text in pair], 200)

    def write(_, target):
        return tokenizer.decode(tokenizer(target)["input_ids"], skip_special_tokens=True)

    row = scores(monkeypatch, model, pairs, write, str)
    assert row["value"] == pytest.approx(100)
    plain = BLEU(lowercase=True, force=True).corpus_score([write("", text) for text in targets], [targets]).score
    assert plain < 60


def test_blocks_are_scored_by_the_tokenizer_of_all_references(monkeypatch, model):
    pairs = [(f"s {n}", "我 今 天 去 北 京 看 朋 友".replace(" ", "") + chr(0x4E00 + n)) for n in range(8)]
    drawn = np.random.default_rng(0)

    def write(_, target):
        return "".join(char for char in target if drawn.random() < 0.8)

    said = {source: write(source, target) for source, target in pairs}
    row = scores(monkeypatch, model, pairs, lambda source, _: said[source], str)
    whole = BLEU(lowercase=True, force=True, tokenize="zh").corpus_score(list(said.values()), [[t for _, t in pairs]])
    assert row["value"] == pytest.approx(whole.score)
