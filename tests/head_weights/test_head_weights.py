"""Copying scores and preferred offsets against whole matrices, in known heads, and for random weights."""

import numpy as np
import pytest
import torch
import transformers as t
from support import tiny_heads as tiny
from support.compiled import HeadProgram, Program, compiled

from infoflow import UserError, analyze
from infoflow.flow import measure
from infoflow.head_weights import HeadWeights
from infoflow.models import load_model

INDUCTION = Program(
    layers=[
        [HeadProgram(attends="offset", offset=-1), HeadProgram(attends="token", word=2), HeadProgram(attends="random")],
        [
            HeadProgram(attends="after-same", reads=0, evidence=4.0, copies=True),
            HeadProgram(attends="even"),
            HeadProgram(attends="offset", offset=-2, evidence=2.0),
        ],
    ]
)
NEXT = Program(layers=[[HeadProgram(attends="offset", offset=o) for o in (-3, 1, 2)]], causal=False)


def randomised(module, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            one = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
            parameter.copy_(0.3 * torch.randn_like(parameter) + one)
    return module.eval()


def gpt2(seed=0):
    config = t.GPT2Config(
        vocab_size=50, n_embd=24, n_layer=2, n_head=3, n_positions=20, n_inner=8, bos_token_id=0, eos_token_id=1
    )
    return randomised(t.GPT2LMHeadModel(config), seed)


def llama(kv=2):
    config = t.LlamaConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=kv,
        intermediate_size=8, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(1)
    module = t.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.rand_like(parameter) + 0.5 if "norm" in name else torch.randn_like(parameter))
    return module.eval()


def values_of(table, statistic="copying"):
    return table[table["statistic"] == statistic].set_index(["layer", "head"])["value"]


def score_of(circuit):
    """By all eigenvalues of the matrix between tokens, most of which are 0."""
    values = np.linalg.eigvals(circuit)
    return values.real.sum() / np.abs(values).sum()


def test_copying_is_the_score_of_the_whole_circuit_between_tokens():
    module = gpt2()
    found = values_of(HeadWeights().of(load_model(module)))
    body, out = module.transformer, module.lm_head.weight.detach().double().numpy()
    centre = np.eye(24) - 1 / 24
    last = centre @ np.diag(body.ln_f.weight.detach().double().numpy())
    for layer, block in enumerate(body.h):
        norm = centre @ np.diag(block.ln_1.weight.detach().double().numpy())
        value = block.attn.c_attn.weight.detach().double().numpy()[:, 48:]
        output = block.attn.c_proj.weight.detach().double().numpy()
        for head in range(3):
            own = slice(8 * head, 8 * head + 8)
            circuit = body.wte.weight.detach().double().numpy() @ norm @ value[:, own] @ output[own] @ last
            circuit = circuit @ (out - out.mean(0)).T
            assert found[layer, head] == pytest.approx(score_of(circuit), abs=1e-5)


def test_grouped_heads_with_norms_that_do_not_centre():
    module = llama()
    found = values_of(HeadWeights().of(load_model(module)))
    embeddings = module.model.embed_tokens.weight.detach().double().numpy()
    out = module.lm_head.weight.detach().double().numpy()
    last = np.diag(module.model.norm.weight.detach().double().numpy())
    for layer, block in enumerate(module.model.layers):
        norm = np.diag(block.input_layernorm.weight.detach().double().numpy())
        value = block.self_attn.v_proj.weight.detach().double().numpy().T
        output = block.self_attn.o_proj.weight.detach().double().numpy().T
        for head in range(4):
            group, own = slice(4 * (head // 2), 4 * (head // 2) + 4), slice(4 * head, 4 * head + 4)
            circuit = embeddings @ norm @ value[:, group] @ output[own] @ last @ (out - out.mean(0)).T
            assert found[layer, head] == pytest.approx(score_of(circuit), abs=1e-5)


def test_rotary_models_have_no_offsets():
    table = HeadWeights().of(load_model(llama()))
    assert set(table["statistic"]) == {"copying"}


def test_known_heads_have_the_programmed_offset_and_copy():
    table = HeadWeights().of(compiled(INDUCTION))
    copying = values_of(table)
    assert copying[1, 0] == pytest.approx(1, abs=1e-6)
    assert copying.drop((1, 0)).abs().max() < 0.3
    best = table[table["statistic"] == "preferred"].set_index(["layer", "head"])
    assert best.loc[(0, 0), ["offset", "value"]].tolist() == [-1, 1]
    assert best.loc[(1, 2), ["offset", "value"]].tolist() == [-2, 1]
    assert (best.loc[[(0, 0), (1, 2)], "value"] > best.loc[[(0, 0), (1, 2)], "control_high"]).all()
    assert (1, 1) not in best.index  # all its keys are equal

    encoder = HeadWeights().of(compiled(NEXT))
    assert "copying" in set(encoder["statistic"])
    best = encoder[encoder["statistic"] == "preferred"]
    assert best["offset"].tolist() == [-3, 1, 2]
    assert best["value"].tolist() == [1, 1, 1]


def test_offsets_are_those_of_a_loop_over_positions():
    module = gpt2(seed=3)
    table = HeadWeights(positions=12, widest=4).of(load_model(module))
    places = module.transformer.wpe.weight.detach().double().numpy()[:12]
    places = places - places.mean(0)
    places = (places - places.mean(1, keepdims=True)) * module.transformer.h[0].ln_1.weight.detach().numpy()
    weight = module.transformer.h[0].attn.c_attn.weight.detach().double().numpy()
    for head in range(3):
        own = slice(8 * head, 8 * head + 8)
        scores = (places @ weight[:, :24][:, own]) @ (places @ weight[:, 24:48][:, own]).T
        best = [int(np.argmax(row[: i + 1])) - i for i, row in enumerate(scores)]
        rows = table[(table["layer"] == 0) & (table["head"] == head) & (table["statistic"] == "offset")]
        for row in rows.itertuples():
            able = [one for i, one in enumerate(best) if i + row.offset >= 0]
            assert row.value == pytest.approx(np.mean([one == row.offset for one in able]))


def test_random_weights_are_within_their_control():
    """Of many random heads, few lie outside the interval of their control."""
    tables = [HeadWeights().of(load_model(gpt2(seed))) for seed in range(8)]
    rows = [row for table in tables for row in table[table["statistic"] == "copying"].itertuples()]
    outside = np.mean([not row.control_low <= row.value <= row.control_high for row in rows])
    assert outside < 0.2
    assert np.mean([row.value - row.baseline for row in rows]) == pytest.approx(0, abs=0.2)


def test_an_encoder_decoder_copies_in_its_decoder_alone():
    config = t.BartConfig(
        vocab_size=40, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(0)
    table = HeadWeights().of(load_model(t.BartForConditionalGeneration(config)))
    assert set(table.loc[table["statistic"] == "copying", "stack"]) == {"decoder"}
    assert set(table.loc[table["statistic"] == "preferred", "stack"]) == {"encoder", "decoder"}
    assert table.loc[table["stack"] == "decoder", "offset"].max() == 0


def test_what_has_nothing_to_read_and_bad_settings_are_refused():
    config = t.T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(UserError, match="adds no positions"):
        HeadWeights().of(load_model(t.T5EncoderModel(config)))
    for wrong in ({"positions": 1}, {"widest": 0}, {"draws": 1}):
        with pytest.raises(UserError, match="must be at least"):
            HeadWeights(**wrong)


def test_analyze_by_name_and_its_report(tmp_path):
    corpus = tiny.trees(60)
    model = tiny.bert(corpus)
    assert len(measure(model, corpus, [HeadWeights()])["head_weights"])
    model.module.save_pretrained(tmp_path / "bert")
    model.tokenizer.save_pretrained(tmp_path / "bert")
    names = ("head_weights", "head_composition", "head_positional")
    run = analyze([tmp_path / "bert"], corpus="grammar", sentences=60, only=names, out=tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Which heads copy, by their weights?" in page
    assert "Which heads read what other heads write?" in page
    assert "rank correlation with the share of queries" in page
    assert {"head_weights", "head_composition"} <= set(run.tables)
