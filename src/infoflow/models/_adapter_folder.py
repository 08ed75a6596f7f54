"""Folders that hold low-rank adapters alone, as `peft` writes them: read by merging them into the model they were
trained on."""

import warnings
from pathlib import Path

from safetensors import safe_open
from transformers import PreTrainedModel

from infoflow.foundation import UserError

from ._checks import read_object

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_WHOLE = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def is_adapter_folder(path: Path) -> bool:
    """Whether an adapter is all that a folder holds; some trainers put the base model's config.json beside it."""
    return (path / _CONFIG).is_file() and not any((path / name).is_file() for name in _WHOLE)


def base_of(folder: Path) -> str:
    """The model that an adapter was trained on, as its configuration names it: a folder (from here, or from the
    adapter's) or a name on the hub.

    Raises:
        UserError: It names none, or the adapter is of a kind that is not merged.
    """
    facts = read_object(folder / _CONFIG)
    kind, base = facts.get("peft_type"), facts.get("base_model_name_or_path")
    if kind != "LORA":
        raise UserError(
            f"The adapter in {folder} must be a LoRA, whose product is added to weights. Its adapter_config.json says "
            f"peft_type {kind if isinstance(kind, str) else 'of no name'}. Merge it with peft and save the whole model."
        )
    if not isinstance(base, str) or not base.strip():
        raise UserError(
            f"The adapter in {folder} does not say which model it belongs to (base_model_name_or_path in its "
            "adapter_config.json). Write the model's folder or hub name there."
        )
    beside = folder / base
    return str(beside) if not Path(base).expanduser().exists() and beside.is_dir() else base


def merged(base: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The model with the adapter's products added to its weights: W + s B A, of no more parameters than before.

    Raises:
        UserError: The folder has no safetensors, or its weights are of another model.
    """
    from peft import PeftModel, get_peft_model_state_dict

    if not (folder / _WEIGHTS).is_file():
        raise UserError(
            f"The adapter in {folder} must lie in {_WEIGHTS}. There is none; weights in .bin files are pickles, which "
            "infoflow does not open. Save the adapter as safetensors."
        )
    with safe_open(folder / _WEIGHTS, framework="pt") as file:
        held = set(file.keys())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of weights that are missing: told below
            adapted = PeftModel.from_pretrained(base, folder, torch_device="cpu")
        found = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    except (KeyError, ValueError, RuntimeError) as error:
        raise _of_another(folder, base, str(error).splitlines()[0]) from error
    if left := sorted(held ^ found):
        raise _of_another(folder, base, f"{left[0]} is in {'the file' if left[0] in held else 'the model'} alone")
    whole = adapted.merge_and_unload()
    assert isinstance(whole, PreTrainedModel)
    return whole


def _of_another(folder: Path, base: PreTrainedModel, why: str) -> UserError:
    return UserError(
        f"The adapter in {folder} does not fit the model that it names ({type(base).__name__}): {why}.\n"
        "Give the adapter of this model, or write the right one into its adapter_config.json."
    )
