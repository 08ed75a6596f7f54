"""Tiny random models of every family. Imports of infoflow stay inside fixtures: the hook that checks it comes first."""

import copy
from collections.abc import Callable

import pytest
import torch
import transformers
from transformers import PreTrainedModel
from transformers.utils import logging

logging.set_verbosity_error()

PAD, VOCABULARY = 0, 40

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "pad_token_id": PAD,
}
_GROUPED = _SIZES | {"num_key_value_heads": 2, "head_dim": 6, "bos_token_id": 1, "eos_token_id": 2}  # 4 x 6 is not 16
_TRANSLATION = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 32,
    "pad_token_id": PAD,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
}
_FEWER = {"num_hidden_layers": 2}

# Two blocks attend to the keys and values of the first one; gemma3n also has four residual streams.
_SHARED = (
    _GROUPED
    | {"layer_types": ["full_attention"] * 3, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 4}
    | {"vocab_size_per_layer_input": VOCABULARY}
)
SHARING = ("gemma3n", "gemma4")

_FAMILIES: dict[str, tuple[str, str, dict]] = {
    "bert": ("BertForMaskedLM", "BertConfig", _SIZES),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", _SIZES),
    "xlm-roberta": ("XLMRobertaForMaskedLM", "XLMRobertaConfig", _SIZES),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {"vocab_size": VOCABULARY, "dim": 16, "n_layers": 3, "n_heads": 4, "hidden_dim": 24}
        | {"max_position_embeddings": 32},
    ),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", _SIZES | {"embedding_size": 8}),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", _SIZES | {"embedding_size": 8}),
    "modernbert": (
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        _SIZES
        | {"global_attn_every_n_layers": 2, "local_attention": 4, "bos_token_id": 1, "eos_token_id": 2}
        | {"cls_token_id": 1, "sep_token_id": 2},
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 32, "n_inner": 24}
        | {"bos_token_id": 1, "eos_token_id": 2, "scale_attn_by_inverse_layer_idx": True},
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _SIZES),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_dim": 24}
        | {"max_position_embeddings": 32, "pad_token_id": PAD, "word_embed_proj_dim": 8},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", _GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", _GROUPED | {"sliding_window": 4}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", _GROUPED | {"sliding_window": 4}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", _GROUPED | {"sliding_window": 4}),
    "gemma3n": ("Gemma3nForCausalLM", "Gemma3nTextConfig", _SHARED | {"intermediate_size": [24] * 3}),
    "gemma4": ("Gemma4ForCausalLM", "Gemma4TextConfig", _SHARED | {"global_head_dim": 6}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {name: _GROUPED[name] for name in _GROUPED if name != "head_dim"}),
    "marian": ("MarianMTModel", "MarianConfig", _TRANSLATION),
    "bart": ("BartForConditionalGeneration", "BartConfig", _TRANSLATION),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", _TRANSLATION),
    "m2m100": ("M2M100ForConditionalGeneration", "M2M100Config", _TRANSLATION),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3}
        | {"num_heads": 4, "feed_forward_proj": "gated-gelu", "decoder_start_token_id": PAD, "pad_token_id": PAD}
        | {"eos_token_id": 2},
    ),
}
FAMILIES = (*(name for name in _FAMILIES if name not in SHARING), "encoder-decoder")


def build(family: str) -> PreTrainedModel:
    """A model with weights large enough that attention is far from uniform and every norm and bias acts."""
    torch.manual_seed(0)
    if family == "encoder-decoder":
        module = _encoder_decoder()
    else:
        model_class, config_class, settings = _FAMILIES[family]
        module = getattr(transformers, model_class)(getattr(transformers, config_class)(**copy.deepcopy(settings)))
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:  # Marian computes its position table again when it is loaded
            continue
        deviation, mean = (0.4, 0.0) if parameter.dim() > 1 else (0.2, 0.5 if "norm" in name.lower() else 0.0)
        torch.nn.init.normal_(parameter, mean=mean, std=deviation)
    return module.eval()


def _encoder_decoder() -> PreTrainedModel:
    config = transformers.BertConfig(**_SIZES, is_decoder=True, add_cross_attention=True)
    module = transformers.EncoderDecoderModel(
        encoder=transformers.BertModel(transformers.BertConfig(**(_SIZES | _FEWER)), add_pooling_layer=False),
        decoder=transformers.BertLMHeadModel(config),
    )
    module.config.pad_token_id, module.config.decoder_start_token_id, module.config.eos_token_id = PAD, 1, 2
    return module


@pytest.fixture(scope="session")
def models():
    """`models(family)`: a loaded model, built once; `models(family, fresh=True)`: one to train or change."""
    from infoflow.models import Model, load_model

    cache: dict[str, Model] = {}

    def get(family: str, fresh: bool = False) -> Model:
        if fresh:
            return load_model(build(family))
        if family not in cache:
            cache[family] = load_model(build(family))
        return cache[family]

    return get


@pytest.fixture(scope="session")
def build_module() -> Callable[[str], PreTrainedModel]:
    return build


@pytest.fixture(params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture
def model(models, family):
    return models(family)


@pytest.fixture(params=(*FAMILIES, *SHARING))
def any_model(models, request):
    return models(request.param)


@pytest.fixture(params=["left", "right"])
def side(request) -> str:
    return request.param


@pytest.fixture(scope="session")
def rows() -> list[list[int]]:
    """Three sentences of token ids, unequal in length, without padding or special ids among them."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in (7, 4, 6)]


@pytest.fixture
def raw_inputs(model, rows, side):
    """A padded batch as a user of Hugging Face would write it, whatever the family makes of the padding."""
    from infoflow.models import pad_rows

    ids, mask = pad_rows(rows, model.pad_token_id, side)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model.task == "seq2seq":
        inputs["decoder_input_ids"] = ids.flip(1)[:, :5].clamp(min=3)
    return inputs


@pytest.fixture
def eager():
    """Put every configuration that a module reads on eager attention, by hand, inside a `with` block."""
    from contextlib import contextmanager

    @contextmanager
    def switch(module):
        # EncoderDecoderModel.set_attn_implementation misses the copies that its attention modules read.
        configs = {id(child.config): child.config for child in module.modules() if hasattr(child, "config")}
        saved = {key: config._attn_implementation for key, config in configs.items()}
        for config in configs.values():
            config._attn_implementation_internal = "eager"
        try:
            yield
        finally:
            for key, config in configs.items():
                config._attn_implementation_internal = saved[key]

    return switch
