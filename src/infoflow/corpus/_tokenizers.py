"""Tokenizers: trained, loaded or read from their files, and their data for corrupting text and building models."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import SentencePieceProcessor
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from infoflow._transformers import (
    AutoTokenizer,
    LlamaTokenizer,
    PreTrainedTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    transformers,
)
from infoflow.foundation import UserError, is_unspaced, read_only, writes_no_spaces

from ._plain_text import STOPS

_FILE = "tokenizer.json"
_PROBES = (
    "The old cat, e.g. Tom's, sleeps: 3.14 km away!",
    "  two  spaces, a tab\tand\n\n a new line \r\n",
    "Ünï-code café naïve ﬁne ② ½ ʻŌlelo",
    "don't I'LL we've 1234567 0x1F a_b C++ #tag @me",
    "Кошка спит. Η γάτα κοιμάται. Կատուն քնում է.",
    "老猫在睡觉。 ネコは寝ている。 고양이가 잔다.",
    "القطة نائمة. החתול ישן.",
    "बिल्ली सो रही है। แมวหลับ",
    "def f(x):\n    return x ** 2  # 🐈‍⬛👍🏽",
    "",
)
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_tokenizer(source: str | Path, **options: Any) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder, or of that name on the model hub, with the tokens of its own files.

    transformers may choose a different class for a model's family than the saved one, and it may add its own rules to
    the vocabulary in `tokenizer.json`. So the result is compared with plain `tokenizer.json` on a few texts; if they
    differ, the file wins. The options are for transformers' `from_pretrained`.
    """
    if transformers.utils.cached_file(source, _FILE, **options, **_NO_ERRORS) is None:
        family = _named_class(source, options) or AutoTokenizer
        chosen = family.from_pretrained(source, trust_remote_code=False, **options)
        generic = type(chosen) is transformers.PreTrainedTokenizerFast
        return _as_sentencepiece(chosen, source, options) if generic else chosen
    try:
        chosen = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)
    except Exception:  # a class that is unknown or cannot be built from these files
        return PreTrainedTokenizerFast.from_pretrained(source, **options)
    if type(chosen) is transformers.PreTrainedTokenizerFast:
        return chosen
    plain = PreTrainedTokenizerFast.from_pretrained(source, **options)
    if _alike(chosen, plain):
        return chosen
    vocabulary = plain.get_vocab()
    for name in _SPECIAL:  # special tokens that the class sets and the files do not
        token = getattr(chosen, name)
        if getattr(plain, name) is None and token in vocabulary:
            setattr(plain, name, token)
    return plain


_NO_ERRORS = {f"_raise_exceptions_for_{what}": False for what in ("gated_repo", "missing_entries", "connection_errors")}


def _named_class(source: str | Path, options: dict[str, Any]) -> type[PreTrainedTokenizerBase] | None:
    """The saved class, if it reads its own files.

    AutoTokenizer may choose the class of the model's family, which may find no vocabulary in these files.
    """
    file = transformers.utils.cached_file(source, "tokenizer_config.json", **options, **_NO_ERRORS)
    name = json.loads(Path(file).read_text(encoding="utf-8")).get("tokenizer_class") if file else None
    found = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
    return found if isinstance(found, type) and issubclass(found, PreTrainedTokenizer) else None


def _as_sentencepiece(
    chosen: PreTrainedTokenizerBase, source: str | Path, options: dict[str, Any]
) -> PreTrainedTokenizerBase:
    """Use Llama's class for a sentencepiece model if the given class splits a word differently than that model does."""
    file = getattr(chosen, "vocab_file", None)
    if not isinstance(file, str) or not file.endswith(".model"):
        return chosen
    try:
        expected = SentencePieceProcessor(model_file=file).encode("the", out_type=str)
    except RuntimeError:  # a tiktoken file
        return chosen
    if chosen.tokenize("the") == expected:
        return chosen
    other = LlamaTokenizer.from_pretrained(source, **options)
    return other if other.tokenize("the") == expected else chosen


def _alike(chosen: PreTrainedTokenizerBase, plain: PreTrainedTokenizerBase) -> bool:
    """Whether two tokenizers have the same vocabulary and give the same ids for a few texts."""
    vocabulary = plain.get_vocab()
    if chosen.get_vocab() != vocabulary:
        return False
    some = sorted(vocabulary.values())[:: max(1, len(vocabulary) // 500)]
    special = "".join(f"a {token} b{token}c" for token in plain.all_special_tokens)
    # Classes for translation put the language first or last, depending on a setting.
    add_special = not hasattr(chosen, "src_lang")
    texts = (*_PROBES, special, plain.decode(some, skip_special_tokens=True))
    try:
        ids, expected = (
            [tokenizer(text, add_special_tokens=add_special)["input_ids"] for text in texts]
            for tokenizer in (chosen, plain)
        )
    except Exception:  # a class that does not take text, but for example words with bounding boxes
        return False
    return ids == expected


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Size and special ids of a tokenizer, without the tokenizer."""

    size: int  # number of ids, specials included
    pad: int
    start: int  # the id before a sentence: [CLS]
    end: int  # the id after a sentence: [SEP]
    mask: int | None = None  # None: no masked objective
    special: tuple[int, ...] = ()  # every id without text, the four above included
    sentinels: tuple[int, ...] = ()  # <extra_id_0>, <extra_id_1>, ...: each replaces a removed span
    full_stops: tuple[int, ...] = ()  # ids that end a sentence: . ! ? and those of other scripts
    continues: np.ndarray | None = field(default=None, compare=False, repr=False)
    """Bool (size,): whether a piece continues the word of the previous piece; None: every piece is a word."""
    counts: np.ndarray | None = field(default=None, compare=False, repr=False)
    """int64 (size,): count of each id in the training text; None: not counted."""
    ids: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    """int64 (token,): ids of each text, without special tokens; filled on demand if it comes from a tokenizer."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> "Vocabulary":
        """The vocabulary of a Hugging Face tokenizer with [CLS] x [SEP] or <s> x </s> around its sentences."""
        start = _first(tokenizer.cls_token_id, tokenizer.bos_token_id)
        end = _first(tokenizer.sep_token_id, tokenizer.eos_token_id)
        if start is None or end is None or tokenizer.pad_token_id is None:
            raise UserError(
                "The tokenizer must define a padding token and tokens before and after a sentence. "
                f"Got pad={tokenizer.pad_token_id}, start={start}, end={end}.\n"
                "Train one with infoflow, or add the missing special tokens to it."
            )
        pieces = tokenizer.get_vocab()
        texts = {piece: text.decode(errors="ignore").lstrip("▁# ") for piece, text in _texts(pieces).items()}
        size = max(len(tokenizer), 1 + max(pieces.values(), default=-1))  # ids may have holes
        return cls(
            size=size,
            pad=tokenizer.pad_token_id,
            start=start,
            end=end,
            mask=tokenizer.mask_token_id,
            special=tuple(sorted({*tokenizer.all_special_ids} | ({*range(size)} - {*pieces.values()}))),
            sentinels=_sentinels(pieces),
            full_stops=tuple(sorted(id for piece, id in pieces.items() if texts[piece] in STOPS)),
            continues=_continues(pieces, size, tokenizer.all_special_ids),
            ids=_Ids(tokenizer),
        )

    def with_counts(self, counts: np.ndarray) -> "Vocabulary":
        """The same vocabulary with the frequency of each id in the training text, int64 (size,)."""
        return replace(self, counts=counts)

    def word_starts(self, tokens: np.ndarray) -> np.ndarray:
        """Bool (token,): whether a token begins a word; a special token is its own word."""
        if self.continues is None or len(tokens) == 0:
            return np.ones(len(tokens), dtype=bool)
        special = self.is_special[tokens]
        starts = ~self.continues[tokens] | special
        starts[1:] |= special[:-1]
        starts[0] = True
        return starts

    @cached_property
    def ordinary(self) -> np.ndarray:
        """Ids of text, ascending."""
        return read_only(np.flatnonzero(~self.is_special))

    @cached_property
    def is_special(self) -> np.ndarray:
        """Bool (size,): mask of special token ids."""
        flags = np.zeros(self.size, dtype=bool)
        flags[list(self.special)] = True
        return read_only(flags)

    @cached_property
    def cumulative_counts(self) -> np.ndarray | None:
        """int64 (ordinary,): cumulative counts of the ordinary ids; None: not counted."""
        return None if self.counts is None else read_only(np.cumsum(self.counts[self.ordinary]))


class _Ids(dict[str, np.ndarray]):
    """Ids of texts, encoded on first use."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, text: str) -> np.ndarray:
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return self.setdefault(text, read_only(np.array(ids, dtype=np.int64)))


_PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))  # bytes that GPT-2's vocabulary keeps
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(0x100 + at): byte for at, byte in enumerate(_OTHERS)}
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_SENTINEL = re.compile(r"<extra_id_(\d+)>")


def sentinel_names(num: int) -> list[str]:
    """The names of sentinel tokens, `<extra_id_0>` first."""
    return [f"<extra_id_{index}>" for index in range(num)]


def _sentinels(pieces: dict[str, int]) -> tuple[int, ...]:
    numbered = {int(found[1]): id for piece, id in pieces.items() if (found := _SENTINEL.fullmatch(piece))}
    return tuple(numbered[index] for index in sorted(numbered))


def _continues(pieces: dict[str, int], size: int, special: list[int]) -> np.ndarray | None:
    """Whether each piece continues a word, from its tokenizer's marks: `##` at a continuation, `▁` or `Ġ` at a start.

    None if no piece has such a mark. Punctuation after a word (`,`) is its own word, as is a piece that begins with a
    character of a script without spaces.
    """
    marks = [mark for mark in ("##", "▁", "Ġ") if any(piece.startswith(mark) and piece != mark for piece in pieces)]
    if not marks:
        return None
    flags, texts = np.zeros(size, dtype=bool), _texts(pieces)
    for piece, id in pieces.items():
        if "##" in marks:
            flags[id] = piece.startswith("##")
        else:
            flags[id] = not piece.startswith(marks[0]) and _is_inside(texts[piece])
    flags[special] = False
    return read_only(flags)


def _texts(pieces: Iterable[str]) -> dict[str, bytes]:
    """The text of each piece in UTF-8, which may be part of a character.

    Byte-level vocabularies write each byte as a character (`Ġ` is the space), others write single bytes as `<0xE6>`.
    """
    by_bytes = any(piece.startswith("Ġ") for piece in pieces) and not any(piece.startswith("▁") for piece in pieces)
    return {piece: _text_of(piece, by_bytes) for piece in pieces}


def _text_of(piece: str, by_bytes: bool) -> bytes:
    if found := _BYTE.fullmatch(piece):
        return bytes([int(found[1], 16)])
    return bytes(map(_BYTES.__getitem__, piece)) if by_bytes and _BYTES.keys() >= set(piece) else piece.encode()


def _is_inside(text: bytes) -> bool:
    """Whether a piece without a start mark continues a word.

    True for letters and combining marks, except characters of scripts without spaces, which are words themselves, and
    for the later bytes of a character.
    """
    if not text or text[0] in range(0x80, 0xC0):
        return bool(text)
    missing = (1 + (text[0] >= 0xC0) + (text[0] >= 0xE0) + (text[0] >= 0xF0)) - len(text)
    if missing > 0:  # an incomplete character: test the first and the last character with these bytes
        ends = [(text + end * missing).decode(errors="ignore") for end in (b"\x80", b"\xbf")]
        return not all(map(writes_no_spaces, ends))
    piece = text.decode(errors="ignore")
    return not is_unspaced(piece) and any(
        sign.isalnum() or unicodedata.category(sign).startswith("M") for sign in piece
    )


def _first(*ids: int | None) -> int | None:
    return next((id for id in ids if id is not None), None)


SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Special tokens of a trained tokenizer; their ids are 0..4, in this order."""
PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS

_PIECE = r"▁?\w+|▁?[^\w▁]"  # a word or one other sign, each with the space before it


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    lowercase: bool = True,
    min_frequency: int = 2,
    max_length: int = 512,
    sentinels: int = 0,
) -> PreTrainedTokenizerFast:
    """Learn byte-pair encoding (BPE) from sentences; the same texts always give the same tokenizer.

    Text is normalised (NFKC, and optionally lower-cased), split at white space and punctuation, and encoded as `[CLS] x
    [SEP]`. `▁` stands for the space before a piece. `vocab_size` includes the five special tokens, and the `sentinels`
    (<extra_id_0>, ...) of text-to-text objectives, which get the last ids, in descending order, as in T5.

    Raises:
        UserError: `vocab_size` is too small for the characters of the texts.
    """
    learned = vocab_size - sentinels
    if learned <= len(SPECIAL_TOKENS):
        special = f"{len(SPECIAL_TOKENS)} special tokens" + (f" and {sentinels} sentinels" if sentinels else "")
        raise UserError(f"vocab_size must exceed the {special}. Got {vocab_size}.")
    tokenizer = Tokenizer(models.BPE(unk_token=UNK))
    steps: list[normalizers.Normalizer] = [
        normalizers.NFKC(),
        normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Strip(),
    ]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Lowercase()] if lowercase else steps)
    # Marking continuations (##) instead would number those pieces in the order of a randomly seeded hash map, so that
    # two training runs differ (tokenizers 0.23).
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(split=False), pre_tokenizers.Split(Regex(_PIECE), behavior="isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=learned, min_frequency=min_frequency, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() > learned:
        raise UserError(
            f"vocab_size must be at least {tokenizer.get_vocab_size() + sentinels}, the number of characters in these "
            f"texts. Got {vocab_size}."
        )
    marks = sentinel_names(sentinels)[::-1]
    tokenizer.add_special_tokens(marks)
    return with_special_tokens(tokenizer, max_length, **({"extra_special_tokens": marks} if marks else {}))


def with_special_tokens(tokenizer: Tokenizer, max_length: int, **more: Any) -> PreTrainedTokenizerFast:
    """The tokenizer for transformers, with `SPECIAL_TOKENS`: `[CLS] x [SEP]`."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (CLS, SEP)],
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL_TOKENS, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_length, **names, **more)


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder, or of that name on the model hub."""
    try:
        return read_tokenizer(source)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"No tokenizer could be loaded from {source}: {reason}\n"
            "Name a folder written by save_pretrained, or a model on the hub (and check the network)."
        ) from error
