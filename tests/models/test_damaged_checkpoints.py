"""Checkpoints that ask for what they may not, whose weights are not all there, or that a machine cannot read."""

import errno
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.integrations import hub_kernels

from infoflow.foundation import UserError, make_display, use_display
from infoflow.heads import prune
from infoflow.models import load_model, save_pruned

WEIGHTS = "model.safetensors"


@pytest.fixture
def checkpoint(build_module: Callable[[str], PreTrainedModel], tmp_path: Path) -> Path:
    build_module("bert").save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def rewrite(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def reweight(path: Path, change: Callable[[dict], None]) -> None:
    weights = load_file(path / WEIGHTS)
    change(weights)
    save_file(weights, path / WEIGHTS, {"format": "pt"})


def refusal(path: Path | str) -> str:
    with pytest.raises(UserError) as caught:
        load_model(path)
    return str(caught.value)


def test_layers_that_the_configuration_does_not_count_are_refused(checkpoint) -> None:
    rewrite(checkpoint / "config.json", num_hidden_layers=1)
    assert "would be ignored: bert.encoder.layer.1, bert.encoder.layer.2." in refusal(checkpoint)


def test_layers_that_the_checkpoint_lacks_are_refused(checkpoint) -> None:
    rewrite(checkpoint / "config.json", num_hidden_layers=5)
    assert "lacks the layers bert.encoder.layer.3, bert.encoder.layer.4 of BertForMaskedLM" in refusal(checkpoint)


def test_weights_that_have_no_place_are_told_of(checkpoint, capsys) -> None:
    reweight(checkpoint, lambda weights: weights.update({"bert.extra.weight": torch.zeros(3)}))
    with use_display(make_display("plain")):
        load_model(checkpoint)
    assert "1 weights of the checkpoint" in (told := capsys.readouterr().err)
    assert "are not used by BertForMaskedLM: bert.extra.weight" in told


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(checkpoint, value) -> None:
    name = "bert.encoder.layer.1.attention.self.query.weight"
    reweight(checkpoint, lambda weights: weights[name][0, :3].fill_(value))
    assert f"3 of 256 values of {name} are NaN or infinite" in refusal(checkpoint)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"architectures": ["pipeline"]}, "the class pipeline, which transformers .* has, but not as a model"),
        ({"architectures": ["AutoModel"]}, "but not as a model"),
        ({"architectures": ["BertConfig"]}, "but not as a model"),
        ({"architectures": ["__class__"]}, "but not as a model|does not have"),
        ({"architectures": [3]}, "the class 3, which transformers .* does not have"),
        ({"architectures": ["GPT2LMHeadModel"]}, "must name a class of its model_type, bert. Got GPT2LMHeadModel"),
        ({"dtype": "load"}, "must name a floating-point type of torch, such as .* Got load"),
        ({"dtype": "int8"}, "must name a floating-point type"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers .* in 1\.\.1,000\. Got 0"),
        ({"num_hidden_layers": -1}, r"num_hidden_layers .* Got -1"),
        ({"num_hidden_layers": 2.5}, r"num_hidden_layers .* Got 2\.5"),
        ({"num_hidden_layers": True}, r"num_hidden_layers .* Got true"),
        ({"num_hidden_layers": 10**9}, r"num_hidden_layers .* Got 1000000000"),
        ({"num_attention_heads": 0}, r"num_attention_heads .* Got 0"),
        ({"hidden_size": 10**9}, r"hidden_size .* Got 1000000000"),
        ({"vocab_size": 10**10}, r"vocab_size .*10,000,000\. Got 10000000000"),
        ({"layer_norm_eps": float("nan")}, "one of its numbers is NaN"),
        ({"model_type": True}, "this version of transformers does not know its model_type"),
        ({"is_decoder": 3}, "is_decoder in its config.json must be true or false"),
        ({"bos_token_id": {}}, "bos_token_id in its config.json must be a whole number or null"),
        ({"hidden_act": "nonsense"}, "cannot be read: .*nonsense"),
        ({"quantization_config": 5}, "cannot be read"),
    ],
)
def test_what_a_configuration_may_not_say(checkpoint, entries, message) -> None:
    rewrite(checkpoint / "config.json", **entries)
    told = refusal(checkpoint)
    assert re.search(message, told), told
    assert "NoneType" not in told
    assert "object" not in told


@pytest.mark.parametrize("content", [b"", b"[1]", b"null", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_configuration_that_is_none(checkpoint, content) -> None:
    (checkpoint / "config.json").write_bytes(content)
    assert "config.json" in refusal(checkpoint)


@pytest.mark.parametrize("file", ["../out.safetensors", "{root}/out.safetensors", "..\\out.safetensors", "sub/x", ""])
def test_an_index_may_not_point_out_of_its_folder(checkpoint, file) -> None:
    outside = checkpoint.parent / "out.safetensors"
    shutil.move(checkpoint / WEIGHTS, outside)
    names = dict.fromkeys(load_file(outside), file.format(root=checkpoint.parent))
    (checkpoint / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    assert "must name files in its own folder" in refusal(checkpoint)


@pytest.mark.parametrize("index", ["[1]", "{}", '{"weight_map": {"a": 3}}', "{"])
def test_a_damaged_index(checkpoint, index) -> None:
    (checkpoint / f"{WEIGHTS}.index.json").write_text(index)
    assert "index.json" in refusal(checkpoint)


class Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_pickle_is_neither_run_nor_advised(checkpoint, write) -> None:
    (checkpoint / WEIGHTS).unlink()
    write({"a": Payload(checkpoint / "ran")}, checkpoint / "pytorch_model.bin")
    told = refusal(checkpoint)
    assert "Use the model in the safetensors format" in told
    assert "weights_only" not in told
    assert not (checkpoint / "ran").exists()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "too little memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "too little memory"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many files are open"),
        (RuntimeError("can't start new thread"), "no more threads"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "too little memory"),
    ],
)
def test_what_the_machine_lacks_is_not_the_models_fault(checkpoint, monkeypatch, error, message) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(transformers.BertForMaskedLM, "from_pretrained", fail)
    told = refusal(checkpoint)
    assert message in told
    assert "Save or download it again" not in told


@pytest.mark.parametrize("source", ["", " ", "\t"])
def test_an_empty_name_is_no_folder(source, monkeypatch, checkpoint) -> None:
    monkeypatch.chdir(checkpoint)
    assert "Got an empty name" in refusal(source)
    assert load_model("./").name == "bert"


@pytest.mark.parametrize("asked", ["kernels-community/flash-mla", "flash_attention_2", "nonsense"])
def test_attention_code_from_elsewhere_is_not_loaded(checkpoint, capsys, asked) -> None:
    expected = load_model(checkpoint)
    rewrite(checkpoint / "config.json", attn_implementation=asked)
    with use_display(make_display("plain")):
        model = load_model(checkpoint)
    assert f"names the attention code {asked}" in capsys.readouterr().err
    assert model.module.config._attn_implementation == expected.module.config._attn_implementation
    assert not hub_kernels._kernels_enabled


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"class": "pipeline"}, "the class pipeline"),
        ({"class": None}, "the class nothing"),
        ({"kept": None}, "does not fit the model"),
        ({"kept": [{}]}, "does not fit the model"),
        ({"kept": [{"stack": "encoder", "kind": "self", "layer": 10**9, "heads": [0]}]}, "does not fit the model"),
        ({"format": 99}, "another version of infoflow"),
        ({"provenance": 3, "format": None}, "another version of infoflow, or is damaged"),
    ],
)
def test_a_damaged_pruned_model(build_module, tmp_path, entries, message) -> None:
    folder = save_pruned(prune(load_model(build_module("bert")), [("encoder", "self", 0, 1)]), tmp_path / "pruned")
    rewrite(folder / "pruned.json", **entries)
    assert message in refusal(folder)


def test_token_ids_beyond_the_vocabulary_are_refused(build_module) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0, "b": 999}, unk_token="a")))
    with pytest.raises(UserError, match="largest token id is 999, the model's 39"):
        load_model(build_module("bert"), tokenizer=tokenizer)


@pytest.mark.parametrize("method", ["bitsandbytes", "gptq"])
def test_quantised_weights_are_told_as_such(checkpoint: Path, method: str) -> None:
    rewrite(
        checkpoint / "config.json",
        quantization_config={"quant_method": method, "load_in_8bit": True, "bits": 4, "group_size": 32},
    )
    with pytest.raises(
        UserError, match=rf"are saved quantised \({method}\), and cannot be read here: .+ Install what is missing,"
    ):
        load_model(str(checkpoint))
