"""Load a model by name, from a folder or a GGUF file, or take an instance, and look at it before anyone measures it."""

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto import modeling_auto as registry
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, cached_file, logging

from infoflow.foundation import UserError, as_written, current_display, missing_extra, model_name_of, patient_hub

from ._adapter_folder import base_of, is_adapter_folder, merged
from ._anatomy import Anatomy
from ._bands import read_bands_densely
from ._checks import (
    check_family,
    check_finite,
    check_folder,
    check_index,
    check_missing,
    check_unexpected,
    model_class,
    without_kernels,
)
from ._discovery import discover
from ._first_pass import vocabulary_size
from ._hub import hub_is_reachable
from ._hub_name import at_revision, hub_arguments, named_at
from ._model import Model, Task
from ._own import AbstractOwnModel
from ._plain_bert import PlainBertForMaskedLM, PlainBertLMHeadModel
from ._pruned_folder import is_pruned_folder, read_pruned
from ._tokenizers import find_tokenizers, has_tokenizer
from ._trials import tried
from ._unreadable import unreadable

_LONGEST_NAME = 255
_SEQ2SEQ = {*registry.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values(), "EncoderDecoderModel"}
_CAUSAL = {*registry.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(), PlainBertLMHeadModel.__name__}
_MASKED = {
    *registry.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values(),
    *("BertForPreTraining", "AlbertForPreTraining", PlainBertForMaskedLM.__name__),
}


def load_model(
    source: str | Path | PreTrainedModel,
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    device: str | torch.device = "auto",
    *,
    dtype: torch.dtype = torch.float32,
    revision: str | None = None,
) -> Model:
    """A model with its head, its tokenizer and its anatomy, in evaluation mode.

    Args:
        source: A name on the model hub (`NAME@REVISION` for a branch, tag or commit), a folder that `save_pretrained`
            or `save_pruned` wrote, one of a LoRA that `peft` wrote (it is merged into the model that it names), a
            `.gguf` file, or a model instance (which stays on its device and in its precision unless `device` is
            given, and is put in evaluation mode).
        tokenizer: A tokenizer, or the name or folder of one; by default the one that lies beside the weights. Without
            any, the model takes token ids but no text.
        device: "auto" (a GPU where there is one), "cpu", "cuda", ...
        dtype: Precision of weights that are read from disk.
        revision: Branch, tag or commit of a name on the hub, for `NAME@REVISION`.

    The class is the one that `config.architectures` names, so the head that was trained is kept. Weights are read from
    safetensors, or from `.bin` files with `weights_only`; nothing is unpickled and no remote code runs. Attention in
    bands (Longformer, LED) is from then on computed as one masked softmax, equal but for rounding.

    Raises:
        UserError: Nothing is found there, weights are missing, the tokenizer does not fit, or the family cannot be
            tapped (with the reason).
    """
    if revision is not None:
        source = named_at(source, revision)
    if isinstance(source, PreTrainedModel):
        module, name, home = source, source.name_or_path or source.config.model_type, None
        device = source.device if device == "auto" else device
    else:
        home = _existing(source)
        name = _short_name(home)
        with quiet_loading(), patient_hub():
            module = _read(home, dtype)
        if isinstance(home, Path) and is_adapter_folder(home) and not has_tokenizer(home):
            home = _base(home)
    check_finite(module, name if home is None else home)
    module = module.to(_device(device)).eval()
    source_tokenizer, target_tokenizer = find_tokenizers(tokenizer, home)
    _check_vocabulary(module, source_tokenizer, name)
    read_bands_densely(module)
    anatomy = discover(module)
    model = Model(
        name=name,
        module=module,
        tokenizer=source_tokenizer,
        target_tokenizer=target_tokenizer,
        anatomy=anatomy,
        task="encoder",
        pad_token_id=_pad_token_id(module, source_tokenizer),
    )
    if not isinstance(module, AbstractOwnModel):
        model = tried(model)
    # The task last: what it asks of a configuration would hide why a family cannot be read at all.
    model = replace(model, task=_task(module, anatomy))
    _tell_of_full_attention(model)
    if not model.pads:
        current_display().note(
            f"Padding changes what {name} computes for a sentence, so it reads sentences of equal length together."
        )
    return model


def _tell_of_full_attention(model: Model) -> None:
    if getattr(model.module.config, "attention_type", None) == "block_sparse":
        current_display().note(
            f"{model.name} attends in blocks where a text is long. As transformers does after a first short text, "
            "infoflow reads every text with full attention."
        )


def _existing(source: object) -> Path | str:
    """A path that exists, or the string as a hub name."""
    if not isinstance(source, str | Path):
        given = f"a torch module of another kind ({type(source).__name__})" if isinstance(source, Module) else None
        raise UserError(
            "A model is a hub name, a folder, a .gguf file, or an instance of a transformers model class. "
            f"Got {given or as_written(source)}."
        )
    if isinstance(source, str) and (not source.strip() or "\0" in source):
        raise UserError(
            "A model is a hub name, a folder, or a .gguf file. Got an empty name. For the current folder write ./"
            if not source.strip()
            else "A model's name must not hold a null character."
        )
    path = Path(source).expanduser()
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise UserError(f"A model's name must have at most {_LONGEST_NAME} bytes. Got {len(os.fsencode(path.name))}.")
    if path.is_dir():
        if not (path / "config.json").is_file() and not is_adapter_folder(path):
            raise UserError(
                f"A model folder must hold config.json and weights, as save_pretrained writes them. {path} has no "
                "config.json: give the folder of one checkpoint."
            )
        return path
    if path.is_file():
        if path.suffix != ".gguf":
            raise UserError(f"A model is a hub name, a folder, or a .gguf file. Got the file {path}.")
        return path
    if isinstance(source, Path) or source.startswith((".", "/", "~")) or at_revision(source)[0].count("/") > 1:
        raise UserError(f"No model folder at {path}. Check the path, or give a name on the model hub.")
    return str(source)


def _short_name(home: Path | str) -> str:
    """A hub name whole; of a path what `model_name_of` says."""
    return home if isinstance(home, str) else model_name_of(home)


def _read(home: Path | str, dtype: torch.dtype) -> PreTrainedModel:
    try:
        if isinstance(home, Path) and home.suffix == ".gguf":
            return _read_gguf(home, dtype)
        if isinstance(home, Path) and is_pruned_folder(home):
            return read_pruned(home, dtype)
        if isinstance(home, Path) and is_adapter_folder(home):
            base = _base(home)
            current_display().note(f"The adapter in {home.name} is added to the weights of {_short_name(base)}.")
            return merged(_read(base, dtype), home)
        local = isinstance(home, Path) or not hub_is_reachable()
        where, revision = hub_arguments(home)
        _check_files(where, revision, local)
        config = AutoConfig.from_pretrained(where, trust_remote_code=False, local_files_only=local, **revision)
        without_kernels(config)
        model, report = _model_class(config, home).from_pretrained(
            where,
            config=config,
            **revision,
            dtype=dtype,
            weights_only=True,
            output_loading_info=True,
            local_files_only=local,
            use_kernels=False,
        )
    except UserError:
        raise
    except Exception as error:
        raise unreadable(home, error) from error
    _check_loaded(model, report, home)
    return model


def _base(folder: Path) -> Path | str:
    """The model that an adapter in a folder was trained on, which must be a whole one."""
    base = _existing(base_of(folder))
    if isinstance(base, Path) and is_adapter_folder(base):
        raise UserError(f"The adapter in {folder} belongs to another adapter, {base}. Merge that one first, with peft.")
    return base


def _check_files(home: Path | str, revision: Mapping[str, str], local: bool) -> None:
    """Look at what a folder, or a name's files on the hub, would have transformers do."""
    if isinstance(home, Path):
        check_folder(home)
        return
    index = cached_file(
        home,
        SAFE_WEIGHTS_INDEX_NAME,
        **revision,
        local_files_only=local,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if index is not None:
        check_index(Path(index))


def _check_loaded(model: PreTrainedModel, report: Mapping[str, Any], home: Path | str) -> None:
    """Drop poolers that the checkpoint does not have, refuse any other weight that would be random, tell what is left.

    `EncoderDecoderModel.from_pretrained` always builds its encoder with a pooler.
    """
    missing = set(report["missing_keys"])
    for name, child in model.named_modules():
        start = f"{name}.pooler." if name else "pooler."
        if any(key.startswith(start) for key in missing):
            child.pooler = None
    check_missing(model, {key for key in missing if "pooler." not in key}, home)
    check_unexpected(model, set(report["unexpected_keys"]), home)


def _read_gguf(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    if find_spec("gguf") is None:
        raise missing_extra("Reading a .gguf file", "gguf", "gguf")
    current_display().note(f"Reading {path.name} and turning its quantised weights into {dtype}")
    # Its weights are de-quantised one by one under a bar that no setting turns off.
    with redirect_stderr(io.StringIO()):
        return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype)


def _model_class(config: PreTrainedConfig, home: Path | str) -> type:
    names = config.architectures or []
    if not isinstance(names, list | tuple):
        names = [names]
    if not names:
        return AutoModel
    family = model_class(names[0], home)
    check_family(family, config, home)
    return family


def check_loading(tokenizer: str | Path | None, device: str) -> None:
    """Refuse what no model could be loaded with, before the first of many is.

    Args:
        tokenizer: Folder or name, where one was given.
        device: As for `load_model`.

    Raises:
        UserError: There is no such tokenizer, or torch cannot use the device here.
    """
    _device(device)
    if tokenizer is not None:
        find_tokenizers(tokenizer, None)


def _device(device: str | torch.device) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"--device must name a device that torch can use here. Got {device}: {reason}") from error
    return found


def _check_vocabulary(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, name: str) -> None:
    size = vocabulary_size(module)
    if tokenizer is None:
        return
    last = max(tokenizer.get_vocab().values(), default=0)
    if len(tokenizer) <= size <= last:
        raise UserError(
            f"The tokenizer does not fit {name}: its largest token id is {last}, the model's {size - 1}. Give the "
            "tokenizer that the model was trained with."
        )
    if len(tokenizer) > size:
        raise UserError(
            f"The tokenizer does not fit {name}: it has {len(tokenizer)} tokens, the model {size}. Give the tokenizer "
            "that the model was trained with."
        )


def _task(module: PreTrainedModel, anatomy: Anatomy) -> Task:
    family = type(module).__name__
    if family in _SEQ2SEQ:
        return "seq2seq"
    if family in _CAUSAL:
        if not all(stack.causal for stack in anatomy.stacks):
            raise UserError(
                f"{family} predicts the next token but sees the future: its configuration lacks is_decoder=True. "
                "Set it, or load the checkpoint as a masked language model."
            )
        return "causal-lm"
    if family in _MASKED:
        return "masked-lm"
    return _task_by_structure(module, anatomy)


def _task_by_structure(module: PreTrainedModel, anatomy: Anatomy) -> Task:
    """Of a family without a registered language model, such as one of text and images: by its stacks and its head."""
    head = module.get_output_embeddings()
    if getattr(head, "out_features", None) != vocabulary_size(module) or not anatomy.predicts.causal:
        return "encoder"
    return "seq2seq" if len(anatomy.stacks) > 1 else "causal-lm"


def _pad_token_id(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> int:
    """Padding is masked wherever infoflow pads, so any id serves where a model has none, or none that it embeds."""
    candidates = [getattr(module.config, "pad_token_id", None), getattr(tokenizer, "pad_token_id", None)]
    size = vocabulary_size(module)
    return next((int(token) for token in candidates if token is not None and 0 <= token < size), 0)


@contextmanager
def quiet_loading() -> Iterator[None]:
    """No bars and load reports from transformers: what matters in them is checked here."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
