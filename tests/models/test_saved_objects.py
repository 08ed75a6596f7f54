"""A folder or file yields the outputs of the model that was saved, or is refused with the true reason."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from infoflow.foundation import UserError, make_display, use_display
from infoflow.models import load_model, readout, sequence_losses

IDS = torch.tensor([[5, 6, 7, 8, 9]])
SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size",), 40),
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "emb_dim", "dim", "embedding_size", "word_embed_proj_dim"), 16
    ),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "head_dim", "d_kv", "rotary_dim"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "d_inner", "n_inner", "hidden_dim", "dff"), 24),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 24),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 32),
    "num_key_value_heads": 2,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "sliding_window": 8,
    "local_attention": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
FAMILIES = (
    *("albert", "bert", "big_bird", "camembert", "deberta-v2", "electra", "esm", "modernbert", "mpnet", "rembert"),
    *("roformer", "bloom", "codegen", "cohere", "falcon", "gemma", "gpt_bigcode", "gptj", "mixtral", "mpt", "olmo2"),
    *("opt", "phi", "qwen2", "stablelm", "xglm", "blenderbot", "led", "mt5", "pegasus", "plbart"),
)


@pytest.fixture(autouse=True)
def _quiet():
    with use_display(make_display("silent")):
        yield


def build(family: str, **settings: Any) -> PreTrainedModel:
    config_class = transformers.CONFIG_MAPPING[family]
    known = set(config_class.__dataclass_fields__) - set(config_class.attribute_map)
    config = config_class(**{name: value for name, value in SIZES.items() if name in known}, **settings)
    torch.manual_seed(0)
    for auto in ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"):
        if type(config) in getattr(transformers, auto)._model_mapping:
            return getattr(transformers, auto).from_config(config).eval()
    raise AssertionError(family)


def outputs(module: torch.nn.Module) -> torch.Tensor:
    more = {"decoder_input_ids": IDS[:, :3]} if module.config.is_encoder_decoder else {}
    with torch.no_grad():
        found = module(input_ids=IDS, **more)
    return found["logits"] if "logits" in found else found[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_comes_back_as_it_was_saved_or_is_refused(family, tmp_path) -> None:
    module = build(family)
    module.save_pretrained(tmp_path)
    expected = outputs(module)
    loaded = load_model(tmp_path).module
    assert type(loaded) is type(module)
    assert torch.allclose(outputs(loaded), expected, rtol=1e-5, atol=1e-6)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    lost = next(name for name in sorted(weights) if ("layer" in name or ".1." in name) and name.endswith("weight"))
    save_file({name: weight for name, weight in weights.items() if name != lost}, path, {"format": "pt"})
    with pytest.raises(
        UserError, match=r"lacks 1 weights .* which would be random|of its experts are missing"
    ) as caught:
        load_model(tmp_path)
    assert lost.rsplit(".", 2)[-2] in str(caught.value) or family == "mixtral"


# -- weights that do not fit


def _change(path: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(path / "model.safetensors")
    change(weights)
    save_file(weights, path / "model.safetensors", {"format": "pt"})


def _configure(path: Path, **entries: Any) -> None:
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def _without_shard(path: Path) -> None:
    transformers.AutoModelForMaskedLM.from_pretrained(path).save_pretrained(path, max_shard_size="10KB")
    (path / "model.safetensors").unlink()
    min(path.glob("model-*.safetensors")).unlink()


def _shard_without_weights(path: Path) -> None:
    transformers.AutoModelForMaskedLM.from_pretrained(path).save_pretrained(path, max_shard_size="10KB")
    (path / "model.safetensors").unlink()
    index = path / "model.safetensors.index.json"
    facts = json.loads(index.read_text())
    facts["weight_map"].pop("bert.encoder.layer.1.output.dense.weight")
    index.write_text(json.dumps(facts))
    for shard in path.glob("model-*.safetensors"):
        weights = load_file(shard)
        weights.pop("bert.encoder.layer.1.output.dense.weight", None)
        save_file(weights, shard, {"format": "pt"})


def _half_a_bin(path: Path) -> None:
    weights = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    torch.save({name: one for name, one in weights.items() if "layer.1.output" not in name}, path / "pytorch_model.bin")


QUERY = "bert.encoder.layer.1.attention.self.query"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_without_shard, "cannot be read: .*model-00001"),
        (_shard_without_weights, r"lacks 1 weights .*: bert\.encoder\.layer\.1\.output\.dense\.weight"),
        (_half_a_bin, r"lacks 4 weights .*: bert\.encoder\.layer\.1\.output\.LayerNorm\.bias"),
        (
            lambda path: _change(path, lambda held: held.update({f"{QUERY}.weight": torch.zeros(8, 16)})),
            r"query\.weight is 8 x 16, but must be 16 x 16\. Correct",
        ),
        (lambda path: _configure(path, intermediate_size=20), r"is 24, but must be 20 \(and 5 more weights\)"),
        (lambda path: _configure(path, vocab_size=30), r"is 40 x 16, but must be 30 x 16"),
        (
            lambda path: _change(path, lambda held: held.update({f"{QUERY}_norm.weight": torch.zeros(16)})),
            r"contains weights of layers that BertForMaskedLM, .* does not have.*query_norm",
        ),
        (lambda path: _configure(path, position_embedding_type="relative_key"), "trained with relative positions in"),
        (lambda path: _configure(path, position_embedding_type="relative_key_query"), "position_embedding_type in its"),
        (lambda path: _configure(path, pruned_heads={"0": [1]}), r"attention heads removed by transformers 4"),
    ],
)
def test_what_would_be_another_model_is_refused(damage, reason, tmp_path) -> None:
    build("bert").save_pretrained(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=reason):
        load_model(tmp_path)


def test_biases_that_the_configuration_leaves_out_are_refused(tmp_path) -> None:
    build("llama", attention_bias=True).save_pretrained(tmp_path)
    _configure(tmp_path, attention_bias=False)
    with pytest.raises(UserError, match=r"contains weights of layers .*self_attn\.k_proj\.bias"):
        load_model(tmp_path)


def test_buffers_of_older_versions_are_no_weights(tmp_path) -> None:
    module = build("gpt2")
    module.save_pretrained(tmp_path)
    old = {"transformer.h.0.attn.bias": torch.ones(1, 1, 32, 32), "transformer.h.0.attn.masked_bias": torch.zeros(1)}
    _change(tmp_path, lambda held: held.update(old))
    assert torch.equal(outputs(load_model(tmp_path).module), outputs(module))


def test_a_classifier_without_its_pooler_is_refused(tmp_path) -> None:
    transformers.BertForSequenceClassification(build("bert").config).save_pretrained(tmp_path)
    _change(tmp_path, lambda held: held.pop("bert.pooler.dense.weight"))
    with pytest.raises(UserError, match=r"lacks 1 weights .*bert\.pooler\.dense\.weight"):
        load_model(tmp_path)


# -- GGUF


def _gguf(path: Path, module: PreTrainedModel, kept: Callable[[str], bool], **facts: Any) -> None:
    """A file as llama.cpp writes it, with other metadata where `facts` says so."""
    gguf = pytest.importorskip("gguf")
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    inner = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    inner |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    inner |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names |= {f"model.layers.{i}.{one}": f"blk.{i}.{other}" for i in range(2) for one, other in inner.items()}
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(2)
    writer.add_context_length(32)
    writer.add_embedding_length(16)
    writer.add_feed_forward_length(24)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(40)
    for name, value in facts.items():
        kinds = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
        kinds[type(value)](name, value)
    for name, value in module.state_dict().items():
        place, _, leaf = name.rpartition(".")
        if kept(f"{names[place]}.{leaf}"):
            writer.add_tensor(f"{names[place]}.{leaf}", np.ascontiguousarray(value.numpy()))
    if facts.get("extra"):
        writer.add_tensor("rope_freqs.weight", np.ones(2, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def qwen() -> PreTrainedModel:
    return build("qwen2", tie_word_embeddings=False, rms_norm_eps=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_whole_gguf_file_is_the_model(qwen, tmp_path) -> None:
    _gguf(tmp_path / "whole.gguf", qwen, lambda name: True)
    loaded = load_model(tmp_path / "whole.gguf", tokenizer=_words(40))
    assert torch.allclose(outputs(loaded.module), outputs(qwen), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kept", "facts", "reason"),
    [
        (lambda name: not name.startswith("blk.1."), {}, r"lacks 12 tensors of qwen2, which would be random: blk\.1\."),
        (lambda name: name != "blk.1.attn_q.bias", {}, r"lacks 1 tensors of qwen2, .*: blk\.1\.attn_q\.bias\."),
        (lambda name: name != "token_embd.weight", {}, r"lacks 1 tensors of qwen2, .*: token_embd\.weight\."),
        (lambda name: True, {"split.count": 3, "split.no": 0}, "is part 1 of 3 of a split model"),
        (lambda name: True, {"qwen2.rope.scaling.type": "yarn"}, r"scales its rotary positions \(yarn\)"),
        (lambda name: True, {"extra": 1}, r"holds 1 tensors that transformers does not read .*: rope_freqs\.weight"),
    ],
)
def test_a_gguf_file_that_would_be_another_model_is_refused(qwen, kept, facts, reason, tmp_path) -> None:
    _gguf(tmp_path / "part.gguf", qwen, kept, **facts)
    with pytest.raises(UserError, match=reason):
        load_model(tmp_path / "part.gguf", tokenizer=_words(40))


SPECIAL_FIRST = ["<unk>", "<s>", "</s>", "<|endoftext|>"]
SENTENCEPIECE = {
    "model": "llama",
    "tokens": [*SPECIAL_FIRST, *"▁the", "▁t", "he", "▁the", "the", *(f"w{i}" for i in range(28))],
    "scores": [-float(i) for i in range(40)],
    "token_type": [2, 3, 3, 3, *[1] * 36],
}
BYTES = {
    "model": "gpt2",
    "pre": "llama-bpe",
    "tokens": [*SPECIAL_FIRST, *"Ġthe", "he", "the", *(f"w{i}" for i in range(30))],
    "merges": ["h e", "t he"],
    "token_type": [1, 3, 3, 3, *[1] * 36],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (SENTENCEPIECE, ["<s>", "▁the"]),
        (SENTENCEPIECE | {"add_space_prefix": False}, ["<s>", "the"]),
        (SENTENCEPIECE | {"add_space_prefix": False, "add_bos_token": False}, ["the"]),
        (BYTES, ["<s>", "the"]),
        (BYTES | {"add_bos_token": False}, ["the"]),
        (BYTES | {"pre": "qwen2"}, ["the"]),
    ],
)
def test_a_gguf_file_yields_the_tokens_that_it_asks_for(qwen, facts, expected, tmp_path) -> None:
    facts = {f"tokenizer.ggml.{name}": value for name, value in facts.items()}
    ids = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0}
    _gguf(tmp_path / "words.gguf", qwen, lambda name: True, **facts, **ids)
    tokenizer = load_model(tmp_path / "words.gguf").require_tokenizer()
    found = tokenizer("the")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(found) == expected
    assert tokenizer.decode(found, skip_special_tokens=True) == "the"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("renamed", "reason"),
    [
        (lambda held: {f"module.{name}": value for name, value in held.items()}, "called module.lm_head.weight"),
        (
            lambda held: {"epoch": torch.ones(1), "step": torch.ones(1)},
            r"called epoch, step\. If a wrapper or a trainer",
        ),
        (lambda held: held | {"lm_head.bias": torch.ones(40)}, r"does not have, .*: lm_head\.bias\."),
    ],
)
def test_weights_of_other_names_are_refused(qwen, renamed, reason, tmp_path) -> None:
    qwen.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    save_file(renamed(load_file(path)), path, metadata={"format": "pt"})
    with pytest.raises(UserError, match=reason):
        load_model(tmp_path)


@pytest.mark.parametrize("safe", [True, False])
def test_a_missing_shard_is_named(qwen, safe, tmp_path) -> None:
    qwen.save_pretrained(tmp_path, max_shard_size="5KB")
    lost = min(tmp_path.glob("model-*.safetensors"))
    if not safe:
        index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index).replace(".safetensors", ".bin"))
        for file in tmp_path.glob("model*.safetensors*"):
            if file.suffix == ".safetensors":
                torch.save(load_file(file), file.with_suffix(".bin"))
            file.unlink()
        lost = lost.with_suffix(".bin")
    lost.unlink()
    with pytest.raises(UserError, match=rf"cannot be read: its file {lost.name} is missing\."):
        load_model(tmp_path)


def _words(size: int) -> transformers.PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models

    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    )


# -- heads, devices


def test_models_of_speech_and_pixels_predict_their_tokens() -> None:
    settings: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4, "n_inner": 24}
    clvp = transformers.ClvpDecoderConfig(
        vocab_size=40, hidden_size=16, max_text_tokens=20, max_position_embeddings=32, num_mel_attn_blocks=1, **settings
    )
    pixels = transformers.ImageGPTConfig(vocab_size=41, n_positions=32, n_embd=16, n_layer=2, n_head=4)
    for module in (transformers.ClvpForCausalLM(clvp), transformers.ImageGPTForCausalImageModeling(pixels)):
        model = load_model(module.eval())
        assert model.task == "causal-lm"
        expected = torch.nn.functional.cross_entropy(outputs(module)[0, :-1], IDS[0, 1:])
        assert sequence_losses(model, IDS).mean == pytest.approx(float(expected), rel=1e-5)
        readout(model)
    with pytest.raises(UserError, match=r"among the 40 that the model predicts\. Got the id 40"):
        sequence_losses(model, torch.tensor([[5, 40]]))


@pytest.mark.filterwarnings("ignore")
def test_a_dispatched_model_stays_where_it_is(tmp_path) -> None:
    accelerate = pytest.importorskip("accelerate")
    expected = outputs(build("qwen2"))
    for placed in (
        accelerate.dispatch_model(build("qwen2"), {"": "cpu"}, force_hooks=True),
        accelerate.cpu_offload(build("qwen2"), torch.device("cpu")),
        accelerate.disk_offload(build("qwen2"), tmp_path, torch.device("cpu")),
    ):
        assert torch.equal(outputs(load_model(placed).module), expected)


def test_target_tokenizers_come_from_their_own_files(build_module, tmp_path) -> None:
    """The folder's second tokenizer is read as the first is."""
    build_module("encoder-decoder").save_pretrained(tmp_path)
    own = _words(40)
    for folder in (tmp_path, tmp_path / "target_tokenizer"):
        own.save_pretrained(folder)
    shutil.copy(tmp_path / "config.json", tmp_path / "target_tokenizer" / "config.json")
    _configure(tmp_path / "target_tokenizer", model_type="qwen2")
    loaded = load_model(tmp_path)
    assert loaded.target_tokenizer.get_vocab() == loaded.tokenizer.get_vocab() == own.get_vocab()
    assert re.fullmatch("w7", loaded.target_tokenizer.tokenize("w7")[0])
