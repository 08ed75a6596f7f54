"""Checks of a checkpoint's configuration before its weights are read."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from infoflow._transformers import PreTrainedConfig, PreTrainedModel, transformers
from infoflow.foundation import UserError, as_written, current_display, json_fault

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")  # as transformers names them
# Limits on a configuration's sizes, by entry name: beyond them, building the model would take forever.
_LIMITS = (
    (re.compile(r"(num_)?((hidden|encoder|decoder)_)?layers|n_layers?"), 1000),
    (re.compile(r"(num_|n_)?((encoder|decoder)_)?(attention_)?heads?"), 10_000),
    (re.compile(r"hidden_size|cell_size|d_model|n_embd|dim|intermediate_size|d_ff"), 1_000_000),
    (re.compile(r"vocab_size"), 10_000_000),
)
# Settings that affect the computation but that transformers 5 ignores: when each is set, and what it means.
_IGNORED: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "position_embedding_type",
        lambda value: isinstance(value, str) and value.startswith("relative_key"),
        "relative positions in its attention scores",
    ),
    ("pruned_heads", bool, "attention heads removed by transformers 4"),
    ("tie_encoder_decoder", bool, "one set of weights for encoder and decoder"),
)
_IGNORED_IN_BART = ("normalize_before", "add_final_layer_norm", "static_position_embeddings")
_OWN_ATTENTION = ("eager", "sdpa", "flex_attention")  # implemented by transformers itself


def check_folder(folder: Path) -> None:
    """Refuse a checkpoint whose configuration is invalid, or whose index points outside its folder."""
    entries = read_object(folder / "config.json")
    check_sizes(entries, folder)
    for name in _INDEXES:
        if (folder / name).is_file():
            check_index(folder / name)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_number)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not readable JSON: {json_fault(error)}. Save or download the model again."
        ) from None
    if not isinstance(value, dict):
        raise UserError(f"{path} must contain a JSON object. Save or download the model again.")
    return value


def _number(text: str) -> float:
    if text == "NaN":
        raise ValueError("one of its numbers is NaN")
    return float(text.replace("Infinity", "inf"))


def check_sizes(entries: Mapping[str, Any], home: Path | str) -> None:
    """Refuse implausible counts of layers, heads, units and tokens, and invalid precisions, also in nested configs."""
    for name, value in entries.items():
        if isinstance(value, dict) and name != "pruned":  # a pruned model's attention may have no head
            check_sizes(value, home)
        if name in ("dtype", "torch_dtype") and value not in (None, "auto") and not isinstance(value, dict):
            dtype_called(value, f"the config.json of {home}")
        limit = next((limit for pattern, limit in _LIMITS if pattern.fullmatch(name)), None)
        if limit is None or isinstance(value, list | dict | None):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
            raise UserError(
                f"{name} in the config.json of {home} must be a whole number in 1..{limit:,}. Got {_short(value)}. "
                "Correct it, or save or download the model again."
            )


def check_index(index: Path) -> None:
    """Check that the files of a sharded checkpoint are in the folder of its index."""
    files = read_object(index).get("weight_map")
    if not isinstance(files, dict) or not files or not all(isinstance(file, str) for file in files.values()):
        raise UserError(f"{index} must list the file of each weight in weight_map. Save or download it again.")
    for file in dict.fromkeys(files.values()):
        if file in ("", ".", "..") or re.search(r"[/\\:\0]", file):
            raise UserError(
                f"{index} must name files in its own folder. Got {_short(file)}, which is not read. "
                "Save or download it again."
            )


def model_class(name: object, home: Path | str) -> type[PreTrainedModel]:
    """The class of infoflow or transformers called `name`, which must be a model class."""
    from .modeling_own import OWN  # slow import

    if isinstance(name, str) and name in OWN:
        return OWN[name]
    found = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
    if isinstance(found, type) and issubclass(found, PreTrainedModel) and found is not PreTrainedModel:
        return found
    what = "does not have" if found is None else "has, but not as a model"
    raise UserError(
        f"The configuration in {home} names the class {_short(name)}, which transformers {transformers.__version__} "
        f"{what}. Models with custom code are not run; upgrade transformers if the family is newer."
    )


def check_family(family: type, config: PreTrainedConfig, home: Path | str) -> None:
    """Check that the class belongs to the configuration's family."""
    wanted = getattr(family, "config_class", None)
    if isinstance(wanted, type) and not isinstance(config, wanted):
        raise UserError(
            f"`architectures` in the config.json of {home} must name a class of its model_type, {config.model_type}. "
            f"Got {family.__name__}, which takes a {wanted.__name__}. Name the class that was saved."
        )


def check_features(config: PreTrainedConfig, home: Path | str) -> None:
    """Refuse a model that depends on settings that this version of transformers ignores, also in its parts."""
    parts = [config, *(getattr(config, name, None) for name in config.sub_configs)]
    for part in (part for part in parts if isinstance(part, PreTrainedConfig)):
        found = [(name, why) for name, is_set, why in _IGNORED if is_set(getattr(part, name, None))]
        if part.model_type == "bart":
            found += [(name, "another arrangement") for name in _IGNORED_IN_BART if getattr(part, name, None) is True]
        for name, why in found:
            raise UserError(
                f"The model in {home} was trained with {why} ({name} in its config.json is "
                f"{_short(getattr(part, name))}), which transformers {transformers.__version__} does not compute: its "
                "results would be those of another model. Use a model without this setting."
            )


def dtype_called(name: object, home: Path | str) -> torch.dtype:
    """The precision with that name."""
    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UserError(
            f"dtype in {home} must name a floating-point type of torch, such as float32 or bfloat16. "
            f"Got {_short(name)}. Save or download the model again."
        )
    return found


def without_kernels(config: PreTrainedConfig) -> None:
    """Use attention that transformers implements itself; other implementations are compiled code fetched from a hub."""
    from transformers.integrations import hub_kernels  # slow import

    hub_kernels._kernels_enabled = False  # works even if transformers was imported before infoflow
    parts = [config, *(getattr(config, name, None) for name in config.sub_configs)]
    for part in (part for part in parts if isinstance(part, PreTrainedConfig)):
        implementation = part._attn_implementation
        if implementation is not None and implementation not in _OWN_ATTENTION:
            current_display().note(
                f"The configuration names the attention code {_short(implementation)}, which is not part of "
                "transformers and is not loaded; the standard attention computes the same."
            )
            part._attn_implementation_internal = None
        if getattr(part, "_experts_implementation", None) is not None:
            part._experts_implementation_internal = None


def _short(value: object) -> str:
    text = value if isinstance(value, str) else as_written(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
