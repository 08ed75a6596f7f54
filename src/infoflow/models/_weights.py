"""GGUF files, and checks that the weights of a checkpoint are complete, fit the model and are all used."""

import io
import re
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import decoders, normalizers
from torch import nn

from infoflow._transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from infoflow.foundation import UserError, current_display, missing_extra

from ._first_pass import output_embeddings
from ._placed import loaded

# Buffers saved by older versions of transformers; today they are computed.
_COMPUTED = re.compile(
    r"(position_ids|token_type_ids|inv_freq|masked_bias|relative_position_index|attn\.bias|attention\.bias|"
    r"attn_bias|causal_mask|scale_attn|pos_emb(ed)?\.(sin|cos)|(sin|cos)_cached|num_batches_tracked)$"
)


def check_loaded(model: PreTrainedModel, report: Mapping[str, Any], home: Path | str) -> None:
    """Compare the loaded weights with the model's, and remove an unsaved, unused pooler.

    `report` is from `from_pretrained(..., output_loading_info=True, ignore_mismatched_sizes=True)`.
    """
    mismatched = {name: (tuple(found), tuple(wanted)) for name, found, wanted in report["mismatched_keys"]}
    missing = _without_unused_poolers(model, set(report["missing_keys"]) - mismatched.keys())
    _check_names(model, missing, set(report["unexpected_keys"]), home)
    _check_missing(model, missing, home)
    _check_shapes(mismatched, home)
    _check_unexpected(model, {key for key in report["unexpected_keys"] if not _COMPUTED.search(key)}, home)


def _without_unused_poolers(model: PreTrainedModel, missing: set[str]) -> set[str]:
    """Drop poolers that were not saved; `EncoderDecoderModel.from_pretrained` always builds its encoder with one."""
    if model.base_model is not model and output_embeddings(model) is None:
        return missing  # a classifier uses its pooler
    for name, child in list(model.named_modules()):
        pooler = getattr(child, "pooler", None)
        if not isinstance(pooler, nn.Module):
            continue
        start = f"{name}.pooler." if name else "pooler."
        weights = {f"{start}{key}" for key, _ in pooler.named_parameters()}
        if weights and weights <= missing:
            child.pooler = None
            missing = missing - weights
    return missing


def _check_names(model: PreTrainedModel, missing: set[str], unexpected: set[str], home: Path | str) -> None:
    """Refuse a file with other names, as when the state of a wrapper or trainer was saved."""
    ends = tuple(f".{name}" for name in missing)
    wrapped = {name for name in unexpected if name.endswith(ends)}
    nothing = missing >= {name for name, _ in model.named_parameters()}
    if strange := wrapped if 2 * len(wrapped) >= len(missing) else unexpected if nothing else set():
        raise UserError(
            f"The weights in {home} must have the names used by {type(model).__name__}. They are called "
            f"{listed(strange)}. If a wrapper or a trainer wrote them (DataParallel, torch.compile, Lightning), save "
            "the model inside it with save_pretrained; otherwise correct `architectures` in its config.json."
        )


def _check_missing(model: PreTrainedModel, missing: set[str], home: Path | str) -> None:
    if not missing:
        return
    layers = whole_layers(missing, {name for name, _ in model.named_parameters()} - missing)
    what = f"the layers {listed(layers)}" if layers else f"{len(missing)} weights"
    body = f"{model.base_model_prefix}."
    if layers:
        advice = "Correct the number of layers in its config.json"
    elif model.base_model is not model and not any(name.startswith(body) for name in missing):
        advice = "Correct `architectures` in its config.json"
    else:
        advice = "Save or download the model again, or correct its config.json"
    raise UserError(
        f"The checkpoint {home} lacks {what} of {type(model).__name__}, which would be random: {listed(missing)}. "
        f"{advice}."
    )


def _check_shapes(mismatched: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]], home: Path | str) -> None:
    if not mismatched:
        return
    name, (found, wanted) = min(mismatched.items())
    more = f" (and {len(mismatched) - 1} more weights)" if len(mismatched) > 1 else ""
    raise UserError(
        f"The weights in {home} have different shapes from its config.json: {name} is {_sizes(found)}, but must be "
        f"{_sizes(wanted)}{more}. Correct its config.json, or save or download the model again."
    )


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def _check_unexpected(model: PreTrainedModel, unexpected: set[str], home: Path | str) -> None:
    """Warn of unused weights outside the model's blocks; unused ones inside would change the function."""
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
            f"The checkpoint {home} contains layers that its config.json does not count, and that would be ignored: "
            f"{listed(ignored)}. Correct the number of layers there."
        )
    if parts := {name for name in unexpected if _is_inside(name, model, used)}:
        raise UserError(
            f"The checkpoint {home} contains weights of layers that {type(model).__name__}, as its config.json "
            f"describes it, does not have, so results would be wrong: {listed(parts)}. Correct its config.json."
        )
    current_display().warn(
        f"{len(unexpected)} weights of the checkpoint {home} are not used by {type(model).__name__}: "
        f"{listed(unexpected)}. If they matter, correct `architectures` in its config.json."
    )


def _is_inside(name: str, model: PreTrainedModel, used: set[str]) -> bool:
    """Whether a weight belongs to a block of the model, or to a module with other used weights."""
    start = f"{model.base_model_prefix}."
    own = {one.removeprefix(start) for one in used}
    blocks, name = {layer for one in own for layer in _layers_of(one)}, name.removeprefix(start)
    if not blocks.isdisjoint(_layers_of(name)):
        return True
    parent, _, leaf = name.rpartition(".")
    modules = {path.removeprefix(start): child for path, child in model.named_modules() if path}
    return leaf in ("weight", "bias") and name not in own and isinstance(modules.get(parent), nn.Linear | nn.LayerNorm)


def whole_layers(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """Layers, such as `encoder.layer.3`, whose weights are in `names` and not in `others`."""
    there = {layer for name in others for layer in _layers_of(name)}
    found = dict.fromkeys(layer for name in names for layer in _layers_of(name)[:1])
    return sorted((layer for layer in found if not any(_same_list(layer, one) for one in there)), key=_order)


def check_finite(model: PreTrainedModel, home: Path | str) -> None:
    """Refuse weights that are not finite: they would make every result NaN."""
    for name, parameter in loaded(model, model.named_parameters()):
        if not parameter.is_floating_point():
            continue
        finite = int(parameter.isfinite().sum())
        if finite < parameter.numel():
            bad = parameter.numel() - finite
            raise UserError(
                f"Weights must be finite numbers. In {home} {bad:,} of {parameter.numel():,} values of {name} are NaN "
                "or infinite: the file is damaged, or the training diverged. Save or download the model again, or "
                "use an earlier checkpoint."
            )


def _layers_of(name: str) -> list[str]:
    """`a.3` and `a.3.b.0` for `a.3.b.0.weight`, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i, part in enumerate(parts) if i and part.isdecimal()]


def _same_list(first: str, second: str) -> bool:
    """Whether two paths differ at most by a model prefix in one of them."""
    return first == second or first.endswith("." + second) or second.endswith("." + first)


def _order(layer: str) -> tuple[str, int]:
    before, _, index = layer.rpartition(".")
    return before, int(index)


def listed(names: Iterable[str]) -> str:
    """The first five names, and the number of further ones."""
    names = names if isinstance(names, list) else sorted(names)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# Read GGUF files, after comparing the file's tensors with those that transformers expects.


_WITH_BOS = {"llama3", "llama-v3", "llama-bpe"}  # llama.cpp adds BOS unless the file says not to
_READ_ANEW = {"qwen35", "qwen35moe", "lfm2"}  # transformers reports what these lack when it reads them


def read_gguf(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The model in a GGUF file, with its quantised weights expanded."""
    if find_spec("gguf") is None:
        raise missing_extra("Reading a .gguf file", "gguf", "gguf")
    # transformers de-quantises weights one by one with a progress bar that cannot be disabled.
    with redirect_stderr(io.StringIO()):
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    _check_tensors(path, config)
    current_display().note(f"Reading {path.name} and converting its quantised weights to {dtype}")
    with redirect_stderr(io.StringIO()):
        found: Any = AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            config=config,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    model, report = found
    check_loaded(model, report, path)
    return model


def read_gguf_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a GGUF file, with the same tokens as llama.cpp.

    transformers ignores that a sentencepiece vocabulary needs no space before the text, and that Llama 3 starts with
    BOS if the file does not specify it.
    """
    from gguf import GGUFReader

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    start = "tokenizer.ggml."
    fields = GGUFReader(str(path)).fields
    names = ("model", "pre", "add_space_prefix", "add_bos_token")
    facts = {name: fields[start + name].contents() for name in names if start + name in fields}
    adds_space = tokenizer.tokenize("the")[:1] and tokenizer.tokenize("the")[0].startswith("▁")
    if facts.get("model") == "llama" and facts.get("add_space_prefix") is False and adds_space:
        backend = tokenizer.backend_tokenizer
        backend.normalizer, backend.pre_tokenizer = normalizers.Replace(" ", "▁"), None
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    if facts.get("pre") in _WITH_BOS and "add_bos_token" not in facts:
        tokenizer.add_bos_token = True
    return tokenizer


def _check_tensors(path: Path, config: PreTrainedConfig) -> None:
    from gguf import GGUFReader

    reader = GGUFReader(str(path))
    facts = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.")}
    _check_metadata(path, facts)
    kind = str(facts.get("general.architecture"))
    if kind in _READ_ANEW:
        return
    names, expected = {tensor.name for tensor in reader.tensors}, _expected(config, kind)
    if "output.weight" not in names:
        current_display().note(
            f"{path.name} has no output matrix (output.weight), so the embeddings are used for it, as in llama.cpp."
        )
    if lacking := {one for one in expected if one not in names and f"{one}.weight" not in names}:
        raise UserError(
            f"{path} lacks {len(lacking)} tensors of {config.model_type}, which would be random: {listed(lacking)}. "
            "Download or convert the model again. A model split over several files must be merged first "
            "(llama-gguf-split --merge)."
        )
    if ignored := {one for one in names if one not in expected and one.removesuffix(".weight") not in expected}:
        raise UserError(
            f"{path} holds {len(ignored)} tensors that transformers does not read for {config.model_type}, so "
            f"results would be wrong: {listed(ignored)}. Use the model in the safetensors format."
        )


def _check_metadata(path: Path, facts: dict[str, Any]) -> None:
    kind, parts = facts.get("general.architecture"), facts.get("split.count")
    if isinstance(parts, int) and parts > 1:
        raise UserError(
            f"{path} is part {facts.get('split.no', 0) + 1} of {parts} of a split model. Merge the parts first: "
            "llama-gguf-split --merge FIRST_PART OUTPUT."
        )
    scaling = facts.get(f"{kind}.rope.scaling.type", "none")
    if scaling != "none" and kind != "gpt-oss":
        raise UserError(
            f"{path} scales its rotary positions ({scaling}), which transformers does not read from a GGUF file, so "
            "results would be wrong. Use the model in the safetensors format."
        )


def _expected(config: PreTrainedConfig, kind: str) -> set[str]:
    """Names of the tensors, in GGUF's form, that transformers will look for."""
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    processor = TENSOR_PROCESSORS.get(kind, TensorProcessor)(config={})
    names = get_gguf_hf_weights_map(skeleton, processor)
    # llama.cpp omits an output matrix that equals the embeddings.
    tied = {"output.weight"} if config.tie_word_embeddings else set()
    return set(names) - tied
