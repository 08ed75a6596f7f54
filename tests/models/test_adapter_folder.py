"""Folders of adapters that peft wrote: merged into their model when they are read."""

import json
from collections.abc import Callable
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from infoflow.foundation import UserError, make_display, use_display
from infoflow.models import load_model

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


@pytest.fixture(autouse=True)
def _quiet():
    with use_display(make_display("silent")):
        yield


@pytest.fixture
def adapted(build_module: Callable[[str], PreTrainedModel], tmp_path: Path) -> Path:
    """A base model and, beside it, a LoRA of it whose second factor is not zero."""
    build_module("bert").save_pretrained(tmp_path / "base")
    base = load_model(str(tmp_path / "base")).module
    config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=["query", "value"], init_lora_weights=False)
    torch.manual_seed(1)
    model = peft.get_peft_model(base, config)
    model.save_pretrained(tmp_path / "lora")
    return tmp_path / "lora"


def rewrite(folder: Path, **entries) -> None:
    path = folder / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def test_weights_are_those_with_the_product_added(adapted) -> None:
    before, after = (load_model(str(folder)).module.state_dict() for folder in (adapted.parent / "base", adapted))
    held, changed = load_file(adapted / WEIGHTS), set()
    for name, weight in before.items():
        key = f"base_model.model.{name.removesuffix('.weight')}.lora_"
        if f"{key}A.weight" in held:
            changed.add(name)
            expected = weight + 6 / 3 * held[f"{key}B.weight"] @ held[f"{key}A.weight"]
            assert not torch.equal(after[name], weight)
        else:
            expected = weight
        assert torch.allclose(after[name], expected, atol=1e-6), name
    assert len(changed) == len(held) / 2
    assert set(after) == set(before)


def test_the_model_is_called_as_the_adapter_is(adapted) -> None:
    assert load_model(str(adapted)).name == "lora"


@pytest.mark.parametrize("name", ["../base", "base"])
def test_its_base_is_looked_for_beside_it_too(name, adapted, monkeypatch, tmp_path_factory) -> None:
    rewrite(adapted, base_model_name_or_path=name)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert (
        load_model(str(adapted)).module.num_parameters()
        == load_model(str(adapted.parent / "base")).module.num_parameters()
    )


def test_a_folder_of_several_adapters_names_them(adapted) -> None:
    (adapted / "second").mkdir()
    for file in list(adapted.glob("adapter_*")):
        file.rename(adapted / "second" / file.name)
    with pytest.raises(UserError, match=r"no config\.json, but there are models in second: name one of these"):
        load_model(str(adapted))


def misnamed(folder: Path) -> None:
    rewrite(folder, base_model_name_or_path=str(folder.parent / "gone"))


def nameless(folder: Path) -> None:
    rewrite(folder, base_model_name_or_path=None)


def other_kind(folder: Path) -> None:
    rewrite(folder, peft_type="PREFIX_TUNING")


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")


def other_model(folder: Path) -> None:
    held = load_file(folder / WEIGHTS)
    save_file({name.replace("layer.0", "layer.7"): weight for name, weight in held.items()}, folder / WEIGHTS)


def other_width(folder: Path) -> None:
    held = load_file(folder / WEIGHTS)
    save_file({name: torch.cat([weight, weight], dim=-1) for name, weight in held.items()}, folder / WEIGHTS)


def itself(folder: Path) -> None:
    rewrite(folder, base_model_name_or_path=str(folder))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (misnamed, "No model folder at .*gone"),
        (nameless, "does not say which model it belongs to"),
        (other_kind, "must change weights, .+ peft_type PREFIX_TUNING, which prepends virtual"),
        (pickled, "are pickles, which infoflow does not open"),
        (other_model, "does not fit its base model"),
        (other_width, "does not fit its base model"),
        (itself, "belongs to another adapter"),
    ],
)
def test_what_cannot_be_merged_is_told(adapted, damage, message) -> None:
    damage(adapted)
    with pytest.raises(UserError, match=message):
        load_model(str(adapted))
