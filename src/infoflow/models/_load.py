"""Load a model by name, from a folder or a GGUF file, or take an instance; check its files and the model before use."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from infoflow._transformers import (
    AutoConfig,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    transformers,
)
from infoflow.foundation import UserError, as_written, current_display, launched, local_rank, model_name_of, patient_hub

from ._adapter import adapted_classes, base_of, fits, held_shapes, is_adapter_folder, merged, set_labels, supplied
from ._anatomy import Anatomy
from ._bands import read_bands_densely
from ._blocks import stacks_of_states
from ._checks import check_family, check_features, check_folder, check_index, model_class, without_kernels
from ._discovery import discover
from ._first_pass import output_embeddings, vocabulary_size
from ._hub import at_revision, hub_arguments, hub_is_reachable, named_at, unreadable
from ._model import Model, Task
from ._own_models import AbstractOwnModel
from ._parameters import parameter_groups
from ._placed import empty_module, is_placed, keep_folder, placement
from ._pruned import as_pruned, is_pruned_folder, pruned_family
from ._quantised import check_quantize, quantised_loading
from ._saved import without_unused
from ._tokenizers import Reading, find_tokenizers, has_tokenizer, reading_tokenizers
from ._trials import tried
from ._weights import check_finite, check_loaded, listed, quiet_loading, read_gguf

_GIVE_ONE = "config.json: name the folder of one checkpoint."
_LONGEST_NAME = 255


def existing(source: object) -> Path | str:
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
            else "A model's name must not contain a null character."
        )
    path = Path(source).expanduser()
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise UserError(f"A model's name must have at most {_LONGEST_NAME} bytes. Got {len(os.fsencode(path.name))}.")
    if path.is_dir():
        if not (path / "config.json").is_file() and not is_adapter_folder(path):
            held = _models_in(path)
            raise UserError(
                f"A model folder must contain config.json and weights, as save_pretrained writes them. {path} has no "
                + (f"config.json, but there are models in {listed(held)}: name one of these." if held else _GIVE_ONE)
            )
        return path
    if path.is_file():
        if path.suffix != ".gguf":
            raise UserError(f"A model is a hub name, a folder, or a .gguf file. Got the file {path}.")
        return path
    if isinstance(source, Path) or source.startswith((".", "/", "~")) or at_revision(source)[0].count("/") > 1:
        raise UserError(f"No model folder at {path}. Check the path, or use a name on the model hub.")
    return str(source)


def _models_in(folder: Path) -> list[str]:
    """The models of a run, or of a folder of checkpoints, relative to the folder."""
    levels, files = ("*", "*/*", "models/*/*"), ("config.json", "adapter_config.json")
    held = {found.parent for level in levels for file in files for found in folder.glob(f"{level}/{file}")}
    return sorted(str(found.relative_to(folder)) for found in held)


def short_name(home: Path | str) -> str:
    """A hub name in full; for a path, its `model_name_of`."""
    return home if isinstance(home, str) else model_name_of(home)


def read_module(
    home: Path | str, dtype: torch.dtype, device: str | torch.device = "cpu", quantize: str | None = None
) -> PreTrainedModel:
    """The module saved there, on the CPU, unless it is quantised, or too large for the device that "auto" means."""
    try:
        if quantize is not None:
            check_quantize(quantize, home)
        if isinstance(home, Path) and home.suffix == ".gguf":
            return read_gguf(home, dtype)
        if isinstance(home, Path) and is_pruned_folder(home):
            return _read_pruned(home, dtype)
        if isinstance(home, Path) and is_adapter_folder(home):
            return _read_adapted(home, dtype)
        config = _configuration(home)
        arguments = quantised_loading(config, home, quantize, _device(device))
        if device == "auto" and not arguments:
            arguments = placement(home, config, _model_class(config, home), dtype.itemsize, _device(device))
        model, report = _read_weights(home, config, dtype, **arguments)
    except UserError:
        raise
    except Exception as error:
        raise unreadable(home, error) from error
    keep_folder(model, arguments.get("offload_folder"))
    check_loaded(model, report, home)
    return model


def _configuration(home: Path | str) -> PreTrainedConfig:
    """The configuration of a checkpoint, after its checks."""
    local = isinstance(home, Path) or not hub_is_reachable()
    where, revision = hub_arguments(home)
    _check_files(where, revision, local)
    config = AutoConfig.from_pretrained(where, trust_remote_code=False, local_files_only=local, **revision)
    check_features(config, home)
    without_kernels(config)
    without_unused(config, Path(where))
    return config


def empty_model(home: Path | str) -> PreTrainedModel:
    """The model of a checkpoint without its weights, which are neither read nor fetched.

    Raises:
        UserError: Its configuration cannot be read, or is of a family that is refused.
    """
    try:
        with patient_hub():
            config = _configuration(home)
            return empty_module(config, _model_class(config, home))
    except UserError:
        raise
    except Exception as error:
        raise unreadable(home, error) from error


def _read_weights(
    home: Path | str, config: PreTrainedConfig, dtype: torch.dtype, family: type | None = None, **arguments: Any
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The module, and transformers' loading report."""
    where, revision = hub_arguments(home)
    return (family or _model_class(config, home)).from_pretrained(
        where,
        config=config,
        **revision,
        dtype=dtype,
        weights_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # refused by `check_loaded`, which names them
        local_files_only=isinstance(home, Path) or not hub_is_reachable(),
        use_kernels=False,
        **arguments,
    )


def _read_pruned(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """A model without some of its heads, from `save_pruned`."""
    config = _configuration(folder)
    family, kept = pruned_family(folder, config)
    model, report = _read_weights(folder, config, dtype, family)
    check_loaded(model, report, folder)
    return as_pruned(model, kept, folder)


def _read_adapted(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The base model of an adapter, in the class that was adapted, with the adapter merged into its weights."""
    base = adapted_base(folder)
    current_display().note(f"Merging the adapter in {folder.name} into the weights of {short_name(base)}.")
    if isinstance(base, Path) and (base.suffix == ".gguf" or is_pruned_folder(base)):
        return merged(read_module(base, dtype), folder)
    try:
        config = _configuration(base)
        own = _model_class(config, base)
        own = own._model_mapping[type(config)] if own is AutoModel else own
        set_labels(config, held_shapes(folder))
        families = list(adapted_classes(folder, config, own))
        family = next((one for one in families if fits(one, config, folder)), families[0])
        check_family(family, config, folder)
        model, report = _read_weights(base, config, dtype, family)
    except UserError:
        raise
    except Exception as error:
        raise unreadable(base, error) from error
    replaced = supplied(folder)
    report["missing_keys"] = {name for name in report["missing_keys"] if name not in replaced}
    report["mismatched_keys"] = {one for one in report["mismatched_keys"] if one[0] not in replaced}
    if family is not own:  # the base model's head differs from the adapted model's
        report["unexpected_keys"] = set()
    check_loaded(model, report, base)
    return merged(model, folder)


def adapted_base(folder: Path) -> Path | str:
    """The model that an adapter in a folder was trained on, which must not be an adapter itself."""
    base = existing(base_of(folder))
    if isinstance(base, Path) and is_adapter_folder(base):
        raise UserError(f"The adapter in {folder} belongs to another adapter, {base}. Merge that one first, with peft.")
    return base


def _check_files(home: Path | str, revision: Mapping[str, str], local: bool) -> None:
    """Check the files of a folder, or of a name on the hub, before transformers loads them."""
    if isinstance(home, Path):
        check_folder(home)
        return
    index = transformers.utils.cached_file(
        home,
        transformers.utils.SAFE_WEIGHTS_INDEX_NAME,
        **revision,
        local_files_only=local,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if index is not None:
        check_index(Path(index))


def _model_class(config: PreTrainedConfig, home: Path | str) -> type:
    names = config.architectures or []
    if not isinstance(names, list | tuple):
        names = [names]
    if not names:
        return AutoModel
    family = model_class(names[0], home)
    check_family(family, config, home)
    return family


# Load a model by name, from a folder or a GGUF file, or take an instance, and check it before use.


_UNSAVED = (
    "Tokens were added before the adapter was trained, and their embeddings were not saved with it. Save it with "
    "save_embedding_layers=True."
)


def load_model(
    source: str | Path | PreTrainedModel,
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    device: str | torch.device = "auto",
    *,
    dtype: torch.dtype = torch.float32,
    quantize: str | None = None,
    revision: str | None = None,
    source_language: str = "",
    target_language: str = "",
    prefix: str = "",
) -> Model:
    """A model with its head, its tokenizer and its anatomy, in evaluation mode.

    Args:
        source: A name on the model hub (`NAME@REVISION` for a branch, tag or commit), a folder from `save_pretrained`
            or `save_pruned`, an adapter folder from `peft` (LoRA, DoRA, IA3, ...; it is merged into the model that it
            names, and the result is compared with peft's), a `.gguf` file, or a model instance (which stays on its
            device and in its precision unless `device` is set, and is put in evaluation mode).
        tokenizer: A tokenizer, or its name or folder; default: the one saved with the weights. Without any, the model
            takes token ids but no text.
        device: "auto": a GPU if there is one; if the model is larger than its free memory, accelerate spreads it over
            all GPUs, memory and disk. An instance that accelerate placed stays where it is. Or "cpu", "cuda", ...
        dtype: Precision of weights that are read from disk.
        quantize: "int8": 8-bit weights of linear layers (torchao), made while loading. A checkpoint that is saved
            quantised (GPTQ, AWQ, ...) is read as it is.
        revision: Branch, tag or commit of a name on the hub, for `NAME@REVISION`.
        source_language: Code of the language of input texts, for tokenizers that mark it (NLLB, mBART, M2M100,
            SeamlessM4T).
        target_language: Code of such a model's output language.
        prefix: Prefix of each input text, as in T5's training: "translate English to German:". Its tokens count as
            special.

    The class is the one in `config.architectures`, so the trained head is kept. Weights are read from safetensors, or
    from `.bin` files with `weights_only`; nothing is unpickled and no remote code runs. Banded attention (Longformer,
    LED) is computed as one masked softmax from then on, equal up to rounding.

    Raises:
        UserError: Nothing is found there, weights are missing or unused, the configuration needs something that this
            version of transformers does not compute, the tokenizer does not fit or does not support the language, the
            weights are on no device, a package for quantised weights is missing, or the family cannot be tapped (with
            the reason).
    """
    if revision is not None:
        source = named_at(source, revision)
    _check_instance(source)
    advice = "Use the tokenizer that the model was trained with."
    module, name, home = _module(source, dtype, device, quantize)
    check_finite(module, name if home is None else home)
    if isinstance(home, Path) and is_adapter_folder(home):
        advice = _UNSAVED if tokenizer is None else advice
        home = home if has_tokenizer(home) else adapted_base(home)
    wanted = module.device if home is None and device == "auto" else _device(device)
    if is_placed(module):
        if home is None and device != "auto":
            raise UserError(
                f"accelerate placed the weights of the {type(module).__name__}, so it cannot move. Got device "
                f"{device}. Use auto, or pass its folder or name instead."
            )
    elif module.device != wanted:
        module = module.to(wanted)
    module = module.eval()
    if getattr(module.config, "output_router_logits", False):  # of a training loss, which fails if blocks are left out
        module.config.output_router_logits = False
    found = find_tokenizers(tokenizer, home)
    _check_vocabulary(module, found[0], name, advice)
    chosen = bool(source_language or target_language or prefix)
    reading = Reading(source_language=source_language, target_language=target_language, prefix=prefix, chosen=chosen)
    generation = getattr(module, "generation_config", None)
    source_tokenizer, target_tokenizer = reading_tokenizers(found, name, module.config, generation, reading)
    read_bands_densely(module)
    model = Model(
        name=name,
        module=module,
        tokenizer=source_tokenizer,
        target_tokenizer=target_tokenizer,
        anatomy=Anatomy(stacks=(), parameter_groups=()),
        task="encoder",
        pad_token_id=_pad_token_id(module, source_tokenizer),
    )
    model = _read(model)
    # The task last: its checks of the configuration would hide why a family cannot be read at all.
    model = replace(model, task=_task(module, model.anatomy))
    _note_peculiarities(model)
    return model


def _read(model: Model) -> Model:
    """The model with its anatomy, as a trial pass confirms it; only its blocks if its heads cannot be read.

    Raises:
        UserError: Neither heads nor the states between blocks can be read; the message is about the heads.
    """
    module = model.module
    if isinstance(module, AbstractOwnModel):
        return replace(model, anatomy=discover(module))
    try:
        return tried(replace(model, anatomy=discover(module)))
    except UserError as error:
        stacks = stacks_of_states(module)
        if stacks is None:
            raise
        why = str(error).partition(". ")[0]
        anatomy = Anatomy(stacks=stacks, parameter_groups=parameter_groups(module, stacks), unread=why)
        try:
            return tried(replace(model, anatomy=anatomy))
        except UserError:
            raise error from None


def _module(
    source: Any, dtype: torch.dtype, device: str | torch.device, quantize: str | None
) -> tuple[PreTrainedModel, str, Path | str | None]:
    """The module, its name, and where it was read; None for an instance."""
    if isinstance(source, PreTrainedModel):
        if quantize is not None:
            raise UserError("quantize applies to weights that are read from disk. Got a model instance. Leave it out.")
        return source, source.name_or_path or source.config.model_type, None
    home = existing(source)
    with quiet_loading(), patient_hub():
        return read_module(home, dtype, device, quantize), short_name(home), home


def _note_peculiarities(model: Model) -> None:
    """Say what is unusual about the model's attention or batches."""
    if getattr(model.module.config, "attention_type", None) == "block_sparse":
        current_display().note(
            f"{model.name} attends in blocks in long texts. As transformers does after a first short text, "
            "infoflow reads every text with full attention."
        )
    if model.anatomy.unread:
        current_display().note(f"Only the states of {model.name} are read, not its heads: {model.anatomy.unread}.")
    if any(one.gated for one in model.anatomy.attentions()):
        current_display().note(
            f"{model.name} multiplies the outputs of its heads by gates. Copying scores and the lengths of values are "
            "measured before the gates; LRP methods and ALTI do not apply."
        )
    if not model.pads:
        current_display().note(
            f"Padding changes the results of {model.name} for a sentence, so its batches hold sentences of equal "
            "length."
        )


def _check_instance(source: object) -> None:
    """Refuse modules with an adapter: their weights are not those that their layers compute with."""
    if isinstance(source, Module) and any(type(child).__module__.startswith("peft.") for child in source.modules()):
        raise UserError(
            f"The {type(source).__name__} contains an adapter. Use the model that its merge_and_unload() returns, or "
            "the folder of the adapter."
        )
    if not isinstance(source, PreTrainedModel):
        return
    devices = {str(one.device) for one in (*source.parameters(), *source.buffers())}
    if (len(devices) > 1 or "meta" in devices) and not is_placed(source):
        raise UserError(
            f"The weights of the {type(source).__name__} must be on one device. They are on "
            f"{', '.join(sorted(devices)).replace('meta', 'none (never loaded)')}, and accelerate has not placed them. "
            "Load it with device_map, or pass its name or folder and a device."
        )


def load_tokenizer_of(source: str, tokenizer: str | Path | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer that `load_model` would give a model, without its weights."""
    home = existing(source)
    if isinstance(home, Path) and is_adapter_folder(home) and not has_tokenizer(home):
        home = adapted_base(home)
    if (found := find_tokenizers(tokenizer, home)[0]) is None:
        raise UserError(f"{source} has no tokenizer. Name one: --tokenizer.")
    return found


def check_loading(tokenizer: str | Path | None, device: str) -> None:
    """Check the arguments of many loads before the first one.

    Args:
        tokenizer: Folder or name, if given.
        device: As in `load_model`.

    Raises:
        UserError: There is no such tokenizer, or torch cannot use the device here.
    """
    _device(device)
    if tokenizer is not None:
        find_tokenizers(tokenizer, None)


def _device(device: str | torch.device) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if str(device) == "cuda" and torch.cuda.device_count() > 1 and launched()[1] > 1:
        device = f"cuda:{local_rank() % torch.cuda.device_count()}"  # plain cuda is the first GPU everywhere
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"--device must name a device that torch can use here. Got {device}: {reason}") from error
    return found


def _check_vocabulary(
    module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, name: str, advice: str
) -> None:
    size = vocabulary_size(module)
    if tokenizer is None:
        return
    last = max(tokenizer.get_vocab().values(), default=0)
    if len(tokenizer) <= size <= last:
        raise UserError(
            f"The tokenizer does not fit {name}: its largest token id is {last}, the model's {size - 1}. {advice}"
        )
    if len(tokenizer) > size:
        raise UserError(
            f"The tokenizer does not fit {name}: it has {len(tokenizer)} tokens, the model {size}. {advice}"
        )


def _classes(task: str, *further: str) -> set[str]:
    """Names of the classes of a task: transformers' and `further` ones."""
    from transformers.models.auto import modeling_auto  # slow import

    return {*getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").values(), *further}


def _task(module: PreTrainedModel, anatomy: Anatomy) -> Task:
    family = type(module).__name__
    if family in _classes("SEQ_TO_SEQ_CAUSAL_LM", "EncoderDecoderModel"):
        return "seq2seq"
    if family in _classes("CAUSAL_LM", "PlainBertLMHeadModel"):
        if not all(stack.causal for stack in anatomy.stacks):
            raise UserError(
                f"{family} predicts the next token but attends to later tokens: its configuration lacks "
                "is_decoder=True. Set it, or load the checkpoint as a masked language model."
            )
        return "causal-lm"
    if family in _classes("MASKED_LM", "BertForPreTraining", "AlbertForPreTraining", "PlainBertForMaskedLM"):
        return "masked-lm"
    return _task_by_structure(module, anatomy)


def _task_by_structure(module: PreTrainedModel, anatomy: Anatomy) -> Task:
    """The task of a family without a registered language model, such as text and images, from its stacks and head."""
    predicted = getattr(output_embeddings(module), "out_features", 0)
    # Some read a few tokens that they never predict (ImageGPT its start).
    if not vocabulary_size(module) // 2 < predicted <= vocabulary_size(module) or not anatomy.predicts.causal:
        return "encoder"
    return "seq2seq" if len(anatomy.stacks) > 1 else "causal-lm"


def _pad_token_id(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> int:
    """Padding is masked everywhere, so any id serves if a model has none, or none that it embeds."""
    candidates = [getattr(module.config, "pad_token_id", None), getattr(tokenizer, "pad_token_id", None)]
    size = vocabulary_size(module)
    return next((int(token) for token in candidates if token is not None and 0 <= token < size), 0)
