"""Models without some of their heads: smaller projections with the same function, and their folders on disk."""

import copy
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from infoflow._transformers import PreTrainedModel
from infoflow.foundation import UserError, atomic_folder, check_own_folder, public_provenance

from ._anatomy import Anatomy, Attention
from ._bands import attends_densely
from ._card import auto_class
from ._checks import model_class, read_object
from ._discovery import discover
from ._model import Model
from ._saved import save_model
from .modeling_pruned import FullBias, keep_full_bias, pruned_class, resize

Site = tuple[str, str, int]
"""(stack, kind, layer) of an attention."""
Kept = dict[Site, tuple[int, ...]]
"""Remaining heads, by attention, numbered as in the unpruned model."""

_RECORD = "_infoflow_kept_heads"
# Families' names for the number of heads that their forward pass reads, and for widths derived from it.
_HEAD_COUNTS = ("num_heads", "n_heads", "num_attention_heads")
_WIDTHS = ("all_head_size", "inner_dim", "split_size")


def kept_heads(module: nn.Module) -> Kept | None:
    """The heads that remain, numbered as in the unpruned model; None if no head was ever removed."""
    return getattr(module, _RECORD, None)


def remove_heads(module: PreTrainedModel, anatomy: Anatomy, removed: Mapping[Site, Iterable[int]]) -> None:
    """Slice the projections of `module`, in place; `anatomy` then no longer describes it.

    Rows of query, key and value (with their biases) and columns of the output projection are removed; its bias stays.
    Layouts (fused, interleaved, transposed) and head numbers are those of the anatomy.
    """
    wanted = {site: frozenset(heads) for site, heads in removed.items() if heads}
    plans: dict[str, tuple[int, Tensor]] = {}  # parameter → dimension, indices to remove
    for one in anatomy.attentions():
        site = (one.stack, one.kind, one.layer)
        heads = wanted.get(site, frozenset())
        _require_removable(one, heads, anatomy, wanted)
        if heads and attends_densely(module.get_submodule(one.module)):
            raise UserError(
                f"{one.module} uses banded or block attention: its own code for global tokens, or for passing data "
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
    resize(owner, attribute, rest)


def _recount(attention: nn.Module, one: Attention, heads: list[int]) -> None:
    """Update an attention's number of heads; without this, OPT would silently compute something else under SDPA."""
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
        keep_full_bias(attention, [head for head in range(one.num_heads) if head not in heads], one.num_heads)


def _still_kept(before: Kept | None, anatomy: Anatomy, wanted: Mapping[Site, frozenset[int]]) -> Kept:
    kept = {}
    for one in anatomy.attentions():
        site = (one.stack, one.kind, one.layer)
        names = before[site] if before is not None else tuple(range(one.num_heads))
        kept[site] = tuple(name for head, name in enumerate(names) if head not in wanted.get(site, ()))
    return kept


# A pruned model on disk: a folder for transformers, with the file of code that its loaders need.


MANIFEST = "pruned.json"
_FORMAT = 2
_CODE = Path(__file__).with_name("modeling_pruned.py")


def save_pruned(
    model: Model, folder: str | Path, origin: Mapping[str, Any] | None = None, card: Mapping[str, Any] | None = None
) -> Path:
    """Write a pruned model for `load_model`, and for transformers with `trust_remote_code=True`.

    The folder holds weights, configuration and tokenizers as `save_pretrained` writes them, `pruned.json` (class, kept
    heads, library versions, `origin`), and `modeling_pruned.py`, with which `AutoModel...from_pretrained` builds the
    smaller model. Without that code transformers refuses the weights because of their shapes.

    Args:
        model: From `prune`.
        folder: Created if needed; an existing pruned model is replaced.
        origin: How the heads were chosen, for example `{"method": "hard-concrete", "penalty": 0.1}`.
        card: Contents of the README.md: `title`, `text`, `scores`, `tags`, `results`, `known` and `own_weights`.

    Raises:
        UserError: No head was removed from the model, or the folder holds something else.
    """
    check_free(folder)
    kept, module = kept_heads(model.module), model.module
    if kept is None:
        raise UserError(f"{model.name} has all its heads: save it with save_pretrained, or prune it first.")
    family = type(module).__name__
    manifest = {
        "format": _FORMAT,
        "class": family,
        "kept": [{"stack": s, "kind": k, "layer": la, "heads": list(h)} for (s, k, la), h in kept.items()],
        "origin": dict(origin or {}),
        "provenance": public_provenance(),
    }
    with atomic_folder(Path(folder)) as path:
        facts = {"code": True, **(card or {})}  # transformers renames no weights for custom code
        save_model(module, path, model.tokenizer, model.target_tokenizer, facts, save_original_format=False)
        (path / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        own = f"{family} = pruned_class(transformers.{family})\n"
        (path / _CODE.name).write_text(
            f"{_CODE.read_text(encoding='utf-8')}\n\nimport transformers\n\n{own}", encoding="utf-8"
        )
        auto = {auto_class(module)[0]: f"{_CODE.stem}.{family}"}
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        config |= {"auto_map": auto, "pruned": _sizes(module, model.anatomy)}
        (path / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def _sizes(module: PreTrainedModel, anatomy: Anatomy) -> dict[str, Any]:
    """The attributes and shapes that `shrink` changes in the whole model."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        whole = type(module)(copy.deepcopy(module.config))
    before = {name: one.shape for name, one in whole.named_parameters(remove_duplicate=False)}
    shapes = {
        name: list(one.shape)
        for name, one in module.named_parameters(remove_duplicate=False)
        if one.shape != before[name]
    }
    attributes, heads = {}, {}
    for path in dict.fromkeys(one.module for one in anatomy.attentions()):
        attention, full = module.get_submodule(path), whole.get_submodule(path)
        values = {name: getattr(attention, name, None) for name in (*_HEAD_COUNTS, *_WIDTHS, "num_key_value_heads")}
        attributes[path] = {k: v for k, v in values.items() if isinstance(v, int) and v != getattr(full, k)}
        if isinstance(attention, FullBias):
            heads[path] = [attention.kept_bias, attention.bias_heads]
    return {
        "shapes": shapes,
        "attributes": {path: found for path, found in attributes.items() if found},
        "heads": heads,
    }


def check_free(folder: str | Path) -> None:
    """Check that only an earlier pruned model would be replaced."""
    check_own_folder(Path(folder), MANIFEST, "A pruned model")


def is_pruned_folder(path: Path) -> bool:
    """Whether `infoflow prune` wrote the folder."""
    return (path / MANIFEST).is_file()


def pruned_family(path: Path, config: Any) -> tuple[type, Kept]:
    """The class that reads a folder of `save_pruned` with transformers, and the remaining heads."""
    manifest = read_object(path / MANIFEST)
    if manifest.get("format") != _FORMAT:
        raise UserError(
            f"{path} was written by another version of infoflow, or is damaged (format {manifest.get('format')}, "
            f"known: {_FORMAT}). Prune the model again, or use that version."
        )
    if missing := [name for name in ("class", "kept") if name not in manifest]:
        raise UserError(f"{path / MANIFEST} is damaged: it has no {', '.join(missing)}. Prune the model again.")
    family = model_class(manifest["class"], path)
    try:
        kept: Kept = {(one["stack"], one["kind"], one["layer"]): tuple(one["heads"]) for one in manifest["kept"]}
        sized = {"shapes", "attributes", "heads"} <= config.pruned.keys()
    except (TypeError, KeyError, AttributeError):
        sized = False
    if not sized:
        raise _damaged(path)
    return pruned_class(family), kept


def as_pruned(module: PreTrainedModel, kept: Kept, path: Path) -> PreTrainedModel:
    """The loaded module as `remove_heads` leaves it: in its family's own class, without entries used for loading."""
    found: Any = module
    found.__class__ = type(module).__mro__[1]
    for name in ("pruned", "auto_map"):
        delattr(found.config, name)
    counts = {(one.stack, one.kind, one.layer): one.num_heads for one in discover(module.eval()).attentions()}
    if counts != {site: len(heads) for site, heads in kept.items()}:
        raise _damaged(path)
    setattr(module, _RECORD, kept)
    return module


def _damaged(path: Path) -> UserError:
    return UserError(
        f"{path / MANIFEST} is damaged: its list of remaining heads (kept) does not fit the model of its config.json. "
        "Prune the model again."
    )
