"""Folders of models that plain transformers loads without a warning: weights, one tokenizer, and a model card."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import BPE

from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerFast, transformers
from infoflow.corpus import unused_signs

from ._card import model_card
from ._modules import without_remarks
from ._tokenizers import SOURCE_FOLDER, TARGET_FOLDER

UNUSED = "unused.safetensors"
"""Weights that transformers builds, but that the model never computes with."""


def save_model(
    module: PreTrainedModel,
    folder: Path,
    tokenizer: Any = None,
    target_tokenizer: Any = None,
    card: Mapping[str, Any] | None = None,
    *,
    weights: bool = True,
    **options: Any,
) -> None:
    """Write a model into an existing folder for `AutoModel...from_pretrained`; `module` is unchanged.

    `card` has the arguments of `model_card`; `weights` is false if the folder already has weights and configuration;
    the options are passed to `save_pretrained` for the weights.
    """
    if weights:
        save_weights(module, folder, **options)
    save_tokenizers(folder, module, tokenizer, target_tokenizer)
    (folder / "README.md").write_text(model_card(module, tokenizer, **(card or {})), encoding="utf-8")


def save_weights(module: PreTrainedModel, folder: Path, **options: Any) -> None:
    """Write only weights and configuration; `module` is unchanged. The options are passed to `save_pretrained`."""
    config: Any = module.config
    before = config.architectures, config.dtype  # saving fills them in, and a run's key includes the configuration
    with without_remarks():
        module.save_pretrained(folder, **options)
    config.architectures, config.dtype = before
    _save_unused_poolers(module, folder)


def _save_unused_poolers(module: PreTrainedModel, folder: Path) -> None:
    """Add a pooler of zeros, since `from_pretrained` builds an encoder with a pooler whether or not it had one.

    `model.safetensors` stays as trained; an index adds a file with the pooler.
    """
    if all(getattr(child, "pooler", module) is not None for child in module.modules()):
        return
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        built = type(module)(copy.deepcopy(module.config)).state_dict()
    own = module.state_dict()
    added = {name: torch.zeros(one.shape) for name, one in built.items() if name not in own and "pooler." in name}
    if not added:
        return
    save_file(added, folder / UNUSED, {"format": "pt"})
    with safe_open(folder / transformers.utils.SAFE_WEIGHTS_NAME, "pt") as stored:
        files = dict.fromkeys(stored.keys(), transformers.utils.SAFE_WEIGHTS_NAME) | dict.fromkeys(added, UNUSED)
    _write(folder / transformers.utils.SAFE_WEIGHTS_INDEX_NAME, {"metadata": {}, "weight_map": files})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _write(folder / "config.json", {**config, "transformers_weights": transformers.utils.SAFE_WEIGHTS_INDEX_NAME})


def without_unused(config: Any, folder: Path) -> None:
    """Make the configuration of a folder with added poolers read only the trained weights."""
    if (folder / UNUSED).is_file() and hasattr(config, "transformers_weights"):
        del config.transformers_weights


def _write(path: Path, entries: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(entries, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def save_tokenizers(folder: Path, module: PreTrainedModel, tokenizer: Any, target_tokenizer: Any = None) -> None:
    """Write the tokenizers of a model.

    If input and output have different vocabularies, the folder's own tokenizer encodes with the first and decodes with
    the second, for plain transformers; both are also saved separately, for `load_model`.
    """
    if tokenizer is None:
        return
    tokenizer, target_tokenizer = _at_rest(tokenizer), _at_rest(target_tokenizer)
    reads_types = bool(getattr(getattr(module.config, "encoder", module.config), "type_vocab_size", 0))
    if not reads_types and "token_type_ids" in tokenizer.model_input_names:  # GPT-2 would add embeddings for them
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names
    both = None
    if target_tokenizer is not None and module.config.is_encoder_decoder:
        target_tokenizer.save_pretrained(folder / TARGET_FOLDER)
        both = joined(tokenizer, target_tokenizer)
    if both is not None:
        tokenizer.save_pretrained(folder / SOURCE_FOLDER)
    (both or tokenizer).save_pretrained(folder)


def _at_rest(tokenizer: Any) -> Any:
    """A copy without the truncation and padding of the latest call, which would otherwise be saved."""
    tokenizer = copy.deepcopy(tokenizer)
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        backend.no_truncation()
        backend.no_padding()
    return tokenizer


_SPECIAL = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")


def joined(source: Any, target: Any) -> PreTrainedTokenizerFast | None:
    """A tokenizer that encodes as `source` and decodes as `target`; None if both have the same vocabulary.

    Its decoder replaces each piece of the source by the piece of the target with the same id. This works only for
    tokenizers from `train_tokenizer`; for others the result is None.
    """
    texts = {id: piece for piece, id in target.get_vocab().items()}
    if source.get_vocab() == target.get_vocab() or not (_is_trained(source) and _is_trained(target)):
        return None
    if [getattr(source, name) for name in _SPECIAL] != [getattr(target, name) for name in _SPECIAL]:
        return None
    described = json.loads(source.backend_tokenizer.to_str())
    pieces: dict[str, int] = described["model"]["vocab"]
    first, last = unused_signs("".join([*source.get_vocab(), *texts.values()]))
    for token in described["added_tokens"]:
        pieces[token["content"]] = token["id"]
        token["special"] = token["id"] not in texts or token["id"] in target.all_special_ids
    known = set(pieces.values())
    pieces |= {f"{first}{id}": id for id in sorted(texts) if id not in known}  # no text contains them
    backend = Tokenizer.from_str(json.dumps(described))
    replaced = [
        decoders.Replace(f"{first}{piece}{last}", texts.get(id, ""))
        for piece, id in sorted(pieces.items(), key=lambda one: one[1])
        if texts.get(id) != piece
    ]
    backend.decoder = decoders.Sequence(
        [
            *(decoders.Replace(Regex(r"\A"), first), decoders.Replace(Regex(r"\z"), last), decoders.Fuse()),
            *replaced,
            *(decoders.Replace(first, ""), decoders.Replace(last, "")),
            *(decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)),  # as Metaspace, which needs unfused pieces
        ]
    )
    special: dict[str, Any] = {name: getattr(source, name) for name in _SPECIAL}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=source.model_max_length,
        model_input_names=source.model_input_names,
        **special,
    )


def _is_trained(tokenizer: Any) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend is not None and isinstance(backend.decoder, decoders.Metaspace) and backend.model.__class__ is BPE
