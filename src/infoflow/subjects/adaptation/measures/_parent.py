"""The model from which further pretraining starts, and additional tokens for it."""

import copy
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from infoflow._transformers import (
    EncoderDecoderModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    T5ForConditionalGeneration,
)
from infoflow.architectures import Layout
from infoflow.foundation import UserError
from infoflow.models import Model, Task, load_model
from infoflow.objectives import AbstractObjective, Vocabulary

_TEXTS = 200_000  # maximum number of texts for learning merges
_CONTINUES = "##"  # WordPiece's prefix of a piece inside a word
_LEARNS = ("BPE", "WordPiece")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ExtendedVocabulary:
    """A tokenizer with new tokens after the old ones."""

    tokenizer: PreTrainedTokenizerBase
    pieces: dict[int, list[int]] = field(default_factory=dict)
    """For each new id, the old ids into which the old tokenizer splits it."""


def extend_vocabulary(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], num: int, min_frequency: int = 2
) -> ExtendedVocabulary:
    """The tokenizer with up to `num` more tokens, learned on `texts`; every old token keeps its id.

    Byte-pair encoding continues where the old tokenizer stopped: `num` times, the most frequent adjacent pair of pieces
    in the words of `texts` becomes a token. A new token is thus a sequence of old ones, and text without new tokens is
    split as before. There are fewer new tokens if no pair occurs `min_frequency` times.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    state = json.loads(backend.to_str()) if backend is not None else {"model": {}}
    kind = state["model"].get("type")
    if kind not in _LEARNS:
        raise UserError(
            f"Only vocabularies of {' and '.join(_LEARNS)} tokenizers can be extended. Got "
            f"{kind or type(tokenizer).__name__}. Continue training without new tokens."
        )
    old = tokenizer.get_vocab()
    merges = _learned(_words(tokenizer, texts), old, num, min_frequency, kind)
    first = max(old.values()) + 1
    new = {_joined(pair, kind): first + index for index, pair in enumerate(merges)}
    # On reload, added tokens unknown to the underlying model would be numbered after the new ones.
    state["model"]["vocab"] |= {one["content"]: one["id"] for one in state["added_tokens"]} | new
    if kind == "BPE":
        pairs = state["model"]["merges"]
        as_text = bool(pairs) and isinstance(pairs[0], str)
        pairs += [" ".join(pair) if as_text else list(pair) for pair in merges]
    extended: Any = copy.deepcopy(tokenizer)
    extended._tokenizer = Tokenizer.from_str(json.dumps(state))
    return ExtendedVocabulary(tokenizer=extended, pieces=_old_pieces(merges, new, old, kind))


def add_tokens(module: PreTrainedModel, vocabulary: ExtendedVocabulary, decoder: bool = True) -> None:
    """Add rows for the new tokens to the model, in place; each is the mean of the rows of its old pieces.

    Rows are added to the embeddings and to the token-prediction head with its bias. In a model with two stacks they are
    also added to those of the decoder, unless `decoder` is false because the decoder writes another language.
    """
    parts = [module]
    if isinstance(module, EncoderDecoderModel):
        parts = [module.encoder, *([module.decoder] if decoder else [])]
    for part in parts:
        _add_rows(part, vocabulary)  # type: ignore[arg-type]
    config: Any = module.config
    if isinstance(module, EncoderDecoderModel) and decoder and getattr(config, "vocab_size", None):
        config.vocab_size = parts[-1].config.vocab_size  # type: ignore[union-attr]


def _add_rows(module: PreTrainedModel, vocabulary: ExtendedVocabulary) -> None:
    embeddings: Any = module.get_input_embeddings()
    needed = max(vocabulary.pieces, default=-1) + 1
    if needed > embeddings.num_embeddings:
        module.resize_token_embeddings(needed, mean_resizing=False)
    embeddings, head = module.get_input_embeddings(), module.get_output_embeddings()
    tensors: list[Tensor] = [embeddings.weight]
    if isinstance(head, nn.Linear):
        tensors += [] if head.weight is embeddings.weight else [head.weight]
        tensors += [] if head.bias is None else [head.bias]
    with torch.no_grad():
        for tensor in tensors:
            for new, pieces in vocabulary.pieces.items():
                tensor[new] = tensor[pieces].mean(dim=0)


def _words(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Counter[tuple[str, ...]]:
    """Count of each word, as the pieces that the tokenizer splits it into; single-piece words are left out."""
    words: Counter[tuple[str, ...]] = Counter()
    batches = iter(islice(texts, _TEXTS))
    backend: Any = tokenizer.backend_tokenizer  # type: ignore[attr-defined]
    while batch := list(islice(batches, 1000)):
        for encoding in backend.encode_batch(batch, add_special_tokens=False):
            pieces: dict[int, list[str]] = defaultdict(list)
            for token, word in zip(encoding.tokens, encoding.word_ids, strict=True):
                if word is not None:
                    pieces[word].append(token)
            words.update(tuple(row) for row in pieces.values() if len(row) > 1)
    return words


def _learned(
    words: Counter[tuple[str, ...]], old: dict[str, int], num: int, min_frequency: int, kind: str
) -> list[tuple[str, str]]:
    """The pairs that become tokens, in order; ties are broken alphabetically."""
    rows = [list(word) for word in sorted(words)]
    counts = [words[tuple(row)] for row in rows]
    pairs: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], set[int]] = defaultdict(set)
    for index, row in enumerate(rows):
        for pair in pairwise(row):
            pairs[pair] += counts[index]
            where[pair].add(index)
    known, merges = set(old), list[tuple[str, str]]()
    while len(merges) < num:
        fresh = [(count, pair) for pair, count in pairs.items() if count >= min_frequency]
        fresh = [(count, pair) for count, pair in fresh if _joined(pair, kind) not in known]
        if not fresh:
            break
        _, best = min(fresh, key=lambda each: (-each[0], each[1]))
        merges.append(best)
        known.add(_joined(best, kind))
        for index in where.pop(best):
            _merge(rows, counts, pairs, where, index, best, _joined(best, kind))
    return merges


def _merge(
    rows: list[list[str]],
    counts: Sequence[int],
    pairs: Counter[tuple[str, str]],
    where: dict[tuple[str, str], set[int]],
    index: int,
    best: tuple[str, str],
    joined: str,
) -> None:
    """Rewrite a word with the new token, and update its pair counts."""
    for pair in pairwise(rows[index]):
        pairs[pair] -= counts[index]
    row, merged = rows[index], list[str]()
    while row:
        size = 2 if tuple(row[:2]) == best else 1
        merged.append(joined if size == 2 else row[0])
        row = row[size:]
    rows[index] = merged
    for pair in pairwise(merged):
        pairs[pair] += counts[index]
        where[pair].add(index)


def _joined(pair: tuple[str, str], kind: str) -> str:
    return pair[0] + (pair[1].removeprefix(_CONTINUES) if kind == "WordPiece" else pair[1])


def _old_pieces(
    merges: Sequence[tuple[str, str]], new: dict[str, int], old: dict[str, int], kind: str
) -> dict[int, list[int]]:
    pieces: dict[str, list[int]] = {}
    for pair in merges:
        pieces[_joined(pair, kind)] = [id for part in pair for id in pieces.get(part) or [old[part]]]
    return {new[token]: ids for token, ids in pieces.items()}


# The model from which further pretraining starts, and whether an objective fits it.

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
"""Layout → its model task, a description, and which models can be trained further."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Parent:
    """A model for further training, with its tokenizers."""

    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase | None  # tokenizer of the output, if the output is in another language
    digest: str  # digest of its weights and configuration as loaded
    positions: int  # maximum number of tokens of a text

    def extended(self, vocabulary: ExtendedVocabulary, objective: AbstractObjective) -> "Parent":
        """The parent with new tokens; its module changes in place, and the digest stays that of the loaded model.

        A translation model gets them on the source side only.
        """
        add_tokens(self.module, vocabulary, decoder=not objective.needs_translation)
        return replace(self, tokenizer=vocabulary.tokenizer)


def load_parent(source: str | Path, objective: AbstractObjective, positions: int = 512) -> Parent:
    """The model with this folder or name, on the CPU, for training with `objective`.

    Texts have at most `positions` tokens, or as many as the model can read.

    A tokenizer without a padding token, such as GPT-2's, pads with its end-of-text token; padding is on the right,
    where no causal position attends to it, and it has no loss.
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
            "Use an objective with a single model, such as masked-lm or causal-lm; in a study, [domain] works with any."
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
