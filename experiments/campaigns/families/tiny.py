"""A tiny random model of any family that transformers knows, from its configuration class alone."""

import dataclasses
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import configuration_auto
from transformers.models.auto import modeling_auto as registry

VOCABULARY = 40
PAD, BEGIN, END = 0, 1, 2

_HEADS = (
    registry.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    registry.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    registry.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    registry.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

# Widths: 32 wide, 4 heads of 8, 3 blocks; the same field may have several names.
_WIDTHS = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim", "model_dim"), 32),
    **dict.fromkeys(("embedding_size", "word_embed_proj_dim", "true_hidden_size", "intra_bottleneck_size"), 32),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_head_kv"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "kv_channels", "attention_head_dim", "v_head_dim", "head_size"), 8),
    **dict.fromkeys(("global_head_dim", "swa_head_dim"), 8),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim"), 4),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 8),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"), 3),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_encoder_layers", "depth"), 3),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "hidden_dim", "ffn_hidden_size"), 48),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size", "d_inner"), 48),
    **dict.fromkeys(("shared_expert_intermediate_size", "intermediate_size_mlp", "expert_ffn_hidden_size"), 48),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token", "top_k_experts"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "moe_num_shared_experts"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"), 64),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input", "text_vocab_size"), VOCABULARY),
    **dict.fromkeys(("hidden_size_per_layer_input",), 8),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "state_size", "mamba_d_ssm", "linear_key_head_dim"), 8),
    **dict.fromkeys(("linear_value_head_dim", "linear_head_dim", "mamba_head_dim", "mamba_headdim", "mamba_d_head"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "linear_num_heads"), 4),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), 8),
    **dict.fromkeys(("mamba_n_groups", "n_groups", "mamba_ngroups"), 1),
    **dict.fromkeys(("mamba_chunk_size", "chunk_size", "attention_chunk_size"), 16),
    **dict.fromkeys(("sliding_window", "local_attention", "window_size"), 8),
    **dict.fromkeys(("pad_token_id", "padding_idx"), PAD),
    **dict.fromkeys(("bos_token_id", "cls_token_id", "decoder_start_token_id"), BEGIN),
    **dict.fromkeys(("eos_token_id", "sep_token_id", "forced_eos_token_id"), END),
    **dict.fromkeys(("attention_dropout", "hidden_dropout", "resid_pdrop"), 0.0),
}
_VISION = {"image_size": 16, "patch_size": 4, "num_channels": 3, "out_hidden_size": 32}

_SECTIONS = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}

# What no general rule gives: fields that must agree with others.
_SPECIAL: dict[str, dict[str, Any]] = {
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "mobilebert": {"num_feedforward_networks": 2, "intra_bottleneck_size": 16, "hidden_size": 32},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_expand": 2},
    "doge": {"is_moe": True, "num_experts": 16},
    "codegen": {"n_ctx": 64, "rotary_dim": 4, "n_positions": 64},
    "gptj": {"rotary_dim": 4},
    "gpt_neo": {"num_layers": 3, "attention_types": [[["global", "local"], 1], [["global"], 1]], "window_size": 4},
    **{
        name: {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16}
        for name in ("deberta", "deberta-v2")
    },
    "longformer": {"attention_window": 4},
    "led": {"attention_window": 4},
    "longt5": {"local_radius": 3},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    **{f"{name}_text": {"rope_parameters": _SECTIONS} for name in ("glm4v", "glm_ocr", "paddleocr_vl")},
    "glm4v_moe_text": {"rope_parameters": _SECTIONS | {"mrope_section": [1, 0, 1]}},  # a quarter of a head
    "bert-generation": {"is_decoder": True},
    **{name: {"num_key_value_heads": 4} for name in ("dots3_note", "dots3_note_text", "esmc")},
    **{name: {"moe_intermediate_size": [48, 48]} for name in ("ernie4_5_vl_moe_text", "ernie4_5_vl_moe")},
    "zaya": {"num_experts_per_tok": 1},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        "layer_types": ["full_attention"] * 3,
    },
    "dory": {"n_input_layers": 2, "n_output_layers": 2},
    "xlstm": {"embedding_dim": 32, "num_blocks": 3},
    "bamba": {"attn_layer_indices": [1]},
    **{f"{name}_text": {"rope_parameters": _SECTIONS} for name in ("qwen2_vl", "qwen2_5_vl")},
    "longcat_flash": {
        "num_layers": 3, "num_hidden_layers": 6, "zero_expert_num": 2, "head_dim": 4, "qk_head_dim": 8,
        "num_key_value_heads": 4,
    },
    **{
        name: {"num_kv_shared_layers": 1, "layer_types": ["full_attention"] * 3, "intermediate_size": width}
        for name, width in (("gemma3n_text", [48] * 3), ("gemma4_text", 48))
    },
    "deepseek_v4": {"layer_types": [f"{how}_attention" for how in ("heavily_compressed", "compressed_sparse")] * 2},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1},
    "jamba": {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "mamba_dt_rank": 4, "use_mamba_kernels": False,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 8], "attn_layers": ["local"] * 3},
    "zamba": {
        "num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2, "use_mamba_kernels": False,
        "attention_head_dim": 16, "attention_hidden_size": 64, "n_mamba_heads": 2, "mamba_dt_rank": 4,
    },
    "zamba2": {
        "num_hidden_layers": 3, "layers_block_type": ["mamba", "hybrid", "mamba"], "num_mem_blocks": 1,
        "mamba_headdim": 8, "n_mamba_heads": 8, "layer_types": ["mamba", "hybrid", "mamba"],
    },
}  # fmt: skip


def families() -> list[str]:
    """Model types with a text part: those that a language-model or image-text class is registered for."""
    return sorted({family for mapping in _HEADS for family in mapping if family in configuration_auto.CONFIG_MAPPING})


def tiny_model(family: str) -> PreTrainedModel:
    """A random model of that family; weights are spread wide enough that every part acts."""
    if family == "encoder-decoder":
        parts = [tiny_config(transformers.BertConfig, **settings) for settings in ({}, {"is_decoder": True})]
        config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*parts)
    else:
        config = tiny_config(configuration_auto.CONFIG_MAPPING[family])
    torch.manual_seed(0)
    if config.is_encoder_decoder:
        config.decoder_start_token_id = BEGIN
    model_class = _model_class(family, config)
    if isinstance(getattr(config, "text_config", None), model_class.config_class or ()):  # Llama 4's language model
        config = config.text_config
    module = model_class(config)
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.is_floating_point():
            mean = 0.5 if parameter.dim() == 1 and "norm" in name.lower() else 0.0
            torch.nn.init.normal_(parameter, mean=mean, std=0.2)
    return module.eval()


def tiny_config(config_class: type[PreTrainedConfig], **given: Any) -> PreTrainedConfig:
    """The class's own defaults, with every width, depth and count made small, in its parts as well."""
    default = {field.name: field.default for field in dataclasses.fields(config_class)}
    sees = any(word in config_class.__name__.lower() for word in ("vision", "audio"))
    small = {**_WIDTHS, **(_VISION if sees else {})}
    # A list by layer stays as the class computes it.
    small = {name: value for name, value in small.items() if not isinstance(default.get(name, ()), list | tuple | dict)}
    if "qk_rope_head_dim" in default:  # latent attention rotates a part of each head, and only that
        small |= {"head_dim": 4, "num_key_value_heads": 4}
    small = {name: value for name, value in small.items() if name in default}
    for part, part_class in _parts(config_class).items():
        small[part] = tiny_config(part_class).to_dict()
    special = _SPECIAL.get(config_class.model_type, {})
    given = small | {name: value for name, value in special.items() if name in default} | given
    return config_class(**given | _agreeing(config_class(**given), given))


def _agreeing(config: PreTrainedConfig, given: dict[str, Any]) -> dict[str, Any]:
    """Fields that the class fills in for its own size, where they must agree with the small one."""
    more: dict[str, Any] = {}
    rope = getattr(config, "rope_parameters", None)
    if isinstance(rope, dict) and len(rope.get("mrope_section") or ()) == 3 and "rope_parameters" not in given:
        more["rope_parameters"] = {**rope, "mrope_section": [1, 1, 2]}  # half of a head of 8
    kinds = getattr(config, "layer_types", None)
    own = "layer_types" in {field.name for field in dataclasses.fields(config)}  # Mamba's follow from other fields
    attends = ("full", "sliding", "indexed", "compressed", "hybrid")
    if kinds and own and not any(kind == "attention" or any(one in kind for one in attends) for kind in kinds):
        more["layer_types"] = [*kinds[:-1], "full_attention"]  # a hybrid whose few blocks would never attend
    return more


def _parts(config_class: type[PreTrainedConfig]) -> dict[str, type[PreTrainedConfig]]:
    """The classes of a composite configuration's parts; where any would do, the one that it has by default."""
    parts = dict(config_class.sub_configs)
    if any(part_class.__name__ == "AutoConfig" for part_class in parts.values()):
        default = config_class()
        parts = {part: type(getattr(default, part, None)) for part in parts}
    return {part: part_class for part, part_class in parts.items() if issubclass(part_class, PreTrainedConfig)}


def _model_class(family: str, config: PreTrainedConfig) -> type[PreTrainedModel]:
    for mapping in _HEADS:
        if family in mapping:
            name = mapping[family]
            return getattr(transformers, name if isinstance(name, str) else name[0])
    raise KeyError(family)
