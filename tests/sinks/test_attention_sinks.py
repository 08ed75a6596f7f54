"""Attention sinks against a plain loop over sentences with the models' own attention, and in known heads."""

import numpy as np
import pandas as pd
import pytest
import torch
import transformers as t
from support import tiny_heads as tiny
from support.compiled import HeadProgram, Program, compiled, sampled

import infoflow
from infoflow.flow import PassOptions, measure
from infoflow.foundation import is_punctuation
from infoflow.models import load_model
from infoflow.sinks import AttentionSinks

CLASSES = ("first", "special", "punctuation", "other")


@pytest.fixture(scope="module")
def corpus():
    return infoflow.load_corpus(
        [s.text + mark for s, mark in zip(tiny.trees(24), [".", " !", ", no"] * 8, strict=True)]
    )


def gpt_oss(corpus):
    tokenizer = tiny.tokenizer_of(corpus)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = t.GptOssConfig(
        vocab_size=len(tokenizer), num_local_experts=2, num_experts_per_tok=1, num_key_value_heads=2, head_dim=8, **size
    )
    torch.manual_seed(3)
    return load_model(t.GptOssForCausalLM(config), tokenizer=tokenizer)


def read(module, ids, values_of):
    values = []
    handles = [one.register_forward_hook(lambda _, __, out: values.append(out[0])) for one in values_of(module)]
    with torch.no_grad():
        attentions = module(torch.tensor([ids]), output_attentions=True).attentions
    for handle in handles:
        handle.remove()
    return attentions, values


def plain(model, corpus, values_of, group, threshold=0.3):
    """Share, rate and length of values by (layer, head, class), one sentence at a time, as lists over sentences."""
    tokenizer, module = model.tokenizer, model.module
    module.set_attn_implementation("eager")
    found = {}
    for sentence in corpus:
        ids = tokenizer(sentence.text)["input_ids"]
        special = tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True)
        kinds = []
        for at, (token, odd) in enumerate(zip(ids, special, strict=True)):
            marked = is_punctuation(tokenizer.decode([token]).strip())
            kinds.append("first" if at == 0 else "special" if odd else "punctuation" if marked else "other")
        attentions, values = read(module, ids, values_of)
        for layer, maps in enumerate(attentions):
            heads = maps.shape[1]
            rows = values[layer].unflatten(-1, (-1, values[layer].shape[-1] // (heads // group)))
            for head in range(heads):
                lengths = rows[:, head // group].norm(dim=-1)
                for name in CLASSES:
                    at = [i for i, kind in enumerate(kinds) if kind == name]
                    mass = maps[0, head, 1:, at].sum(-1).tolist()
                    others = [i for i, kind in enumerate(kinds) if kind == "other"]
                    ratio = float(lengths[at].mean() / lengths[others].mean()) if at and others else np.nan
                    found.setdefault((layer, head, name), []).append((mass, ratio))
    return {
        key: (
            np.mean([one for mass, _ in parts for one in mass]),
            np.mean([np.mean(mass) > threshold for mass, _ in parts]),
            np.nanmean([ratio for _, ratio in parts]) if any(np.isfinite(r) for _, r in parts) else np.nan,
        )
        for key, parts in found.items()
    }


def compared(table, expected):
    wide = table.set_index(["layer", "head", "token", "statistic"])["value"]
    worst = 0.0
    for (layer, head, token), (share, rate, ratio) in expected.items():
        for statistic, number in (("share", share), ("rate", rate), ("value_norm", ratio)):
            if (layer, head, token, statistic) in wide.index:
                worst = max(worst, abs(wide[layer, head, token, statistic] - number))
            else:
                assert share == 0 or (statistic == "value_norm" and token == "other"), (token, statistic)
    return worst


def llama_values(module):
    return [layer.self_attn.v_proj for layer in module.model.layers]


def bert_values(module):
    return [layer.attention.self.value for layer in module.bert.encoder.layer]


@pytest.mark.parametrize(
    ("build", "values_of", "group"),
    [(tiny.llama, llama_values, 2), (tiny.bert, bert_values, 1), (gpt_oss, llama_values, 2)],
)
def test_it_agrees_with_a_loop_over_sentences(build, values_of, group, corpus):
    model = build(corpus)
    table = measure(model, corpus, [AttentionSinks()])["attention_sink"]
    assert compared(table, plain(model, corpus, values_of, group)) < 1e-5
    shares = table[table["statistic"] == "share"].groupby(["layer", "head"])[["value", "baseline"]].sum()
    assert shares.to_numpy() == pytest.approx(1, abs=1e-5)


def test_a_learned_sink_takes_what_tokens_lack(corpus):
    table = measure(gpt_oss(corpus), corpus, [AttentionSinks()])["attention_sink"]
    learned = table[(table["token"] == "learned") & (table["statistic"] == "share")]
    assert len(learned) == 8
    assert learned["value"].between(0.01, 0.9).all()
    assert set(table.loc[table["token"] == "learned", "statistic"]) == {"share", "rate"}
    assert "learned" not in set(measure(tiny.llama(corpus), corpus, [AttentionSinks()])["attention_sink"]["token"])


def test_batches_and_blocks_of_queries_change_nothing(corpus):
    model = tiny.llama(corpus)
    whole = measure(model, corpus, [AttentionSinks()])["attention_sink"]
    for options in (PassOptions(tokens_per_batch=40), PassOptions(tokens_per_batch=10_000)):
        again = measure(model, corpus, [AttentionSinks()], options=options)["attention_sink"]
        pd.testing.assert_frame_equal(whole, again, atol=1e-5)


def test_long_texts_are_read_by_blocks_of_queries():
    corpus = infoflow.load_corpus([" ".join(s.text for s in tiny.trees(100, seed)) for seed in range(2)])
    model = tiny.llama(corpus)
    model.module.config.max_position_embeddings = 4096
    few = PassOptions(max_length=700, attention_bytes=1 << 18)
    whole = measure(model, corpus, [AttentionSinks()], options=PassOptions(max_length=700))["attention_sink"]
    blocks = measure(model, corpus, [AttentionSinks()], options=few)["attention_sink"]
    pd.testing.assert_frame_equal(whole, blocks, atol=1e-5)


def test_heads_that_are_sinks_and_heads_that_attend_evenly_are_found():
    heads = [
        HeadProgram(attends="offset", offset=-20, evidence=1.0),  # there is none: the first token
        HeadProgram(attends="even"),
        HeadProgram(attends="offset", offset=-1),
        HeadProgram(attends="random"),
    ]
    program = Program(layers=[heads])
    model = compiled(program)
    corpus = infoflow.load_corpus(sampled(model, program, 40, seed=1))
    table = measure(model, corpus, [AttentionSinks()])["attention_sink"]
    first = table[table["token"] == "first"].set_index(["head", "statistic"])
    assert first.loc[(0, "share"), "value"] == pytest.approx(1, abs=1e-3)
    assert first.loc[(0, "rate"), "value"] == 1
    assert first.loc[(1, "share"), "value"] == pytest.approx(first.loc[(1, "share"), "baseline"], abs=1e-4)
    assert first.loc[(2, "share"), "value"] == pytest.approx(1 / program.length, abs=1e-3)  # of the second token only
    assert first.loc[(2, "rate"), "value"] == 0


def test_an_encoder_decoder_has_rows_of_each_kind():
    corpus = infoflow.load_corpus("tatoeba-en-fr").select(range(20))
    tokenizer = tiny.tokenizer_of(corpus)
    config = t.BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id, decoder_start_token_id=tokenizer.cls_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    model = load_model(t.BartForConditionalGeneration(config), tokenizer=tokenizer)
    table = measure(model, corpus, [AttentionSinks()])["attention_sink"]
    assert set(zip(table["stack"], table["kind"], strict=True)) == {
        ("encoder", "self"), ("decoder", "self"), ("decoder", "cross"),
    }  # fmt: skip
    shares = table[table["statistic"] == "share"].groupby(["stack", "kind", "layer", "head"])["value"].sum()
    assert shares.to_numpy() == pytest.approx(1, abs=1e-5)
