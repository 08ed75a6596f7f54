"""Stacks, layers and heads are those of the configuration, in every family; what cannot be tapped is refused."""

import pytest
import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from infoflow.foundation import UserError
from infoflow.models import load_model, tap

# Output projections as the issue tracker of head pruning lists them, by family.
OUTPUT_PROJECTIONS = {
    "bert": "attention.output.dense",
    "roberta": "attention.output.dense",
    "xlm-roberta": "attention.output.dense",
    "electra": "attention.output.dense",
    "encoder-decoder": "attention.output.dense",
    "distilbert": "attention.out_lin",
    "albert": "attention.dense",
    "modernbert": "attn.Wo",
    "gpt2": "attn.c_proj",
    "gpt_neox": "attention.dense",
    "opt": "self_attn.out_proj",
    "marian": "self_attn.out_proj",
    "bart": "self_attn.out_proj",
    "mbart": "self_attn.out_proj",
    "m2m100": "self_attn.out_proj",
    "llama": "self_attn.o_proj",
    "qwen3": "self_attn.o_proj",
    "mistral": "self_attn.o_proj",
    "gemma2": "self_attn.o_proj",
    "gemma3": "self_attn.o_proj",
    "phi3": "self_attn.o_proj",
    "t5": "SelfAttention.o",
}
CROSS_PROJECTIONS = {"t5": "EncDecAttention.o", "encoder-decoder": "crossattention.output.dense"}
GROUPED = ("llama", "qwen3", "mistral", "gemma2", "gemma3", "phi3")
SEQUENCE_TO_SEQUENCE = ("marian", "bart", "mbart", "m2m100", "t5", "encoder-decoder")
CAUSAL = (*GROUPED, "gpt2", "gpt_neox", "opt")


def test_stacks_and_kinds(model, family):
    shape = [(stack.name, stack.causal, len(stack.layers), stack.kinds) for stack in model.anatomy.stacks]
    if family in SEQUENCE_TO_SEQUENCE:
        assert shape == [("encoder", False, 2, ("self",)), ("decoder", True, 3, ("self", "cross"))]
    elif family in CAUSAL:
        assert shape == [("decoder", True, 3, ("self",))]
    else:
        assert shape == [("encoder", False, 3, ("self",))]
    assert all(stack.width == 16 for stack in model.anatomy.stacks)


def test_task(model, family):
    expected = "seq2seq" if family in SEQUENCE_TO_SEQUENCE else "causal-lm" if family in CAUSAL else "masked-lm"
    assert model.task == expected


def test_heads(model, family):
    for one in model.anatomy.attentions():
        heads = 2 if family in ("marian", "bart", "mbart", "m2m100") and one.stack == "decoder" else 4
        assert one.num_heads == heads
        assert one.num_key_value_heads == (2 if family in GROUPED else heads)
        wide = family == "t5" or (family in GROUPED and family != "phi3")
        assert one.head_dim == (6 if wide else 16 // heads)


def test_output_projections(model, family):
    for one in model.anatomy.attentions():
        expected = OUTPUT_PROJECTIONS[family]
        if one.kind == "cross":
            expected = CROSS_PROJECTIONS.get(family, "encoder_attn.out_proj")
        assert one.output_projection.endswith(expected)
        assert one.transposed == (family == "gpt2")
        module = model.module.get_submodule(one.output_projection)
        assert module.weight.shape[0 if one.transposed else 1] == one.num_heads * one.head_dim


def test_shared_layers_are_counted(models):
    stack = models("albert").anatomy.stacks[0]
    assert stack.shared
    assert [layer.index for layer in stack.layers] == [0, 1, 2]
    assert not models("bert").anatomy.stacks[0].shared


def test_albert_with_two_groups_of_two_layers():
    config = transformers.AlbertConfig(
        vocab_size=20, embedding_size=8, hidden_size=16, num_hidden_layers=4, num_hidden_groups=2,
        num_attention_heads=2, intermediate_size=8,
    )  # fmt: skip
    blocks = [layer.block for layer in load_model(transformers.AlbertModel(config)).anatomy.stacks[0].layers]
    groups = [block.partition("layer_groups.")[2][0] for block in blocks]
    assert groups == ["0", "0", "1", "1"]


def test_anatomy_prints_as_a_table(models):
    text = str(models("llama").anatomy)
    assert "decoder (causal)" in text
    assert "4 over 2 key/value" in text
    assert "model.layers.0.self_attn.o_proj" in text
    total = sum(parameter.numel() for parameter in models("llama").module.parameters())
    assert f"{total:,}" in text.splitlines()[-1]
    assert "(transposed)" in str(models("gpt2").anatomy)
    assert "3 (one, shared)" in str(models("albert").anatomy)


def test_discovery_leaves_the_model_as_it_was(build_module):
    module = build_module("bart").train()
    module.model.decoder.eval()
    modes = [child.training for child in module.modules()]
    state = torch.get_rng_state()
    from infoflow.models import discover

    discover(module)
    assert [child.training for child in module.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert module.config._attn_implementation == "sdpa"
    assert not any(child._forward_pre_hooks for child in module.modules())


@pytest.mark.parametrize("family", ["bart", "mbart", "bert", "t5"])
def test_a_classifier_has_the_stacks_of_its_base_model(build_module, family):
    base = build_module(family)
    name = type(base).__name__.replace("ForConditionalGeneration", "").replace("ForMaskedLM", "")
    module = getattr(transformers, f"{name}ForSequenceClassification")(base.config).eval()
    model, expected = load_model(module), load_model(base)
    assert model.task == "encoder"
    assert [(s.name, s.causal, len(s.layers)) for s in model.anatomy.stacks] == [
        (s.name, s.causal, len(s.layers)) for s in expected.anatomy.stacks
    ]
    ids = torch.tensor([[5, 6, 7, 2]])
    with tap(model, attention=True) as seen, torch.no_grad():
        module(input_ids=ids)
    assert {key: len(layers) for key, layers in seen.attention.items()} == {
        (stack.name, kind): len(stack.layers) for stack in model.anatomy.stacks for kind in stack.layers[0].attentions
    }


def test_a_model_of_images_is_refused():
    config = transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    with pytest.raises(UserError, match="embeds no token ids"):
        load_model(transformers.ViTModel(config))


def test_heads_changed_before_the_projection_are_not_read(build_module):
    module = build_module("bert")
    attention = module.bert.encoder.layer[1].attention.self
    attention.register_forward_hook(lambda child, inputs, output: (output[0] * 2, *output[1:]))
    assert "before they reach an output projection" in load_model(module).anatomy.unread


def test_a_learned_sink_is_one_more_key_without_a_value():
    """GPT-OSS adds one to every softmax."""
    config = transformers.GptOssConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=4,
        intermediate_size=8, num_local_experts=2, num_experts_per_tok=1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    module = transformers.GptOssForCausalLM(config)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    model, ids = load_model(module), torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad(), tap(model, attention=True) as seen:
        model.module(ids)
    with torch.no_grad():
        module.set_attn_implementation("eager")
        own = module(ids, output_attentions=True).attentions
    for ours, theirs in zip(seen.attention["decoder", "self"], own, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        assert (ours.sum(-1) < 0.999).any()


def test_attention_with_an_unknown_part_is_not_read(build_module, monkeypatch):
    """A family whose attention function takes something that infoflow's does not know."""
    module = build_module("llama")
    known = ALL_ATTENTION_FUNCTIONS["sdpa"]
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", lambda *args, **more: (2 * known(*args, **more)[0], None))
    assert "does not compute the same" in load_model(module).anatomy.unread


def test_heads_of_a_translation_model_with_half_its_attention_hidden_are_not_read():
    config = transformers.LongT5Config(
        vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=2, num_heads=2, decoder_start_token_id=0,
        encoder_attention_type="transient-global",
    )  # fmt: skip
    model = load_model(transformers.LongT5ForConditionalGeneration(config))
    assert "The encoder of LongT5" in model.anatomy.unread
    assert [stack.name for stack in model.anatomy.stacks] == ["encoder", "decoder"]


@pytest.mark.parametrize(
    ("family", "contiguous", "interleaved"), [("modernbert", (), ("Wqkv",)), ("gpt_neox", ("query_key_value",), ())]
)
def test_a_fused_layout_that_is_not_what_its_name_suggests_is_left_unnamed(
    build_module, monkeypatch, family, contiguous, interleaved
):
    """With the two layouts swapped, the slices would point at the wrong rows: the values give it away."""
    assert next(load_model(build_module(family)).anatomy.attentions()).value is not None
    monkeypatch.setattr("infoflow.models._parameters._CONTIGUOUS", contiguous)
    monkeypatch.setattr("infoflow.models._parameters._INTERLEAVED", interleaved)
    anatomy = load_model(build_module(family)).anatomy
    assert all(one.query is one.key is one.value is None for one in anatomy.attentions())
    fused = {group.component for group in anatomy.parameter_groups if "qkv" in group.slice.parameter}
    fused |= {group.component for group in anatomy.parameter_groups if "query_key_value" in group.slice.parameter}
    assert fused == {"other"}
