"""Models without some of their heads: smaller projections with the same function, and their folders on disk."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, GenerationConfig, PreTrainedModel

from infoflow.foundation import UserError, atomic_folder, check_own_folder, public_provenance

from ._anatomy import Anatomy, Attention
from ._bands import attends_densely
from ._checks import check_folder, dtype_called, model_class, read_object, without_kernels
from ._discovery import discover
from ._model import Model
from ._tokenizers import TARGET_FOLDER

# Remove heads from a model: smaller projections, the same function as with those heads ablated.


Site = tuple[str, str, int]
"""(stack, kind, layer) of an attention."""
Kept = dict[Site, tuple[int, ...]]
"""Remaining heads, by attention, numbered as in the unpruned model."""

_RECORD = "_infoflow_kept_heads"
# Families' names for the number of heads that their forward pass reads, and for widths derived from it.
_HEAD_COUNTS = ("num_heads", "n_heads", "num_attention_heads")
_WIDTHS = ("all_head_size", "inner_dim", "split_size")


def kept_heads(module: nn.Module) -> Kept | None:
    """The remaining heads of the unpruned model; None if none was ever removed."""
    return getattr(module, _RECORD, None)


def remove_heads(module: PreTrainedModel, anatomy: Anatomy, removed: Mapping[Site, Iterable[int]]) -> None:
    """Slice the projections of `module`, in place; `anatomy` then no longer describes it.

    Rows of query, key and value (with their biases) and columns of the output projection are removed; its bias stays.
    Fused, interleaved and transposed layouts are those of the anatomy.

    Args:
        module: The model.
        anatomy: Its anatomy.
        removed: Heads to remove, numbered as in `anatomy`.

    Raises:
        UserError: The layout of the projections is unknown, layers share their weights but not their removed heads, or
            only some heads of a group with a shared key and value would be removed.
    """
    wanted = {site: frozenset(heads) for site, heads in removed.items() if heads}
    plans: dict[str, tuple[int, Tensor]] = {}  # parameter → dimension, indices to remove
    for one in anatomy.attentions():
        site = (one.stack, one.kind, one.layer)
        heads = wanted.get(site, frozenset())
        _require_removable(one, heads, anatomy, wanted)
        if heads and attends_densely(module.get_submodule(one.module)):
            raise UserError(
                f"{one.module} attends in bands or blocks: its own code for global tokens, or for passing data "
                "between layers, counts all heads. So its heads can be ablated but not removed."
            )
        for name, (dim, indices) in _slices(one, heads).items():
            before = plans.get(name, (dim, indices))[1]  # a parameter shared by layers is visited again
            plans[name] = (dim, torch.cat([before, indices]).unique())
    modules: dict[nn.Module, Attention] = {}
    for one in anatomy.attentions():
        modules.setdefault(module.get_submodule(one.module), one)
    for name, (dim, gone) in plans.items():
        _cut(module, name, dim, gone)
    for attention, one in modules.items():
        _recount(attention, one, sorted(wanted.get((one.stack, one.kind, one.layer), ())))
    setattr(module, _RECORD, _still_kept(kept_heads(module), anatomy, wanted))


def _require_removable(
    one: Attention, heads: frozenset[int], anatomy: Anatomy, wanted: Mapping[Site, frozenset[int]]
) -> None:
    if anatomy.stack(one.stack).shared and len({wanted.get((one.stack, one.kind, layer.index), frozenset())
                                                for layer in anatomy.stack(one.stack).layers}) > 1:  # fmt: skip
        raise UserError(
            f"All layers of the {one.stack} share one set of weights, so a head can only be removed from all of them. "
            "Name the same heads in every layer, or ablate them without removing them."
        )
    if not heads:
        return
    if one.own is not None:
        raise UserError(
            f"{one.module} computes attention in its own code, which may use the number of heads in unknown "
            "places, so its heads can be ablated but not removed."
        )
    if one.query is None or one.key is None or one.value is None or one.output is None:
        raise UserError(
            f"The projections of {one.module} have an unknown layout, so its heads can be ablated but not removed."
        )
    size = one.group_size
    for group in range(one.num_key_value_heads):
        members = set(range(group * size, (group + 1) * size))
        if 0 < len(members & heads) < size:
            there = ", ".join(map(str, sorted(members)))
            raise UserError(
                f"Heads {there} of {one.stack} {one.kind}-attention layer {one.layer} share one key and value, so they "
                f"can only be removed together. Got {', '.join(map(str, sorted(members & heads)))}. Remove the whole "
                'group, or pass incomplete="zero": heads of incomplete groups then stay but output zero.'
            )


def _slices(one: Attention, heads: frozenset[int]) -> dict[str, tuple[int, Tensor]]:
    """Rows and columns of an attention's parameters that belong to these heads, by parameter name."""
    groups = sorted({head // one.group_size for head in heads})
    found: dict[str, tuple[int, Tensor]] = {}
    parts = ((one.query, sorted(heads)), (one.key, groups), (one.value, groups), (one.output, sorted(heads)))
    for projection, members in parts:
        for piece in (piece for member in members for piece in projection.head(member)) if projection else ():
            assert piece.dim is not None
            before = found.get(piece.parameter, (piece.dim, torch.empty(0, dtype=torch.long)))[1]
            found[piece.parameter] = (piece.dim, torch.cat([before, piece.indices()]).unique())
    return found


def _cut(module: nn.Module, name: str, dim: int, gone: Tensor) -> None:
    path, _, attribute = name.rpartition(".")
    owner = module.get_submodule(path)
    parameter = getattr(owner, attribute)
    keep = torch.ones(parameter.shape[dim], dtype=torch.bool)
    keep[gone] = False
    rest = parameter.detach().index_select(dim, keep.nonzero().flatten().to(parameter.device)).clone()
    setattr(owner, attribute, nn.Parameter(rest, requires_grad=parameter.requires_grad))
    if attribute != "weight":
        return
    if isinstance(owner, nn.Linear):
        owner.out_features, owner.in_features = rest.shape
    else:  # Conv1D: (in, out)
        owner.nx, owner.nf = rest.shape  # type: ignore[assignment]


def _recount(attention: nn.Module, one: Attention, heads: list[int]) -> None:
    """Update an attention's number of heads. Without it OPT silently computes something else under SDPA."""
    if not heads:
        return
    left = one.num_heads - len(heads)
    for name in _HEAD_COUNTS:
        if isinstance(getattr(attention, name, None), int):
            setattr(attention, name, left)
    for name in _WIDTHS:
        if isinstance(getattr(attention, name, None), int):
            setattr(attention, name, left * one.head_dim)
    if isinstance(getattr(attention, "num_key_value_heads", None), int):
        attention.num_key_value_heads = left // one.group_size  # type: ignore[assignment]
    if hasattr(attention, "has_relative_attention_bias"):
        _keep_full_bias(attention, [head for head in range(one.num_heads) if head not in heads], one.num_heads)


class _FullBias:
    """T5's relative bias, built once for all heads and passed from layer to layer.

    A smaller attention uses its heads' part and passes on the whole.
    """

    kept_bias: list[int]
    bias_heads: int

    def compute_bias(self, *args: Any, **kwargs: Any) -> Tensor:
        self._full = super().compute_bias(*args, **kwargs)  # type: ignore[misc]
        return self._full[:, self.kept_bias]

    def forward(self, *args: Any, position_bias: Tensor | None = None, **kwargs: Any) -> tuple[Any, ...]:
        own = None if position_bias is None else position_bias[:, self.kept_bias]
        output, used, *rest = super().forward(*args, position_bias=own, **kwargs)  # type: ignore[misc]
        if position_bias is None:
            first = self.has_relative_attention_bias  # type: ignore[attr-defined]
            position_bias = self._full if first else used.new_zeros(1, self.bias_heads, *used.shape[2:])
        return output, position_bias, *rest


def _keep_full_bias(attention: Any, kept: list[int], num_heads: int) -> None:
    if isinstance(attention, _FullBias):  # pruned before: its own heads are already a part
        attention.kept_bias = [attention.kept_bias[head] for head in kept]
        return
    family = type(attention)
    attention.__class__ = type(family.__name__, (_FullBias, family), {"__module__": family.__module__})
    attention.kept_bias, attention.bias_heads = kept, num_heads


def _still_kept(before: Kept | None, anatomy: Anatomy, wanted: Mapping[Site, frozenset[int]]) -> Kept:
    kept = {}
    for one in anatomy.attentions():
        site = (one.stack, one.kind, one.layer)
        names = before[site] if before is not None else tuple(range(one.num_heads))
        kept[site] = tuple(name for head, name in enumerate(names) if head not in wanted.get(site, ()))
    return kept


# A pruned model on disk: Hugging Face's loaders cannot build it, so its folder describes how to.


MANIFEST, WEIGHTS = "pruned.json", "pruned.safetensors"
_FORMAT = 1


def save_pruned(model: Model, folder: str | Path, origin: Mapping[str, Any] | None = None) -> Path:
    """Write a pruned model for `load_pruned` and `load_model`.

    The folder holds `pruned.json` (class, precision, kept heads, library versions, `origin`), `config.json` of the
    unpruned model, the weights and the tokenizers. The weights are not called `model.safetensors`, so that
    `from_pretrained`, which cannot load their sizes, reports at once that there are none.

    Args:
        model: From `prune`.
        folder: Created if needed; an existing pruned model is replaced.
        origin: Origin of the choice of heads, for example `{"method": "hard-concrete", "penalty": 0.1}`.

    Raises:
        UserError: No head was removed from the model, or the folder holds something else.
    """
    check_free(folder)
    kept, module = kept_heads(model.module), model.module
    if kept is None:
        raise UserError(f"{model.name} has all its heads: save it with save_pretrained, or prune it first.")
    manifest = {
        "format": _FORMAT,
        "class": type(module).__name__,
        "dtype": str(module.dtype).removeprefix("torch."),
        "kept": [{"stack": s, "kind": k, "layer": la, "heads": list(h)} for (s, k, la), h in kept.items()],
        "origin": dict(origin or {}),
        "provenance": public_provenance(),
    }
    with atomic_folder(Path(folder)) as path:
        (path / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        module.config.save_pretrained(path)
        if module.can_generate():
            module.generation_config.save_pretrained(path)
        safetensors.torch.save_model(module, str(path / WEIGHTS))
        shutil.copymode(path / MANIFEST, path / WEIGHTS)  # safetensors writes files readable by the owner only
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(path)
        if model.target_tokenizer is not None:
            model.target_tokenizer.save_pretrained(path / TARGET_FOLDER)
    return Path(folder)


def check_free(folder: str | Path) -> None:
    """Check that only an earlier pruned model would be replaced.

    Raises:
        UserError: The folder holds something else.
    """
    check_own_folder(Path(folder), MANIFEST, "A pruned model")


def is_pruned_folder(path: Path) -> bool:
    """Whether `infoflow prune` wrote the folder."""
    return (path / MANIFEST).is_file()


def read_pruned(path: Path, dtype: torch.dtype | None = None) -> PreTrainedModel:
    """The module in a folder of `save_pruned`: built from its configuration, pruned the same way, then filled.

    Raises:
        UserError: The folder is damaged or of a newer format, or this transformers builds another architecture.
    """
    manifest = _manifest(path)
    family = model_class(manifest["class"], path)
    stored_dtype = dtype_called(manifest["dtype"], path / MANIFEST)
    check_folder(path)
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    without_kernels(config)
    with torch.random.fork_rng(devices=[]):  # weights are initialised, then replaced
        module = family(config=config).eval()
    stored = set(safetensors.torch.load_file(str(path / WEIGHTS)))
    _drop_poolers(module, stored)
    anatomy = discover(module)
    removed = _removed(anatomy, manifest["kept"], path)
    remove_heads(module, anatomy, removed)
    try:
        safetensors.torch.load_model(module, str(path / WEIGHTS))
    except RuntimeError as error:
        written = manifest.get("versions", "?")
        raise UserError(
            f"The weights in {path} do not fit the model that transformers {transformers.__version__} builds from its "
            f"configuration (they were written with {written}): {str(error).splitlines()[0]}"
        ) from error
    if (path / "generation_config.json").is_file():
        module.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
    return module.to(stored_dtype if dtype is None else dtype)


def _manifest(path: Path) -> dict[str, Any]:
    """The content of pruned.json.

    Raises:
        UserError: It is damaged, or of a newer format.
    """
    manifest = read_object(path / MANIFEST)
    if manifest.get("format") != _FORMAT:
        raise UserError(
            f"{path} was written by a newer infoflow, or is damaged (format {manifest.get('format')}, known: "
            f"{_FORMAT}). Upgrade, or prune the model again."
        )
    if missing := [name for name in ("class", "dtype", "kept") if name not in manifest]:
        raise UserError(f"{path / MANIFEST} is damaged: it has no {', '.join(missing)}. Prune the model again.")
    packages = written.get("packages") if isinstance(written := manifest.get("provenance"), dict) else None
    return {**manifest, "versions": packages.get("transformers", "?") if isinstance(packages, dict) else "?"}


def _removed(anatomy: Anatomy, kept: object, path: Path) -> dict[Site, set[int]]:
    """The removed heads, by attention.

    Raises:
        UserError: `kept` names other attentions or heads than the model has.
    """
    try:
        heads: Kept = {(one["stack"], one["kind"], one["layer"]): tuple(one["heads"]) for one in kept}  # type: ignore[attr-defined]
        sites = {(one.stack, one.kind, one.layer): set(range(one.num_heads)) for one in anatomy.attentions()}
        fits = heads.keys() == sites.keys() and all(set(heads[site]) <= every for site, every in sites.items())
    except (TypeError, KeyError):
        fits, heads, sites = False, {}, {}
    if not fits:
        raise UserError(
            f"{path / MANIFEST} is damaged: its list of remaining heads (kept) does not fit the model of "
            "its config.json. Prune the model again."
        )
    return {site: every - set(heads[site]) for site, every in sites.items()}


def _drop_poolers(module: PreTrainedModel, stored: set[str]) -> None:
    """`EncoderDecoderModel` builds its encoder with a pooler, whether it had one or not."""
    for name, child in module.named_modules():
        start = f"{name}.pooler." if name else "pooler."
        if getattr(child, "pooler", None) is not None and not any(key.startswith(start) for key in stored):
            child.pooler = None
