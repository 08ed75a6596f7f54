"""A folder of an adapter yields the outputs of the model that peft trained, whatever kind of adapter it is."""

import copy
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import PreTrainedModel

from infoflow.foundation import UserError, make_display, use_display
from infoflow.models import load_model

LoRA, IA3 = peft.LoraConfig, peft.IA3Config
RANDOM: dict[str, Any] = {"r": 3, "lora_alpha": 6, "init_lora_weights": False}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


@pytest.fixture(autouse=True)
def _quiet():
    with use_display(make_display("silent")):
        yield


def build(name: str, **settings: Any) -> PreTrainedModel:
    """A tiny model; its family stands before the head in the name of its class."""
    torch.manual_seed(0)
    if name.startswith("GPT2"):
        sizes: dict[str, Any] = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32, "pad_token_id": 0}
        config: Any = transformers.GPT2Config(vocab_size=40, bos_token_id=1, eos_token_id=2, **sizes)
    elif name.startswith("T5"):
        sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4}
        config = transformers.T5Config(vocab_size=40, decoder_start_token_id=0, **sizes)
    else:
        family = next(one for one in ("Bert", "Roberta", "Qwen2", "Llama") if name.startswith(one))
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
        sizes |= {} if name.startswith(("Bert", "Rob")) else {"num_key_value_heads": 2}
        sizes |= {"max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        config = getattr(transformers, f"{family}Config")(vocab_size=40, **(sizes | settings))
    module = getattr(transformers, name)(config)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.eval()


def outputs(module: torch.nn.Module) -> torch.Tensor:
    more = {"decoder_input_ids": IDS[:, :4]} if module.config.is_encoder_decoder else {}
    with torch.no_grad():
        found = module(input_ids=IDS, **more)
    return found["logits"] if "logits" in found else found[0]


def adapter(
    folder: Path, base: PreTrainedModel, config: peft.PeftConfig, saved: PreTrainedModel | None = None, **options: Any
) -> torch.Tensor:
    """Write an adapter, and its base model beside it; the outputs of the adapted model."""
    (saved or base).save_pretrained(folder / "base")
    base.name_or_path = str(folder / "base")
    torch.manual_seed(1)
    adapted = peft.get_peft_model(base, config).eval()
    for name, parameter in adapted.named_parameters():
        if parameter.requires_grad and "lora_" not in name:
            torch.nn.init.normal_(parameter, mean=1.0 if "ia3" in name else 0.0, std=0.3)
    adapted.save_pretrained(folder / "adapter", **options)
    return outputs(adapted.get_base_model())


def tied(name: str) -> PreTrainedModel:
    return build(name, tie_word_embeddings=True)


CASES: dict[str, Callable[[], tuple]] = {
    "decoder of a tied BERT": lambda: (build("BertForMaskedLM"), LoRA(target_modules=["query", "decoder"], **RANDOM)),
    "embeddings of a tied BERT": lambda: (build("BertForMaskedLM"), LoRA(target_modules=["word_embeddings"], **RANDOM)),
    "both ends of a tied BERT": lambda: (
        build("BertForMaskedLM"),
        LoRA(target_modules=["word_embeddings", "decoder"], **RANDOM),
    ),
    "all linear modules": lambda: (
        tied("Qwen2ForCausalLM"),
        LoRA(target_modules="all-linear", task_type="CAUSAL_LM", **RANDOM),
    ),
    "output matrix": lambda: (tied("Qwen2ForCausalLM"), LoRA(target_modules=["q_proj", "lm_head"], **RANDOM)),
    "output matrix, weights of the base left out": lambda: (
        tied("Qwen2ForCausalLM"),
        LoRA(target_modules=["lm_head"], **RANDOM),
        {"save_embedding_layers": False},
    ),
    "a trained output matrix": lambda: (
        tied("Qwen2ForCausalLM"),
        LoRA(target_modules=["q_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM", **RANDOM),
    ),
    "trained embeddings": lambda: (
        tied("LlamaForCausalLM"),
        LoRA(target_modules=["q_proj"], modules_to_save=["embed_tokens"], task_type="CAUSAL_LM", **RANDOM),
    ),
    "trained embeddings that stay tied": lambda: (
        tied("LlamaForCausalLM"),
        LoRA(target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True, **RANDOM),
    ),
    "trained tokens": lambda: (
        tied("Qwen2ForCausalLM"),
        LoRA(target_modules=["q_proj"], trainable_token_indices=[5, 7], task_type="CAUSAL_LM", **RANDOM),
    ),
    "trained tokens of a tied BERT": lambda: (
        build("BertForMaskedLM"),
        LoRA(target_modules=["query"], trainable_token_indices=[5, 7], **RANDOM),
    ),
    "trained tokens alone": lambda: (
        tied("Qwen2ForCausalLM"),
        peft.TrainableTokensConfig(token_indices=[5, 7], task_type="CAUSAL_LM", init_weights=False),
    ),
    "shared embeddings of T5": lambda: (
        build("T5ForConditionalGeneration"),
        LoRA(target_modules=["q", "v", "lm_head"], task_type="SEQ_2_SEQ_LM", **RANDOM),
    ),
    "Conv1D": lambda: (
        build("GPT2LMHeadModel"),
        LoRA(target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, task_type="CAUSAL_LM", **RANDOM),
    ),
    "embeddings of GPT-2": lambda: (build("GPT2LMHeadModel"), LoRA(target_modules=["wte"], **RANDOM)),
    "DoRA": lambda: (
        build("LlamaForCausalLM"),
        LoRA(target_modules=["q_proj", "down_proj"], use_dora=True, task_type="CAUSAL_LM", **RANDOM),
    ),
    "DoRA on Conv1D": lambda: (
        build("GPT2LMHeadModel"),
        LoRA(target_modules=["c_attn"], fan_in_fan_out=True, use_dora=True, **RANDOM),
    ),
    "rank-stabilised, with biases and ranks by layer": lambda: (
        build("BertForMaskedLM"),
        LoRA(
            target_modules=["query", "value"],
            use_rslora=True,
            bias="lora_only",
            rank_pattern={"layer.0.attention.self.query": 5},
            **RANDOM,
        ),
    ),
    "PiSSA": lambda: (build("LlamaForCausalLM"), LoRA(target_modules=["q_proj"], r=3, init_lora_weights="pissa")),
    "IA3": lambda: (
        build("BertForMaskedLM"),
        IA3(target_modules=["key", "value", "output.dense"], feedforward_modules=["output.dense"]),
    ),
    "IA3 on Conv1D": lambda: (
        build("GPT2LMHeadModel"),
        IA3(target_modules=["c_attn", "mlp.c_proj"], feedforward_modules=["mlp.c_proj"], task_type="CAUSAL_LM"),
    ),
    "VeRA": lambda: (
        build("BertForMaskedLM"),
        peft.VeraConfig(target_modules=["query"], r=4, init_weights=False, save_projection=False),
    ),
    "OFT": lambda: (
        build("BertForMaskedLM"),
        peft.OFTConfig(target_modules=["query"], r=0, oft_block_size=4, init_weights=False),
    ),
    "AdaLoRA": lambda: (
        build("BertForMaskedLM"),
        peft.AdaLoraConfig(target_modules=["query"], init_r=4, total_step=9, init_lora_weights=False),
    ),
    "LoHa": lambda: (build("BertForMaskedLM"), peft.LoHaConfig(target_modules=["query"], r=3, init_weights=False)),
    "norms": lambda: (build("LlamaForCausalLM"), peft.LNTuningConfig(task_type="CAUSAL_LM")),
    "a bare model": lambda: (
        build("BertModel"),
        LoRA(target_modules=["query"], task_type="FEATURE_EXTRACTION", **RANDOM),
    ),
    "a model with two labels more": lambda: (
        build("BertForSequenceClassification", num_labels=4),
        LoRA(target_modules=["query"], task_type="SEQ_CLS", **RANDOM),
    ),
    "tagging": lambda: (
        build("RobertaForTokenClassification", num_labels=5),
        LoRA(target_modules=["query"], task_type="TOKEN_CLS", **RANDOM),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_merged_equals_unmerged(case, tmp_path) -> None:
    base, config, *options = CASES[case]()
    expected = adapter(tmp_path, base, config, **(options[0] if options else {}))
    loaded = load_model(tmp_path / "adapter")
    assert torch.allclose(outputs(loaded.module), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    loaded.module.save_pretrained(tmp_path / "whole")
    again = outputs(load_model(tmp_path / "whole").module)
    assert torch.allclose(again, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("trained", "saved", "targets", "task"),
    [
        ("BertModel", "BertForMaskedLM", ["query"], None),
        ("BertModel", "BertForMaskedLM", ["query"], "FEATURE_EXTRACTION"),
        ("RobertaForSequenceClassification", "RobertaForMaskedLM", ["query"], "SEQ_CLS"),
        ("GPT2ForSequenceClassification", "GPT2LMHeadModel", ["c_attn"], "SEQ_CLS"),
        ("LlamaForSequenceClassification", "LlamaForCausalLM", ["q_proj"], "SEQ_CLS"),
        ("BertForTokenClassification", "BertForMaskedLM", ["query"], "TOKEN_CLS"),
        ("BertForMaskedLM", "BertForPreTraining", ["query", "decoder"], None),
    ],
)
def test_the_adapted_class_may_differ_from_the_saved_one(trained, saved, targets, task, tmp_path) -> None:
    whole = build(saved)
    settings = {"num_labels": 5} if task in ("SEQ_CLS", "TOKEN_CLS") else {}
    whole.save_pretrained(tmp_path / "start")
    base = getattr(transformers, trained).from_pretrained(tmp_path / "start", **settings).eval()
    expected = adapter(tmp_path, base, LoRA(target_modules=targets, task_type=task, **RANDOM), saved=whole)
    loaded = load_model(tmp_path / "adapter").module
    assert type(loaded).__name__ == trained
    found = outputs(loaded)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["BertForMaskedLM", "Qwen2ForCausalLM", "GPT2LMHeadModel"])
@pytest.mark.parametrize("options", [{}, {"modules_to_save": True}, {"trainable_token_indices": [5, 41]}])
def test_tokens_may_have_been_added(name, options, tmp_path) -> None:
    whole = tied(name)
    base = copy.deepcopy(whole)
    base.resize_token_embeddings(43)
    targets = {"B": ["query"], "Q": ["q_proj"], "G": ["c_attn"]}[name[0]]
    ends = {"B": ["word_embeddings"], "Q": ["embed_tokens", "lm_head"], "G": ["wte"]}[name[0]]
    config = LoRA(
        target_modules=targets, **RANDOM, **({"modules_to_save": ends} if "modules_to_save" in options else options)
    )
    expected = adapter(tmp_path, base, config, saved=whole)
    found = outputs(load_model(tmp_path / "adapter").module)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.filterwarnings("ignore")
def test_added_tokens_whose_embeddings_were_not_saved_are_the_reason(tmp_path) -> None:
    whole = build("BertForMaskedLM")
    base = copy.deepcopy(whole)
    base.resize_token_embeddings(43)
    adapter(tmp_path, base, LoRA(target_modules=["query"], **RANDOM), saved=whole, save_embedding_layers=False)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(43)}, unk_token="w0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / "adapter")
    with pytest.raises(UserError, match=r"id is 42, the model's 39\. Tokens were added .* were not saved with it"):
        load_model(tmp_path / "adapter")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (lambda: peft.PolyConfig(target_modules=["query"], r=4, n_tasks=2, n_skills=2), "task_ids should not be None"),
        (lambda: LoRA(target_modules=["query"], **RANDOM), "are NaN or infinite"),
    ],
)
def test_an_adapter_that_computes_nothing_is_named_itself(config, reason, tmp_path) -> None:
    base = build("BertForMaskedLM")
    base.save_pretrained(tmp_path / "base")
    base.name_or_path = str(tmp_path / "base")
    adapted = peft.get_peft_model(base, config())
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.constant_(parameter, float("nan"))
    adapted.save_pretrained(tmp_path / "adapter")
    with pytest.raises(UserError, match=rf"{tmp_path / 'adapter'} .*{reason}"):
        load_model(tmp_path / "adapter")


@pytest.mark.filterwarnings("ignore")
def test_what_neither_the_adapter_nor_its_base_holds_is_named(tmp_path) -> None:
    whole = build("BertForMaskedLM")
    whole.save_pretrained(tmp_path / "start")
    base = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "start").eval()
    adapter(tmp_path, base, LoRA(target_modules=["query"], task_type="SEQ_CLS", **RANDOM), saved=whole)
    with pytest.raises(UserError, match=r"lacks 2 weights of BertForSequenceClassification, .*: bert\.pooler\.dense"):
        load_model(tmp_path / "adapter")


@pytest.mark.filterwarnings("ignore")
def test_an_adapted_instance_is_merged_by_its_owner() -> None:
    adapted = peft.get_peft_model(build("BertForMaskedLM"), LoRA(target_modules=["query"], **RANDOM))
    load = inspect.unwrap(load_model)  # in tests beartype would speak first
    for given in (adapted, adapted.get_base_model()):
        with pytest.raises(UserError, match=r"merge_and_unload\(\)"):
            load(given)
