"""TAPAS computes BERT's function by attention code of its own: every measure of heads gives BERT's numbers."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, DebertaV2Config, DebertaV2ForMaskedLM, TapasConfig
from transformers import TapasForMaskedLM as Tapas

from infoflow.foundation import UserError
from infoflow.heads import relevance, sentence_attention
from infoflow.models import load_model, model_inputs, rerun_blocks, tap, without_token
from infoflow.report import write_view

_SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}
_IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def spread(module):
    torch.manual_seed(3)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.eval()


@pytest.fixture(scope="module")
def bert():
    return load_model(spread(BertForMaskedLM(BertConfig(**_SIZES))))


@pytest.fixture(scope="module")
def tapas(bert):
    """With BERT's weights; of its seven kinds of segments one."""
    module = Tapas(TapasConfig(**_SIZES | {"type_vocab_sizes": [2] * 7})).eval()
    values = {name.replace("bert.", "tapas.", 1): value for name, value in bert.module.state_dict().items()}
    values["tapas.embeddings.token_type_embeddings_0.weight"] = values.pop(
        "tapas.embeddings.token_type_embeddings.weight"
    )
    for kind in range(1, 7):
        name = f"tapas.embeddings.token_type_embeddings_{kind}.weight"
        values[name] = torch.zeros_like(module.state_dict()[name])
    report = module.load_state_dict(values, strict=False)
    assert not [name for name in report.missing_keys if "position_ids" not in name]
    return load_model(module)


def test_the_two_compute_one_function_by_different_code(bert, tapas):
    assert {one.own is None for one in bert.anatomy.attentions()} == {True}
    assert {one.own is None for one in tapas.anatomy.attentions()} == {False}
    with torch.no_grad():
        ours, theirs = (model.module(**model_inputs(model, _IDS)).logits for model in (tapas, bert))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["voita", "gradient-x-input", "cp-lrp", "attn-lrp", "chefer", "rollout", "alti"])
def test_relevance_is_that_of_bert(bert, tapas, method):
    found, expected = (
        relevance(model, {"input_ids": _IDS}, method, position=2, target=11, normalise=None) for model in (tapas, bert)
    )
    assert found.drop(columns="relevance").equals(expected.drop(columns="relevance"))
    assert np.abs(expected["relevance"]).max() > 1e-3
    np.testing.assert_allclose(found["relevance"], expected["relevance"], rtol=1e-3, atol=1e-5)


def test_a_hidden_token_changes_each_block_as_in_bert(bert, tapas):
    token = torch.tensor([2])
    blocks = []
    for model in (tapas, bert):
        with torch.no_grad():
            blocks.append(
                rerun_blocks(
                    model,
                    "encoder",
                    [lambda call: without_token(call, token)],
                    lambda model=model: model.module(**model_inputs(model, _IDS)),
                )
            )
    for ours, theirs in zip(*blocks, strict=True):
        torch.testing.assert_close(ours.kept, theirs.kept, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.edited[0], theirs.edited[0], rtol=1e-5, atol=1e-5)
        assert (ours.edited[0] - ours.kept).abs().max() > 1e-4


def test_one_sentence_looks_as_in_bert(bert, tapas):
    (found,), (expected,) = (sentence_attention(model, _IDS[0].tolist()).kinds for model in (tapas, bert))
    for ours, theirs in zip(found.layers, expected.layers, strict=True):
        assert not ours.biased
        assert ours.scaling == pytest.approx(theirs.scaling, rel=1e-5)
        np.testing.assert_allclose(ours.query, theirs.query, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ours.key, theirs.key, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ours.value_norms, theirs.value_norms, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def deberta():
    more = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 8}
    return load_model(spread(DebertaV2ForMaskedLM(DebertaV2Config(**_SIZES | more))))


@pytest.mark.parametrize("method", ["voita", "attn-lrp"])
def test_rules_for_products_are_refused_where_content_and_position_mix(deberta, method):
    with pytest.raises(UserError, match=r"between its projections and the softmax|not made of their products alone"):
        relevance(deberta, {"input_ids": _IDS}, method, position=2)


def test_methods_that_need_no_products_work_there(deberta):
    """Gradient times input is the derivative by a gate on the head: against differences."""
    found = relevance(deberta, {"input_ids": _IDS}, "gradient-x-input", position=2, target=11, normalise=None)
    width = 1e-2

    def logit(layer, head, value):
        gates = torch.ones(3, 4)
        gates[layer, head] = value
        with torch.no_grad(), tap(deberta, gates={("encoder", "self"): gates}):
            return float(deberta.module(**model_inputs(deberta, _IDS)).logits[0, 2, 11])

    slopes = [
        (logit(layer, head, 1 + width) - logit(layer, head, 1 - width)) / (2 * width)
        for layer, head in zip(found["layer"], found["head"], strict=True)
    ]
    np.testing.assert_allclose(found["relevance"], slopes, rtol=2e-2, atol=2e-3)


def test_one_sentence_shows_no_products_there(deberta, tmp_path):
    seen = sentence_attention(deberta, _IDS[0].tolist())
    (kind,) = seen.kinds
    assert all(layer.biased for layer in kind.layers)
    assert all(layer.query.shape == (4, 6, 1) and not layer.query.any() for layer in kind.layers)
    assert write_view(seen, tmp_path / "view.html").exists()
