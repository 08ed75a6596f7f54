"""Read a tokenizer from its files as saved, whatever class transformers has for the model's family."""

import json
from pathlib import Path
from typing import Any

import transformers
from sentencepiece import SentencePieceProcessor
from transformers import (
    AutoTokenizer,
    LlamaTokenizer,
    PreTrainedTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import cached_file

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
    differ, the file wins.

    Args:
        source: A folder, or a name on the hub.
        options: For transformers' `from_pretrained`.
    """
    if cached_file(source, _FILE, **options, **_NO_ERRORS) is None:
        chosen = (_named_class(source, options) or AutoTokenizer).from_pretrained(
            source, trust_remote_code=False, **options
        )
        return _as_sentencepiece(chosen, source, options) if type(chosen) is PreTrainedTokenizerFast else chosen
    try:
        chosen = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)
    except Exception:  # a class that is unknown or cannot be built from these files
        return PreTrainedTokenizerFast.from_pretrained(source, **options)
    if type(chosen) is PreTrainedTokenizerFast:
        return chosen
    plain = PreTrainedTokenizerFast.from_pretrained(source, **options)
    if _alike(chosen, plain):
        return chosen
    vocabulary = plain.get_vocab()
    for name in _SPECIAL:  # those that the files leave to the class
        token = getattr(chosen, name)
        if getattr(plain, name) is None and token in vocabulary:
            setattr(plain, name, token)
    return plain


_NO_ERRORS = dict.fromkeys(
    (
        "_raise_exceptions_for_gated_repo",
        "_raise_exceptions_for_missing_entries",
        "_raise_exceptions_for_connection_errors",
    ),
    False,
)


def _named_class(source: str | Path, options: dict[str, Any]) -> type[PreTrainedTokenizerBase] | None:
    """The saved class, if it reads its own files.

    AutoTokenizer may choose the class of the model's family, which finds no vocabulary in them.
    """
    file = cached_file(source, "tokenizer_config.json", **options, **_NO_ERRORS)
    name = json.loads(Path(file).read_text(encoding="utf-8")).get("tokenizer_class") if file else None
    found = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
    return found if isinstance(found, type) and issubclass(found, PreTrainedTokenizer) else None


def _as_sentencepiece(
    chosen: PreTrainedTokenizerBase, source: str | Path, options: dict[str, Any]
) -> PreTrainedTokenizerBase:
    """The generic class ignores that a sentencepiece model expects a space before the text; Llama's class does not."""
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
    except Exception:  # a class that expects words with boxes, or similar, instead of text
        return False
    return ids == expected
