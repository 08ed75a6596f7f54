"""Kinds of neurons against a plain loop in every family of feed-forward layers, and properties of the measure."""

import numpy as np
import pandas as pd
import pytest
import transformers as t
from support import tiny_heads as tiny

import infoflow
from infoflow import UserError
from infoflow.corpus import Corpus, generate_grammar
from infoflow.flow import PassOptions, measure
from infoflow.models import load_model
from infoflow.neurons import NeuronExamples, Neurons

from .families import ENCODER, GATES, PlainLoop, albert, bert, by_function, gpt2, llama, loaded, marian, opt, phi3, t5

PAIRED = (marian, t5)
ROUNDING = 1e-4  # of the activity of a neuron near 0, in batches of other sizes


@pytest.fixture(scope="module")
def corpus():
    return generate_grammar(80, seed=4)


def tables(model, corpus, **options):
    found = measure(model, corpus, [Neurons(), NeuronExamples(each=1000)], options=PassOptions(**options))
    return found["neurons_by_layer"], found["neuron_examples"]


def value(table, kind, stack, layer, column="value"):
    (row,) = table[(table["kind"] == kind) & (table["stack"] == stack) & (table["layer"] == layer)].to_dict("records")
    return row[column]


@pytest.mark.parametrize("family", [opt, bert, llama, gpt2, albert, phi3, by_function, marian, t5])
def test_numbers_are_those_of_a_plain_loop(family, corpus):
    model = loaded(family, corpus)
    plain = PlainLoop(family, model, corpus, decoder=family in PAIRED)
    table, examples = tables(model, corpus)
    assert set(zip(table["stack"], table["layer"], strict=True)) == set(plain.sizes)
    assert set(table["stack"]) == set(GATES[family])
    for (stack, layer), neurons in plain.sizes.items():
        nats = [plain.information(stack, layer, neuron) for neuron in range(neurons)]
        dead, detectors = plain.dead(stack, layer), plain.detectors(stack, layer)
        assert value(table, "dead", stack, layer) == pytest.approx(len(dead) / neurons)
        assert value(table, "positional", stack, layer) == pytest.approx(np.mean(np.array(nats) > 0.05))
        alive = [
            sum(plain.active[stack, layer][n].values()) / sum(plain.tokens[stack].values())
            for n in range(neurons)
            if n not in dead
        ]
        assert value(table, "activity", stack, layer) == pytest.approx(np.mean(alive), abs=ROUNDING)
        lower = set()
        for order, kind in enumerate(("detector", "bigram detector", "trigram detector"), 1):
            own = set(plain.detectors(stack, layer, order)) - lower
            low = value(table, kind, stack, layer) * neurons
            undecided = value(table, kind, stack, layer, "undecided") * neurons
            assert low <= len(own) + 1e-9
            assert len(own) <= low + undecided + 1e-9
            lower |= own
        own = examples[(examples["stack"] == stack) & (examples["layer"] == layer)]
        assert set(own.loc[own["kind"] == "detector", "neuron"]) <= set(detectors)
        for row in own[~own["kind"].str.contains("detector")].to_dict("records"):
            assert row["value"] == pytest.approx(nats[row["neuron"]], abs=ROUNDING)


def test_results_do_not_depend_on_batches(corpus):
    model = loaded(opt, corpus)
    (one, first), (other, second) = (tables(model, corpus, tokens_per_batch=size) for size in (64, 4096))
    kinds = ~one["kind"].str.contains("detector|suppressing")
    pd.testing.assert_frame_equal(
        one[kinds].drop(columns="baseline").reset_index(drop=True),
        other[~other["kind"].str.contains("detector|suppressing")].drop(columns="baseline").reset_index(drop=True),
    )
    positional = [frame[~frame["kind"].str.contains("detector")].reset_index(drop=True) for frame in (first, second)]
    pd.testing.assert_frame_equal(*(frame.drop(columns=["baseline"]) for frame in positional))


def test_both_tables_come_from_one_pass(corpus):
    model, read = loaded(opt, corpus), []
    model.module.get_input_embeddings().register_forward_pre_hook(lambda _, args: read.append(args[0].numel()))
    seen = []
    for measures in ([Neurons()], [NeuronExamples()], [Neurons(), NeuronExamples()]):
        measure(model, corpus, measures)
        seen.append(sum(read))
        read.clear()
    one, other, both = seen
    assert one > 1000
    assert both == pytest.approx(max(one, other), rel=0.02)  # but for the few tokens that show where neurons are


def test_a_model_in_bf16_is_read(corpus):
    model = loaded(llama, corpus)
    model.module.bfloat16()
    table, _ = tables(model, corpus)
    assert table["value"].between(0, 1).all()


def test_an_encoder_decoder_without_translations_is_read_on_its_own_side(corpus):
    text = Corpus.from_sentences([sentence.text for sentence in corpus])
    table, _ = tables(loaded(marian, corpus), text)
    assert set(table["stack"]) == {ENCODER}
    assert "suppressing" not in set(table["kind"])


def test_a_mixture_of_experts_is_refused_with_the_reason(corpus):
    tokenizer = tiny.tokenizer_of(corpus)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    size |= {"num_key_value_heads": 2, "num_experts_per_tok": 2, "vocab_size": len(tokenizer)}
    qwen = t.Qwen3MoeConfig(moe_intermediate_size=8, num_experts=6, head_dim=8, decoder_sparse_step=1, **size)
    for module in (t.MixtralForCausalLM(t.MixtralConfig(num_local_experts=4, **size)), t.Qwen3MoeForCausalLM(qwen)):
        with pytest.raises(UserError, match=r"experts.*expert_routing measures the router"):
            measure(load_model(module, tokenizer=tokenizer), corpus, [Neurons()])


def test_analyze_by_name_and_its_report(corpus, tmp_path):
    model = loaded(opt, corpus)
    model.module.save_pretrained(tmp_path / "opt")
    model.tokenizer.save_pretrained(tmp_path / "opt")
    only = ("neurons_by_layer", "neuron_examples")
    run = infoflow.analyze([tmp_path / "opt"], corpus="grammar", sentences=200, only=only, out=tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "rgb(0, 0, 0)" not in page  # what Vega makes of a scale between CSS variables
    assert "How many neurons are dead, detect tokens or follow position?" in page
    assert set(run.tables["neurons_by_layer"]["kind"]) >= {"dead", "detector", "positional", "activity"}
    assert set(run.tables["neurons_by_layer"]["trained"]) == {True, False}
