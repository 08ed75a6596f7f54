"""The model that further pretraining starts from, and whether an objective fits it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import EncoderDecoderModel, PreTrainedModel, PreTrainedTokenizerBase, T5ForConditionalGeneration

from infoflow.architectures import Layout
from infoflow.foundation import UserError
from infoflow.models import Model, Task, load_model
from infoflow.objectives import AbstractObjective, Vocabulary

from ._extended_vocabulary import ExtendedVocabulary, add_tokens

_STACKS = (EncoderDecoderModel, T5ForConditionalGeneration)
_TASKS: Mapping[Layout, tuple[Task, str, str]] = {
    "encoder": ("masked-lm", "an encoder with a head for masked language modelling", "such a model (BertForMaskedLM)"),
    "decoder": ("causal-lm", "a decoder with a language-model head", "such a model (GPT2LMHeadModel)"),
    "encoder-decoder": (
        "seq2seq",
        "an encoder and a decoder, an EncoderDecoderModel or a T5ForConditionalGeneration",
        "one of these classes",
    ),
}
"""By layout: what such a model does, what it is, and which ones can be trained further."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Parent:
    """A model for further training, with its tokenizers."""

    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase | None  # of the output, if it is another language
    digest: str
    """Digest of its weights and configuration as loaded."""
    positions: int
    """Maximum number of tokens of a text."""

    def extended(self, vocabulary: ExtendedVocabulary, objective: AbstractObjective) -> "Parent":
        """The parent with new tokens; its module changes in place, and the digest stays that of the loaded model.

        A translation model gets them on the source side only.
        """
        add_tokens(self.module, vocabulary, decoder=not objective.needs_translation)
        return Parent(
            module=self.module,
            tokenizer=vocabulary.tokenizer,
            target_tokenizer=self.target_tokenizer,
            digest=self.digest,
            positions=self.positions,
        )


def load_parent(source: str | Path, objective: AbstractObjective, positions: int = 512) -> Parent:
    """The model in a folder or of that name, on the CPU, for training with `objective`.

    Texts have `positions` tokens, or as many as the model can read.

    A tokenizer without a padding token, as GPT-2's, pads with its last token: padding is on the right, where no causal
    position sees it and it has no loss.

    Raises:
        UserError: The model cannot be loaded, or the objective does not fit it.
    """
    model = load_model(source, device="cpu")
    own: Any = model.require_tokenizer()
    if own.pad_token_id is None and own.eos_token_id is not None:
        own.pad_token = own.eos_token
    limits = [limit for limit in (model.max_tokens, model.max_target_tokens) if limit is not None]
    positions = min([positions, *limits])
    check_fits(objective, model, positions)
    return Parent(
        module=model.module.train(),
        tokenizer=own,
        target_tokenizer=model.target_tokenizer or (own if objective.needs_translation else None),
        digest=model.digest,
        positions=positions,
    )


def check_fits(objective: AbstractObjective, model: Model, positions: int) -> None:
    """Raise a UserError if the objective cannot train the model further, on texts of `positions` tokens."""
    if objective.layout not in _TASKS or objective.teacher or objective.exports_a_part:
        raise UserError(
            f"{objective.name} trains several models, so it cannot start from a model folder. Got {model.name}.\n"
            "Use an objective with a single model, such as masked-lm or causal-lm; in a study, [domain] continues any."
        )
    task, wanted, start = _TASKS[objective.layout]
    if model.task != task or (task == "seq2seq" and not isinstance(model.module, _STACKS)):
        raise UserError(
            f"{objective.name} trains {wanted}. {model.name} is a {type(model.module).__name__}.\n"
            f"Start from {start}{_or_else(model)}."
        )
    vocabulary = Vocabulary.from_tokenizer(model.require_tokenizer())
    if (task == "masked-lm" or objective.needs_mask) and vocabulary.mask is None:
        raise UserError(
            f"{objective.name} needs a mask token. The tokenizer of {model.name} has none.\n"
            f"Start from a model whose tokenizer has one{_or_else(model)}."
        )
    needed, have = objective.num_sentinels(positions), len(vocabulary.sentinels)
    if needed > have:
        raise UserError(
            f"{objective.name} needs {needed} sentinel tokens (<extra_id_0>, ...). The tokenizer of {model.name} has "
            f"{have}.\nStart from a model trained with them, such as T5, or lower model.positions."
        )


def _or_else(model: Model) -> str:
    fitting = ", ".join(_fitting(model))
    return f", or choose an objective that fits: {fitting}" if fitting else ": no objective fits this one"


def _fitting(model: Model) -> list[str]:
    """Some objectives that fit a model; none without a language-model head, or for stacks of another class."""
    if model.task == "causal-lm":
        return ["causal-lm"]
    has_mask = getattr(model.require_tokenizer(), "mask_token_id", None) is not None
    if model.task == "masked-lm":
        return ["masked-lm"] if has_mask else []
    if not isinstance(model.module, _STACKS):
        return []
    return ["translation", "prefix-lm", *(("bart", "mass") if has_mask else ())]
