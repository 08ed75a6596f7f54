"""Load a model by name, from a folder or a GGUF file, or take an instance; check it before use."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerBase
from infoflow.foundation import UserError, current_display, patient_hub

from ._adapter import is_adapter_folder
from ._anatomy import Anatomy
from ._bands import read_bands_densely
from ._discovery import discover, stacks_of_states
from ._first_pass import output_embeddings, vocabulary_size
from ._hub import named_at
from ._model import Model, Task
from ._modules import without_remarks
from ._own_models import AbstractOwnModel
from ._parameters import parameter_groups
from ._placed import is_placed
from ._read import adapted_base, existing, read_module, short_name, usable_device
from ._tokenizers import Reading, find_tokenizers, has_tokenizer, reading_tokenizers
from ._trials import tried
from ._weights import check_finite

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
            all GPUs, memory and disk. An instance that accelerate placed stays in place. Other values: "cpu", "cuda".
        dtype: Precision of weights that are read from disk.
        quantize: "int8": 8-bit weights of linear layers (torchao), made while loading. A checkpoint that is saved
            quantised (GPTQ, AWQ, ...) is read as it is.
        revision: Branch, tag or commit of a name on the hub, instead of `NAME@REVISION`.
        source_language: Code of the language of input texts, for tokenizers that mark it (NLLB, mBART, M2M100,
            SeamlessM4T).
        target_language: Code of such a model's output language.
        prefix: Prefix of each input text, as in T5's training: "translate English to German:". Its tokens count as
            special.

    The class is the one in `config.architectures`, so the trained head is kept. Weights are read from safetensors, or
    from `.bin` files with `weights_only`; nothing is unpickled and no remote code runs. Banded attention (Longformer,
    LED) is computed as one masked softmax from then on, equal up to rounding.

    Raises:
        UserError: `source` is not found, weights are missing or unused, the configuration needs something that this
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
    wanted = module.device if home is None and device == "auto" else usable_device(device)
    if is_placed(module):
        if home is None and device != "auto":
            raise UserError(
                f"accelerate placed the weights of the {type(module).__name__}, so it cannot move. Got device "
                f"{device}. Use auto, or pass its folder or name instead."
            )
    elif module.device != wanted:
        module = module.to(wanted)
    module = module.eval()
    if getattr(module.config, "output_router_logits", False):  # for a training loss that fails if blocks are left out
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
    # The task comes last, since its checks of the configuration would hide why a family cannot be read at all.
    model = replace(model, task=_task(module, model.anatomy))
    _note_peculiarities(model)
    return model


def _read(model: Model) -> Model:
    """The model with its anatomy (just the blocks if the heads cannot be read), confirmed by a trial pass."""
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
    """The module, its name, and the place it was read from (None for an instance)."""
    if isinstance(source, PreTrainedModel):
        if quantize is not None:
            raise UserError("quantize applies to weights that are read from disk. Got a model instance. Leave it out.")
        return source, source.name_or_path or source.config.model_type, None
    home = existing(source)
    with without_remarks(), patient_hub():
        return read_module(home, dtype, device, quantize), short_name(home), home


def _note_peculiarities(model: Model) -> None:
    """Note what is unusual about the model's attention or batches."""
    if getattr(model.module.config, "attention_type", None) == "block_sparse":
        current_display().note(
            f"{model.name} uses block attention in long texts. infoflow reads every text with full attention, as "
            "transformers does once the model has read a short text."
        )
    if model.anatomy.unread:
        current_display().note(f"Only the states of {model.name} are read, not its heads: {model.anatomy.unread}.")
    if any(one.gated for one in model.anatomy.attentions()):
        current_display().note(
            f"{model.name} multiplies the outputs of its heads by gates. Copying scores and the lengths of values are "
            "measured before the gates; LRP methods and ALTI do not apply."
        )
    if reason := model.anatomy.several_streams():
        current_display().note(f"A state of {model.name} is the concatenation of its streams: {reason}.")
    if not model.pads:
        current_display().note(
            f"Padding changes the results of {model.name} for a sentence, so its batches hold sentences of equal "
            "length."
        )


def _check_instance(source: object) -> None:
    """Refuse modules with an adapter, whose layers compute with other weights than they report."""
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
    """Check that the device and the tokenizer (a folder or name) exist, before many models are loaded."""
    usable_device(device)
    if tokenizer is not None:
        find_tokenizers(tokenizer, None)


def _check_vocabulary(
    module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, name: str, advice: str
) -> None:
    last = max(tokenizer.get_vocab().values(), default=0) if tokenizer is not None else 0
    if last >= (size := vocabulary_size(module)):
        raise UserError(
            f"The tokenizer does not fit {name}: its largest token id is {last}, the model's {size - 1}. {advice}"
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
            if not hasattr(module.config, "is_decoder"):  # XLNet predicts tokens in any order
                return "encoder"
            raise UserError(
                f"{family} predicts the next token but attends to later tokens: its configuration lacks "
                "is_decoder=True. Set it, or load the checkpoint as a masked language model."
            )
        return "causal-lm"
    if family in _classes("MASKED_LM", "BertForPreTraining", "AlbertForPreTraining", "PlainBertForMaskedLM"):
        return "masked-lm"
    return _task_by_structure(module, anatomy)


def _task_by_structure(module: PreTrainedModel, anatomy: Anatomy) -> Task:
    """The task of a family without a registered language model (image and text models), by its stacks and head."""
    predicted = getattr(output_embeddings(module), "out_features", 0)
    # Some read a few tokens that they never predict (ImageGPT: its start token).
    if not vocabulary_size(module) // 2 < predicted <= vocabulary_size(module) or not anatomy.predicts.causal:
        return "encoder"
    return "seq2seq" if len(anatomy.stacks) > 1 else "causal-lm"


def _pad_token_id(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> int:
    """The padding id; padding is masked everywhere, so any id serves if the model has none, or none that it embeds."""
    candidates = [getattr(module.config, "pad_token_id", None), getattr(tokenizer, "pad_token_id", None)]
    size = vocabulary_size(module)
    return next((int(token) for token in candidates if token is not None and 0 <= token < size), 0)
