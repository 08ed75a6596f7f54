"""`load_model` tries every model: an unknown family with a fault is caught by what it does, not by its name."""

import re

import pytest
import torch
import transformers
from support.toy import build_toy

from infoflow.foundation import UserError
from infoflow.models import load_model, model_inputs, pad_rows, tap

_SIZES = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "head_dim": 8}
_TEXT = _SIZES | {"num_hidden_layers": 3, "num_key_value_heads": 2, "max_position_embeddings": 48, "pad_token_id": 0}
_PATCHES = {"image_size": 16, "patch_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16}
_SECTIONS = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}


def random_model(class_name: str, config) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    if not hasattr(transformers, class_name):
        pytest.skip(f"transformers {transformers.__version__} has no {class_name}")
    module = getattr(transformers, class_name)(config)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return module.eval()


# -- an invented family


def test_a_whole_family_is_taken_without_being_known(rows):
    model = load_model(build_toy())
    assert model.pads
    assert model.anatomy.outside_attention() is None
    assert [(stack.name, len(stack.layers), stack.width) for stack in model.anatomy.stacks] == [("encoder", 3, 16)]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("returns attention", r"What layers\.0 of ToyModel returns is not what layers\.1 reads"),
        ("last returns attention", "the last block of ToyModel's encoder returns has no effect on the model's output"),
        ("between", r"What layers\.0 of ToyModel returns is not what layers\.1 reads: something else runs between"),
        ("own states", "not those that it returns itself with output_hidden_states"),
        ("batch", "depends on the other sentences of its batch"),
    ],
)
def test_wrong_states_are_refused(fault, reason):
    with pytest.raises(UserError, match=reason):
        load_model(build_toy(fault))


def test_a_single_block_is_tried_too():
    assert len(load_model(build_toy(layers=1)).anatomy.stacks[0].layers) == 1
    with pytest.raises(UserError, match="no effect on the model's output"):
        load_model(build_toy("returns attention", layers=1))


def test_a_family_that_padding_changes_is_not_padded(rows):
    model = load_model(build_toy("padding"))
    assert not model.pads
    ids, mask = pad_rows(rows, 0)
    with pytest.raises(UserError, match=r"Padding changes the results of"):
        model_inputs(model, ids, mask)
    alone = torch.tensor([rows[0]])
    assert model_inputs(model, alone)["input_ids"].shape == (1, 7)


def test_a_hidden_second_mixer_is_found_in_each_block():
    model = load_model(build_toy("second mixer"))
    assert [layer.other_paths for layer in model.anatomy.stacks[0].layers] == [True] * 3
    assert "blocks 0, 1, 2 of the encoder" in str(model.anatomy.outside_attention())
    assert "outside attention" in str(model.anatomy)


def test_states_that_are_no_numbers_are_left_to_the_measures():
    module = build_toy()
    with torch.no_grad():
        module.layers[1].mlp[0].weight.fill_(3e38)  # too large to compute with
    assert load_model(module).pads


def test_the_trials_leave_the_model_as_it_was(build_module, family):
    module = build_module(family)
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    load_model(module)
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())
    assert not any(child._forward_hooks or child._forward_pre_hooks for child in _unrecorded(module))
    assert not any("forward" in vars(child) for child in module.modules())


def _unrecorded(module):
    """Modules on which transformers itself keeps no hook for `output_hidden_states` and `output_attentions`."""
    kinds = (torch.nn.Linear, torch.nn.Embedding, torch.nn.LayerNorm)
    return [child for child in module.modules() if isinstance(child, kinds)]


def test_every_tested_family_pads_and_attends_only(model):
    assert model.pads
    assert model.anatomy.outside_attention() is None


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_precision_makes_no_other_family(build_module, family, dtype):
    model = load_model(build_module(family).to(dtype))
    assert model.pads
    assert model.anatomy.outside_attention() is None


# -- families of transformers that were measured wrongly


def test_two_attentions_in_a_block_are_not_read():
    config = transformers.LongcatFlashConfig(
        **_SIZES | {"head_dim": 4}, num_layers=2, num_hidden_layers=4, num_key_value_heads=4, ffn_hidden_size=48,
        q_lora_rank=8, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=8, qk_head_dim=8,
        n_routed_experts=4, zero_expert_num=2, moe_topk=2, expert_ffn_hidden_size=48, max_position_embeddings=48,
    )  # fmt: skip
    model = load_model(random_model("LongcatFlashForCausalLM", config))
    assert "parts of one block, which has several attentions of one kind" in model.anatomy.unread


def test_merged_self_and_cross_attention_is_not_read():
    text = {**_TEXT, "sliding_window": 8, "bos_token_id": 1, "eos_token_id": 2}
    vision = _PATCHES | {"intermediate_size": 16}
    config = transformers.T5Gemma2Config(
        encoder={"text_config": dict(text), "vision_config": vision}, decoder=dict(text), bos_token_id=1, eos_token_id=2
    )
    model = load_model(random_model("T5Gemma2ForConditionalGeneration", config))
    assert re.search(r"9 keys for 4 tokens.*self- and cross-attention merged", model.anatomy.unread)


def test_experts_chosen_across_the_batch_are_refused():
    config = transformers.DogeConfig(**_TEXT, is_moe=True, num_experts=16, num_experts_per_tok=2)
    with pytest.raises(UserError, match="depends on the other sentences of its batch"):
        load_model(random_model("DogeForCausalLM", config))


def test_mobilebert_is_not_padded_and_its_states_have_their_own_width(rows):
    config = transformers.MobileBertConfig(
        vocab_size=40, hidden_size=32, embedding_size=16, intermediate_size=48, num_attention_heads=4,
        num_hidden_layers=3, intra_bottleneck_size=16, true_hidden_size=16, max_position_embeddings=48,
    )  # fmt: skip
    module = random_model("MobileBertForMaskedLM", config)
    model = load_model(module)
    assert not model.pads
    assert model.anatomy.stacks[0].width == 32
    with torch.no_grad(), tap(model, hidden=True) as seen:
        model.module(**model_inputs(model, torch.tensor([rows[0]])))
    assert {state.shape[-1] for state in seen.hidden["encoder"]} == {32}


@pytest.fixture(scope="module")
def hybrid():
    """Attention and Mamba side by side in every block."""
    config = transformers.FalconH1Config(
        **_TEXT, mamba_d_ssm=64, mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=8
    )
    return load_model(random_model("FalconH1ForCausalLM", config))


def test_mamba_beside_attention_is_found(hybrid):
    assert all(layer.other_paths for layer in hybrid.anatomy.stacks[0].layers)


@pytest.mark.parametrize(
    ("build", "longest"),
    [
        (
            lambda: transformers.LlavaConfig(
                text_config={"model_type": "llama", **_TEXT},
                vision_config={"model_type": "clip_vision_model", **_PATCHES, "intermediate_size": 16},
                image_token_index=39,
            ),
            48,
        ),
        (
            lambda: transformers.Qwen2VLConfig(
                text_config={key: value for key, value in _TEXT.items() if key != "head_dim"}
                | {"rope_parameters": _SECTIONS},
                vision_config={"depth": 1, "embed_dim": 16, "num_heads": 2, "hidden_size": 32},
                image_token_id=37, video_token_id=38, vision_start_token_id=36, vision_end_token_id=35,
            ),
            48,
        ),
    ],
    ids=["llava", "qwen2_vl"],
)  # fmt: skip
def test_the_language_model_of_a_model_of_images_predicts(build, longest):
    config = build()
    name = {"llava": "LlavaForConditionalGeneration", "qwen2_vl": "Qwen2VLForConditionalGeneration"}[config.model_type]
    model = load_model(random_model(name, config))
    assert model.task == "causal-lm"
    assert model.max_tokens == longest
    assert len(model.anatomy.stacks[0].layers) == 3


def test_a_padding_token_that_is_not_embedded_is_not_used():
    """Idefics 3 names one far beyond a small vocabulary."""
    config = transformers.LlamaConfig(**_TEXT | {"pad_token_id": 20})
    module = random_model("LlamaForCausalLM", config)
    assert load_model(module).pad_token_id == 20
    module.config.pad_token_id = 128_002
    assert load_model(module).pad_token_id == 0


def test_heads_of_ibert_are_not_read():
    config = transformers.IBertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
    )
    model = load_model(random_model("IBertForMaskedLM", config))
    assert "no linear output projection receives its heads' outputs" in model.anatomy.unread


def test_a_model_that_needs_images_says_so():
    config = transformers.BlipConfig(
        text_config={"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
        vision_config=_PATCHES | {"intermediate_size": 16},
    )
    with pytest.raises(UserError, match=r"failed in a forward pass on 5 token ids.*pixel_values"):
        load_model(random_model("BlipForConditionalGeneration", config))
