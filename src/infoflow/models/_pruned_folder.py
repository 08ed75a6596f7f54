"""A pruned model on disk: Hugging Face's loaders cannot build it, so its folder describes how to."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers
from transformers import AutoConfig, GenerationConfig, PreTrainedModel

from infoflow.foundation import UserError, atomic_folder, check_own_folder, public_provenance

from ._anatomy import Anatomy
from ._checks import check_folder, dtype_called, model_class, read_object, without_kernels
from ._discovery import discover
from ._head_removal import Kept, Site, kept_heads, remove_heads
from ._model import Model
from ._tokenizers import TARGET_FOLDER

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
