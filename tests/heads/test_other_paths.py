"""Methods that follow attention alone refuse a model whose tokens meet in another way; the others go on."""

import pytest
import torch
import transformers
from support.toy import build_toy

from infoflow.foundation import UserError
from infoflow.heads import EncoderContext, Relevance, alti_contributions, relevance, token_relevance
from infoflow.models import load_model
from infoflow.representations import InfluenceByFrequency

BATCH = {"input_ids": torch.tensor([[5, 6, 7, 8, 9]])}


@pytest.fixture(scope="module")
def mixed():
    """A causal language model with a Mamba beside the attention of each block."""
    torch.manual_seed(0)
    config = transformers.FalconH1Config(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        num_hidden_layers=2, max_position_embeddings=48, mamba_d_ssm=64, mamba_n_heads=8, mamba_d_head=8,
        mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=8,
    )  # fmt: skip
    return load_model(transformers.FalconH1ForCausalLM(config).eval())


@pytest.mark.parametrize("method", ["rollout", "alti", "chefer"])
def test_methods_along_attention_are_refused(mixed, method):
    reason = f'method="{method}" does not apply to .*: its tokens also reach each other outside attention'
    with pytest.raises(UserError, match=reason):
        relevance(mixed, BATCH, method=method)
    assert "outside attention" in str(Relevance(method=method).refusal(mixed))


def test_flow_and_alti_of_tokens_are_refused(mixed):
    for method in ("flow", "rollout"):
        with pytest.raises(UserError, match="outside attention"):
            token_relevance(mixed, BATCH, method=method)
    with pytest.raises(UserError, match="ALTI does not apply"):
        alti_contributions(mixed, BATCH)


def test_gradients_see_every_path(mixed):
    found = relevance(mixed, BATCH, method="gradient-x-input", normalise="abs")
    assert found.groupby("layer")["relevance"].sum().tolist() == pytest.approx([1.0, 1.0])
    assert Relevance(method="gradient-x-input").refusal(mixed) is None


def test_closing_attention_is_refused_where_it_does_not_close_all(mixed):
    assert "outside attention" in str(EncoderContext().refusal(mixed))


def test_influence_is_refused_where_a_removed_token_still_reaches_the_others(mixed):
    assert "outside attention" in str(InfluenceByFrequency().refusal(mixed))
    assert "outside attention" in str(InfluenceByFrequency().refusal(load_model(build_toy("second mixer"))))
    assert InfluenceByFrequency().refusal(load_model(build_toy())) is None


def test_rotations_by_one_complex_tensor_and_routers_are_no_crash():
    """Llama 4 hands its attention one tensor where others hand two, and its router is a linear map with two outputs."""
    torch.manual_seed(0)
    config = transformers.Llama4TextConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, intermediate_size_mlp=48, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, num_hidden_layers=2, num_local_experts=2, max_position_embeddings=48,
        attention_chunk_size=16,
    )  # fmt: skip
    model = load_model(transformers.Llama4ForCausalLM(config).eval())
    with pytest.raises(UserError, match="has no rule for"):
        relevance(model, BATCH)
    assert len(relevance(model, BATCH, method="gradient-x-input")) == 8


def test_values_of_other_states_than_keys_are_no_crash():
    torch.manual_seed(0)
    config = transformers.MobileBertConfig(
        vocab_size=40, hidden_size=32, embedding_size=16, intermediate_size=48, num_attention_heads=4,
        num_hidden_layers=2, intra_bottleneck_size=16, true_hidden_size=16, max_position_embeddings=48,
    )  # fmt: skip
    model = load_model(transformers.MobileBertForMaskedLM(config).eval())
    with pytest.raises(UserError, match="has no rule for"):
        relevance(model, BATCH)
    assert len(relevance(model, BATCH, method="gradient-x-input")) == 8
