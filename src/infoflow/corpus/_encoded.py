"""A corpus as token ids, memory-mapped if it is large, and batches of similar length."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

import numpy as np

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.foundation import UserError, as_written, current_display, digest, read_object

from ._alignment import NOT_A_WORD, Alignment, SubwordAligner
from ._store import cached


def length_batches(lengths: np.ndarray, token_budget: int, max_sentences: int | None = None) -> list[np.ndarray]:
    """Rows sorted by length (ties by row) and cut into batches of padded size ≤ `token_budget`, shortest first.

    The padded size of a batch is its number of rows times its longest length. A row longer than the budget forms its
    own batch. Deterministic; every row is in exactly one batch.
    """
    if token_budget < 1 or (max_sentences is not None and max_sentences < 1):
        raise UserError(f"token_budget and max_sentences must be at least 1. Got {token_budget} and {max_sentences}.")
    order = np.argsort(lengths, kind="stable")
    batches: list[np.ndarray] = []
    start = 0
    sorted_lengths = np.asarray(lengths)[order].tolist()
    for end, length in enumerate(sorted_lengths):
        size = end - start + 1
        if end > start and (size * length > token_budget or (max_sentences is not None and size > max_sentences)):
            batches.append(order[start:end])
            start = end
    if len(order):
        batches.append(order[start:])
    return batches


_VERSION = 3  # increase when the same inputs give different arrays
_BATCH = 2048
_TYPES = {"ids": np.int32, "words": np.int32, "spans": np.int32, "special": np.bool_}
_FACTS = "encoded.json"
_FEW_TOKENS, _REMEMBERED = 1 << 18, 8
_RECENT: dict[str, tuple[dict[str, np.ndarray], list[int], int]] = {}

TextBatch = tuple[Sequence[str], Sequence[Sequence[int]] | None]
"""Texts, and where words are known the character at which each begins."""
_LOOKED_AT = 1_000_000  # tokens
_FEW = 0.05  # a note is shown from this share of words that the tokenizer does not know
_noted: set[str] = set()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Encoded:
    """Token ids of every sentence of a corpus, special tokens included.

    Row i is sentence i of the corpus that was encoded; `flat_*[offsets[i]:offsets[i + 1]]` is its part of the flat
    arrays.
    """

    offsets: np.ndarray  # int64 (sentence + 1,)
    flat_ids: np.ndarray  # int32 (token,)
    flat_words: np.ndarray | None  # int32 (token,); None: the tokenizer is slow and has no words
    flat_spans: np.ndarray | None  # int32 (token, 2)
    flat_special: np.ndarray  # bool (token,)
    sentence_ids: np.ndarray  # int64 (sentence,), as `Corpus.ids`
    num_truncated: int  # sentences cut to `max_length`
    max_length: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each sentence, special ones included: int32 (sentence,)."""
        return np.diff(self.offsets).astype(np.int32)

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the whole corpus, special ones included."""
        return int(self.offsets[-1])

    def row(self, i: int) -> np.ndarray:
        """Token ids of sentence i: int32 (token,)."""
        return self.flat_ids[self._part(i)]

    def words(self, i: int) -> np.ndarray:
        """The word of each token of sentence i, from 0; −1 for a special token: int32 (token,)."""
        return _known(self.flat_words, "Word ids")[self._part(i)]

    def spans(self, i: int) -> np.ndarray:
        """Start and end character of each token in the text; (−1, −1) for a special one: int32 (token, 2)."""
        return _known(self.flat_spans, "Character spans")[self._part(i)]

    def special(self, i: int) -> np.ndarray:
        """Whether each token was added by the tokenizer ([CLS], `</s>`, ...): bool (token,)."""
        return self.flat_special[self._part(i)]

    def _part(self, i: int) -> slice:
        if not -len(self) <= i < len(self):
            raise IndexError(f"row {i} of {len(self)}")
        i %= len(self)
        return slice(int(self.offsets[i]), int(self.offsets[i + 1]))


def encode(
    sentences: Iterable[TextBatch],
    sentence_ids: np.ndarray,
    tokenizer: PreTrainedTokenizerBase,
    *,
    key: str,
    target: bool,
    max_length: int,
    rendered: bool = False,
) -> Encoded:
    """Encode batches of texts in one pass; `key` identifies the corpus and the side.

    `rendered` texts are those of a chat template, which has written their control tokens.

    A large corpus is written to the cache and memory-mapped; later calls find it there.
    """
    limit = min(max_length, _longest(tokenizer))
    known = digest([_VERSION, key, tokenizer_digest(tokenizer), target, limit])
    batches = _aligned(sentences, tokenizer, limit, target, rendered)
    if len(sentence_ids) <= _BATCH:
        arrays, lengths, truncated = _encoded_once(known, batches)
    else:

        def make(folder: Path) -> None:
            with current_display().progress("encoding", total=len(sentence_ids), unit="sentences") as progress:
                _write(folder, batches, progress.advance)

        folder = cached(f"encoded/{known}", make, "The encoded corpus")
        arrays = {name: _map(folder / f"{name}.bin", kind) for name, kind in _TYPES.items()}
        lengths = np.fromfile(folder / "lengths.bin", dtype=np.int32)
        truncated = read_object(folder / _FACTS)["truncated"]
    if truncated:
        current_display().note(f"Sentences truncated at {limit} tokens: {truncated} of {len(lengths)}.")
    encoded = Encoded(
        offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        flat_ids=arrays["ids"],
        flat_words=arrays["words"] if tokenizer.is_fast else None,
        flat_spans=arrays["spans"].reshape(-1, 2) if tokenizer.is_fast else None,
        flat_special=arrays["special"],
        sentence_ids=sentence_ids,
        num_truncated=truncated,
        max_length=limit,
    )
    if len(encoded):
        _check_known(encoded, tokenizer, key=known)
    return encoded


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """A content key of everything that affects a tokenizer's encoding."""
    if tokenizer.is_fast:
        description = json.loads(tokenizer.backend_tokenizer.to_str())
        # These two change with every call, and each call sets them again.
        description.update(truncation=None, padding=None)
    else:
        description = [type(tokenizer).__name__, sorted(tokenizer.get_vocab().items()), repr(tokenizer.init_kwargs)]
    marked = [language] if (language := getattr(tokenizer, "tgt_lang", None)) else []  # of targets
    text = json.dumps([description, tokenizer.model_max_length, *marked], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def template_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """A key of everything that affects how a tokenizer's chat template renders conversations."""
    return digest([tokenizer.chat_template, {name: str(text) for name, text in tokenizer.special_tokens_map.items()}])


def token_frequencies(encoded: Encoded, vocab_size: int) -> np.ndarray:
    """Number of occurrences of each token id, without special tokens: int64 (vocab_size,)."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    step = 1 << 22  # tokens counted at a time, so that a memory-mapped corpus stays on disk
    for start in range(0, encoded.num_tokens, step):
        part = slice(start, start + step)
        counts += np.bincount(encoded.flat_ids[part][~encoded.flat_special[part]], minlength=vocab_size)
    return counts


def _aligned(
    batches: Iterable[TextBatch], tokenizer: PreTrainedTokenizerBase, max_length: int, target: bool, rendered: bool
) -> Iterator[list[Alignment]]:
    if tokenizer.is_fast:
        aligner = SubwordAligner(tokenizer, max_length, target, rendered)
        yield from (aligner.align(texts, starts) for texts, starts in batches)
    else:
        yield from ([_slow(tokenizer, text, max_length, target) for text in texts] for texts, _ in batches)


def _slow(tokenizer: PreTrainedTokenizerBase, text: str, max_length: int, target: bool) -> Alignment:
    argument = {"text_target" if target else "text": text}
    whole: list[int] = list(tokenizer(**argument)["input_ids"])
    ids: list[int] = list(tokenizer(**argument, truncation=True, max_length=max_length)["input_ids"])
    control = {token for token in tokenizer.all_special_ids if token != tokenizer.unk_token_id}
    control.update(tokenizer.convert_tokens_to_ids(list(getattr(tokenizer, "supported_language_codes", ()))))  # Marian
    nothing = [NOT_A_WORD] * len(ids)
    return Alignment(ids, nothing, [(-1, -1)] * len(ids), [token in control for token in ids], len(whole) > len(ids))


def _encoded_once(key: str, batches: Iterable[list[Alignment]]) -> tuple[dict[str, np.ndarray], list[int], int]:
    """Arrays, lengths and truncated rows of a small corpus; of the last few, each stage of a study encodes none again."""
    if key in _RECENT:
        return _RECENT[key]
    rows = [row for batch in batches for row in batch]
    found = _arrays(rows), [len(row.ids) for row in rows], sum(row.truncated for row in rows)
    if sum(found[1]) <= _FEW_TOKENS:
        _RECENT[key] = found
        for oldest in list(_RECENT)[:-_REMEMBERED]:
            del _RECENT[oldest]
    return found


def _arrays(batch: list[Alignment]) -> dict[str, np.ndarray]:
    """Flat arrays: a start and an end for each span."""
    flat = {name: [item for row in batch for item in getattr(row, name)] for name in _TYPES}
    return {name: np.array(values, dtype=_TYPES[name]).reshape(-1) for name, values in flat.items()}


def _write(folder: Path, batches: Iterable[list[Alignment]], advance) -> None:
    lengths: list[np.ndarray] = []
    truncated = 0
    with ExitStack() as files:
        outputs = {name: files.enter_context((folder / f"{name}.bin").open("wb")) for name in _TYPES}
        for batch in batches:
            for name, values in _arrays(batch).items():
                values.tofile(outputs[name])
            lengths.append(np.array([len(row.ids) for row in batch], dtype=np.int32))
            truncated += sum(row.truncated for row in batch)
            advance(len(batch))
    np.concatenate(lengths).tofile(folder / "lengths.bin")
    (folder / _FACTS).write_text(json.dumps({"truncated": truncated}), encoding="utf-8")


def _map(path: Path, kind: type) -> np.ndarray:
    # An empty file cannot be mapped; slices of a plain array cost a tenth of those of a memmap.
    return np.memmap(path, dtype=kind, mode="r").view(np.ndarray) if path.stat().st_size else np.empty(0, dtype=kind)


def _known(array: np.ndarray | None, what: str) -> np.ndarray:
    if array is None:
        raise UserError(
            f"{what} need a fast tokenizer, and this one is slow.\n"
            "Load the model with a fast tokenizer (AutoTokenizer.from_pretrained(..., use_fast=True))."
        )
    return array


def _longest(tokenizer: PreTrainedTokenizerBase) -> int:
    """Maximum number of tokens in the tokenizer's own settings; at least a start, an end and a token between them."""
    given = tokenizer.model_max_length
    if isinstance(given, Real) and not isinstance(given, bool) and given >= 3 and given == given // 1:
        return int(given)
    raise UserError(
        f"model_max_length of a tokenizer must be a whole number, at least 3. Got {as_written(given)}. Correct it in "
        "tokenizer_config.json."
    )


def _check_known(encoded: Encoded, tokenizer: PreTrainedTokenizerBase, key: str) -> None:
    """Refuse a tokenizer with no tokens or the same one for all words; note once if it covers only part of the text.

    The first million tokens are checked. `key` identifies corpus and tokenizer, so that a note is shown once.
    """
    real = ~encoded.flat_special[:_LOOKED_AT]
    tokens, words, spans = (
        None if flat is None else flat[:_LOOKED_AT][real]
        for flat in (encoded.flat_ids, encoded.flat_words, encoded.flat_spans)
    )
    assert tokens is not None
    if not len(tokens):
        raise UserError(f"{_name(tokenizer)} produces no tokens for the corpus. {_ADVICE}")
    unknown = tokens == (-1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id)
    if words is not None:
        starts = np.flatnonzero(np.diff(words, prepend=words[0] - 1))  # a word ends when its number changes
        unknown = np.logical_or.reduceat(unknown, starts)
    share = float(unknown.mean())
    if share == 1 or _all_alike(tokens, spans):
        raise UserError(f"{_name(tokenizer)} produces the same token for every word of the corpus. {_ADVICE}")
    if share > _FEW and key not in _noted:
        _noted.add(key)
        current_display().note(
            f"{_name(tokenizer)} does not know {share:.0%} of the words of the corpus, and produces "
            f"{tokenizer.unk_token} for them or parts of them."
        )


_ADVICE = "Use the tokenizer that the model was trained with, or a corpus in the model's language."


def _name(tokenizer: PreTrainedTokenizerBase) -> str:
    return f"The tokenizer ({type(tokenizer).__name__}, {len(tokenizer)} tokens)"


def _all_alike(tokens: np.ndarray, spans: np.ndarray | None) -> bool:
    """Whether words of different lengths all give one token."""
    if spans is None or (tokens != tokens[0]).any():
        return False
    lengths = spans[:, 1] - spans[:, 0]
    return bool((lengths != lengths[0]).any())
