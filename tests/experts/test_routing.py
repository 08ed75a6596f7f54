"""Shares of experts against the routers' own logits, in families that write their routers in different ways."""

import numpy as np
import pytest
import torch
import transformers as t
from support import tiny_heads as tiny

from infoflow import analyze
from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.subjects.experts.measures import ExpertRouting

SIZE = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZE |= {"num_key_value_heads": 2, "num_experts_per_tok": 2}


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(30)


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return tiny.tokenizer_of(corpus)


def mixtral(vocab):
    # as it is saved after training with a loss that balances the experts
    config = t.MixtralConfig(vocab_size=vocab, num_local_experts=4, output_router_logits=True, **SIZE)
    return t.MixtralForCausalLM(config)


def qwen(vocab):
    size = {**SIZE, "moe_intermediate_size": 8, "num_experts": 6, "head_dim": 8, "decoder_sparse_step": 1}
    return t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(vocab_size=vocab, **size))


def gpt_oss(vocab):
    return t.GptOssForCausalLM(t.GptOssConfig(vocab_size=vocab, num_local_experts=4, head_dim=8, **SIZE))


def llama4(vocab):
    size = {**SIZE, "intermediate_size_mlp": 16, "head_dim": 8, "num_local_experts": 5, "interleave_moe_layer_step": 1}
    return t.Llama4ForCausalLM(t.Llama4TextConfig(vocab_size=vocab, **size))


def jetmoe(vocab):
    size = {**SIZE, "num_key_value_heads": 1, "kv_channels": 8, "num_local_experts": 4}
    return t.JetMoeForCausalLM(t.JetMoeConfig(vocab_size=vocab, **size))


@pytest.mark.parametrize("family", [mixtral, qwen, gpt_oss, llama4, jetmoe])
def test_shares_are_those_of_the_router_logits(family, corpus, tokenizer):
    torch.manual_seed(0)
    model = load_model(family(len(tokenizer)), tokenizer=tokenizer)
    table = measure(model, corpus, [ExpertRouting()])["expert_routing"]
    assert not getattr(model.module.config, "output_router_logits", False)
    assert table[table["tag"] == "all"].groupby("layer")["value"].sum().to_numpy() == pytest.approx(2)

    counts, tokens, nouns = {}, 0, 0
    reader = tiny.reader_of(model, corpus)
    for row in reader.rows.tolist():
        batch = reader.padded(np.array([row]))
        stream, (upos,) = batch.streams["decoder"], corpus.select([row]).column("upos")
        tags = [upos[word] if word >= 0 else "" for word in stream.words[0].tolist()]
        with torch.no_grad():
            logits = model.module(stream.input_ids, output_router_logits=True, use_cache=False).router_logits
        kept = stream.valid[0]
        noun = kept & torch.tensor([tag == "NOUN" for tag in tags])
        tokens, nouns = tokens + int(kept.sum()), nouns + int(noun.sum())
        routers = len(logits) // 2  # of a layer: JetMoE also routes attention, first
        for layer, of_layer in enumerate(logits[routers - 1 :: routers]):
            chosen = torch.zeros_like(of_layer).scatter(1, of_layer.topk(2).indices, 1)
            counts[layer, "all"] = counts.get((layer, "all"), 0) + chosen[kept].sum(0)
            counts[layer, "NOUN"] = counts.get((layer, "NOUN"), 0) + chosen[noun].sum(0)
    for tag, total in (("all", tokens), ("NOUN", nouns)):
        for layer in (0, 1):
            found = table[(table["tag"] == tag) & (table["layer"] == layer)].sort_values("expert")
            assert found["value"].to_numpy() == pytest.approx((counts[layer, tag] / total).numpy())
            assert set(found["count"]) == {total}
    of_nouns = table[(table["tag"] == "NOUN") & (table["layer"] == 1)].sort_values("expert")
    assert of_nouns["baseline"].to_numpy() == pytest.approx((counts[1, "all"] / tokens).numpy())


def test_an_encoder_decoder_that_routes_one_hot(corpus, tokenizer):
    size = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_sparse_encoder_layers": 1, "num_heads": 2}
    config = t.SwitchTransformersConfig(
        vocab_size=len(tokenizer), num_experts=4, expert_capacity=10_000, decoder_start_token_id=0, **size
    )
    model = load_model(t.SwitchTransformersForConditionalGeneration(config), tokenizer=tokenizer)
    table = measure(model, corpus, [ExpertRouting()])["expert_routing"]
    shares = table[table["tag"] == "all"].groupby(["stack", "layer"])["value"].sum()
    assert {("encoder", 1), ("decoder", 1)} <= set(shares.index)
    assert shares.to_numpy() == pytest.approx(1)


def test_a_model_without_experts_says_so(corpus):
    with pytest.raises(UserError, match="returns the experts"):
        measure(tiny.llama(corpus), corpus, [ExpertRouting()])


def test_analyze_by_name_and_its_report(corpus, tokenizer, tmp_path):
    model = load_model(mixtral(len(tokenizer)), tokenizer=tokenizer)
    model.module.save_pretrained(tmp_path / "moe")
    tokenizer.save_pretrained(tmp_path / "moe")
    run = analyze([tmp_path / "moe"], corpus="grammar", sentences=60, only=("expert_routing",), out=tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "rgb(0, 0, 0)" not in page  # what Vega makes of a scale between CSS variables
    assert "Which experts are used, and for which words?" in page
    assert "The expert most selective for a tag is expert" in page
    assert len(run.tables["expert_routing"]) > 8


def test_where_counts_the_words_of_one_tag(corpus, tokenizer):
    torch.manual_seed(0)
    model = load_model(mixtral(len(tokenizer)), tokenizer=tokenizer)
    every = measure(model, corpus, [ExpertRouting()])["expert_routing"]
    nouns = measure(model, corpus, [ExpertRouting()], PassOptions(where=("upos", "NOUN")))["expert_routing"]
    expected, found = every[every["tag"] == "NOUN"], nouns[nouns["tag"] == "all"]
    assert found["value"].tolist() == pytest.approx(expected["value"].tolist())
