"""What a checkpoint may ask for, and whether its weights are all there: looked at before and after it is read."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.integrations import hub_kernels
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME

from infoflow.foundation import UserError, as_written, current_display, json_fault

from ._own import OWN

_INDEXES = (SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME)
# Sizes that a configuration may have, by what its entries are called: beyond them building the model takes for ever.
_LIMITS = (
    (re.compile(r"(num_)?((hidden|encoder|decoder)_)?layers|n_layers?"), 1000),
    (re.compile(r"(num_|n_)?((encoder|decoder)_)?(attention_)?heads?"), 10_000),
    (re.compile(r"hidden_size|cell_size|d_model|n_embd|dim|intermediate_size|d_ff"), 1_000_000),
    (re.compile(r"vocab_size"), 10_000_000),
)
_OWN_ATTENTION = ("eager", "sdpa", "flex_attention")  # what transformers itself computes


def check_folder(folder: Path) -> None:
    """Refuse a checkpoint whose configuration is none, or whose index points out of its folder.

    Raises:
        UserError: One of these.
    """
    entries = read_object(folder / "config.json")
    check_sizes(entries, folder)
    for name in _INDEXES:
        if (folder / name).is_file():
            check_index(folder / name)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        UserError: It holds none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_number)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not readable JSON: {json_fault(error)}. Save or download the model again."
        ) from None
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a JSON object with names and values. Save or download the model again.")
    return value


def _number(text: str) -> float:
    if text == "NaN":
        raise ValueError("one of its numbers is NaN")
    return float(text.replace("Infinity", "inf"))


def check_sizes(entries: Mapping[str, Any], home: Path | str) -> None:
    """Refuse counts of layers, heads, units and tokens that no model has, and precisions that are none; parts too.

    Raises:
        UserError: One is no whole number of at least 1, or beyond its limit, or no floating-point type.
    """
    for name, value in entries.items():
        if isinstance(value, dict):
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
    """The files of a sharded checkpoint lie beside its index.

    Raises:
        UserError: The index is damaged, or names a file elsewhere.
    """
    files = read_object(index).get("weight_map")
    if not isinstance(files, dict) or not files or not all(isinstance(file, str) for file in files.values()):
        raise UserError(f"{index} must say in weight_map which file holds each weight. Save or download it again.")
    for file in dict.fromkeys(files.values()):
        if file in ("", ".", "..") or re.search(r"[/\\:\0]", file):
            raise UserError(
                f"{index} must name files of its own folder. It names {_short(file)}: such a checkpoint is not read. "
                "Save or download it again."
            )


def model_class(name: object, home: Path | str) -> type[PreTrainedModel]:
    """The class of infoflow or of transformers called `name`, which must be one of a model.

    Raises:
        UserError: It is none.
    """
    if isinstance(name, str) and name in OWN:
        return OWN[name]
    found = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
    if isinstance(found, type) and issubclass(found, PreTrainedModel) and found is not PreTrainedModel:
        return found
    what = "does not have" if found is None else "has, but not as a model"
    raise UserError(
        f"The configuration in {home} asks for the class {_short(name)}, which transformers {transformers.__version__} "
        f"{what}. Models with their own code are not run; upgrade transformers if the family is newer than it."
    )


def check_family(family: type, config: PreTrainedConfig, home: Path | str) -> None:
    """The class is one of the configuration's family.

    Raises:
        UserError: It is of another one.
    """
    wanted = getattr(family, "config_class", None)
    if isinstance(wanted, type) and not isinstance(config, wanted):
        raise UserError(
            f"`architectures` in the config.json of {home} must name a class of its model_type, {config.model_type}. "
            f"Got {family.__name__}, which takes a {wanted.__name__}. Write the class that was saved."
        )


def dtype_called(name: object, home: Path | str) -> torch.dtype:
    """The precision of that name.

    Raises:
        UserError: There is none.
    """
    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UserError(
            f"dtype in {home} must name a floating-point type of torch, such as float32 or bfloat16. "
            f"Got {_short(name)}. Save or download the model again."
        )
    return found


def without_kernels(config: PreTrainedConfig) -> None:
    """Ask for attention that transformers computes itself: others would be compiled code fetched from a hub."""
    hub_kernels._kernels_enabled = False  # also where transformers was imported before infoflow
    parts = [config, *(getattr(config, name, None) for name in config.sub_configs)]
    for part in (part for part in parts if isinstance(part, PreTrainedConfig)):
        asked = part._attn_implementation
        if asked is not None and asked not in _OWN_ATTENTION:
            current_display().note(
                f"The configuration asks for the attention code {_short(asked)}, which is not part of transformers "
                "and is not loaded; the standard attention computes the same."
            )
            part._attn_implementation_internal = None
        if getattr(part, "_experts_implementation", None) is not None:
            part._experts_implementation_internal = None


def check_missing(model: PreTrainedModel, missing: set[str], home: Path | str) -> None:
    """Refuse weights that the checkpoint lacks: they would be random.

    Raises:
        UserError: There are some.
    """
    if not missing:
        return
    layers = whole_layers(missing, {name for name, _ in model.named_parameters()} - missing)
    what = f"the layers {_listed(layers)}" if layers else f"{len(missing)} weights"
    advice = "number of layers in its config.json" if layers else "`architectures` in its config.json"
    raise UserError(
        f"The checkpoint {home} lacks {what} of {type(model).__name__}, which would be random: {_listed(missing)}. "
        f"Correct the {advice}, so that it says what was saved."
    )


def check_unexpected(model: PreTrainedModel, unexpected: set[str], home: Path | str) -> None:
    """Warn of weights that the model has no place for, and refuse where they are whole layers.

    Raises:
        UserError: Layers of the checkpoint would be ignored.
    """
    if not unexpected:
        return
    lists = [name for name, child in model.named_modules() if isinstance(child, nn.ModuleList)]
    used = {name for name, _ in model.named_parameters()}
    ignored = [
        layer
        for layer in whole_layers(unexpected, used)
        if any(_same_list(layer.rpartition(".")[0], one) for one in lists)
    ]
    if ignored:
        raise UserError(
            f"The checkpoint {home} holds layers that its config.json does not count, and that would be ignored: "
            f"{_listed(ignored)}. Correct the number of layers there, so that it says what was saved."
        )
    current_display().warn(
        f"{len(unexpected)} weights of the checkpoint {home} have no place in {type(model).__name__} and are left out: "
        f"{_listed(unexpected)}. If they matter, correct `architectures` in its config.json."
    )


def whole_layers(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """Layers, as `encoder.layer.3`, of which weights are in `names` and none in `others`."""
    there = {layer for name in others for layer in _layers_of(name)}
    found = dict.fromkeys(layer for name in names for layer in _layers_of(name)[:1])
    return sorted(
        (layer for layer in found if not any(_same_list(layer, one) for one in there)), key=lambda layer: _order(layer)
    )


def check_finite(model: PreTrainedModel, home: Path | str) -> None:
    """Refuse weights that are no numbers: every result would be none.

    Raises:
        UserError: NaN or infinity is among them.
    """
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point() or parameter.is_meta:
            continue
        finite = int(parameter.isfinite().sum())
        if finite < parameter.numel():
            bad = parameter.numel() - finite
            raise UserError(
                f"Weights must be finite numbers. In {home} {bad:,} of {parameter.numel():,} values of {name} are NaN "
                "or infinite: the file is damaged, or the training diverged. Save or download the model again, or "
                "take an earlier checkpoint."
            )


def _layers_of(name: str) -> list[str]:
    """`a.3` and `a.3.b.0` of `a.3.b.0.weight`, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i, part in enumerate(parts) if i and part.isdecimal()]


def _same_list(first: str, second: str) -> bool:
    """Whether two paths agree, up to the name of the model in front of one of them."""
    return first == second or first.endswith("." + second) or second.endswith("." + first)


def _order(layer: str) -> tuple[str, int]:
    before, _, index = layer.rpartition(".")
    return before, int(index)


def _listed(names: Iterable[str]) -> str:
    names = names if isinstance(names, list) else sorted(names)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else as_written(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
