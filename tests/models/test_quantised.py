"""Quantised weights: made while loading, saved like that, or refused before anything is read."""

import json
from pathlib import Path

import pytest
import torch
from support.tiny_heads import llama, tokenizer_of, trees

from infoflow.cli import run
from infoflow.flow import measure
from infoflow.foundation import UserError, make_display, use_display
from infoflow.heads import Importance, prune, relevance
from infoflow.models import load_model, weight_of
from infoflow.studies import untrained

CORPUS = trees(20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    llama(CORPUS).module.save_pretrained(path)
    return path


@pytest.fixture(autouse=True)
def _quiet():
    with use_display(make_display("silent")):
        yield


def _configured(folder: Path, to: Path, settings: dict[str, object]) -> Path:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    to.mkdir()
    (to / "config.json").write_text(json.dumps(config | {"quantization_config": settings}), encoding="utf-8")
    return to


def test_packages_are_missed_before_anything_is_read(monkeypatch, capsys) -> None:
    for place in ("cli._options", "models._read"):
        monkeypatch.setattr(f"infoflow.{place}.find_spec", lambda name: None)
    for arguments in (["--quantize", "int8"], ["--quantize=int8"]):
        assert run(["analyze", "no-such-model", *arguments]) == 2
        assert "--quantize int8 needs torchao. Install it" in capsys.readouterr().err
    with pytest.raises(UserError, match="--quantize int8 needs torchao"):
        load_model("owner/model", quantize="int8")


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_quantised_or_read_is_refused(monkeypatch, folder: Path, tmp_path) -> None:
    monkeypatch.setattr("infoflow.models._read.find_spec", lambda name: True)
    with pytest.raises(UserError, match=r"quantize must be one of int8\. Got 8bit"):
        load_model(folder, quantize="8bit")
    four = _configured(folder, tmp_path / "four", {"quant_method": "bitsandbytes", "load_in_4bit": True})
    with pytest.raises(UserError, match="4-bit weights of bitsandbytes need a GPU"):
        load_model(four, device="cpu")
    with pytest.raises(UserError, match=r"Got a model instance\. Leave it out"):
        load_model(llama(CORPUS).module, quantize="int8")
    (tmp_path / "x.gguf").write_bytes(b"")
    with pytest.raises(UserError, match=r"x\.gguf is a \.gguf file"):
        load_model(tmp_path / "x.gguf", quantize="int8")
    for method in ("gptq", "awq"):
        saved = _configured(folder, tmp_path / method, {"quant_method": method, "bits": 4, "group_size": 128})
        with pytest.raises(UserError, match=rf"saved quantised \({method}\).*leave it out"):
            load_model(saved, quantize="int8")
        with pytest.raises(UserError, match=rf"saved quantised \({method}\), and cannot be read here.*Install"):
            load_model(saved)


@pytest.mark.filterwarnings("ignore")
def test_int8_is_the_model_with_rounded_weights(folder: Path) -> None:
    pytest.importorskip("torchao")
    whole, rounded = (load_model(folder, tokenizer_of(CORPUS)) for _ in range(2))
    quantised = load_model(folder, tokenizer_of(CORPUS), quantize="int8")
    modules = dict(quantised.module.named_modules())
    assert quantised.digest not in (whole.digest, load_model(folder, tokenizer_of(CORPUS), dtype=torch.bfloat16).digest)
    with torch.no_grad():
        changed = 0
        for name, module in rounded.module.named_modules():
            if isinstance(module, torch.nn.Linear):
                weight = weight_of(modules[name])
                changed += not torch.equal(weight, module.weight)
                module.weight.copy_(weight)
    assert changed == 14  # seven in each of two layers
    tables = [measure(model, CORPUS, [Importance(sentences=8)])["head_importance"] for model in (rounded, quantised)]
    assert tables[1]["value"].to_numpy() == pytest.approx(tables[0]["value"].to_numpy(), rel=1e-3)
    with pytest.raises(UserError, match=r"Removing heads needs a copy.*they are quantised \(torchao\)"):
        prune(quantised, [("decoder", "self", 0, 0)])
    with pytest.raises(UserError, match="This method needs unquantised weights"):
        relevance(quantised, CORPUS[0].text, method="alti")
    assert untrained(quantised, 0).digest == untrained(whole, 0).digest
