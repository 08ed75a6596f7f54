"""The tokenizers of a model, and the language markers and prefixes that they add."""

import copy
import difflib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.corpus import read_tokenizer
from infoflow.foundation import UserError, as_written, current_display, patient_hub

from ._hub import hub_arguments, hub_is_reachable, machine_lacks, reason_of
from ._weights import read_gguf_tokenizer

TARGET_FOLDER = "target_tokenizer"
"""Subfolder of a checkpoint for a translation model's separate output tokenizer."""
SOURCE_FOLDER = "source_tokenizer"
"""Subfolder for its input's tokenizer, since the folder's own tokenizer decodes with the output's vocabulary."""

_FILES_LISTED = (
    "tokenizer.json tokenizer_config.json tokenizer.model vocab.txt vocab.json spiece.model spm.model "
    "sentencepiece.model tiktoken.model tekken.json prophetnet.tokenizer bpe.codes sentencepiece.bpe.model source.spm"
)
_FILES = _FILES_LISTED.split()


def find_tokenizers(
    given: str | Path | PreTrainedTokenizerBase | None, home: Path | str | None
) -> tuple[PreTrainedTokenizerBase | None, PreTrainedTokenizerBase | None]:
    """Source and target tokenizer; `home` is a folder, a `.gguf` file, a hub name, or None for an instance."""
    target = home / TARGET_FOLDER if isinstance(home, Path) else None
    target_tokenizer = _read(target) if target is not None and target.is_dir() else None
    if isinstance(given, PreTrainedTokenizerBase):
        return given, target_tokenizer
    if given is not None:
        tokenizer = _read(given)
        if tokenizer is None:
            raise UserError(f"--tokenizer must be a tokenizer's folder or hub name. {given} has no tokenizer.")
        return tokenizer, target_tokenizer
    return (None if home is None else _read(home)), target_tokenizer


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder has a tokenizer's files."""
    return any((folder / file).is_file() for file in _FILES)


def _read(home: Path | str) -> PreTrainedTokenizerBase | None:
    """The tokenizer at a location, or None if there is none (transformers 5 would create an empty one)."""
    path = Path(home).expanduser()
    if (path / SOURCE_FOLDER).is_dir():
        home = path = path / SOURCE_FOLDER
    if path.is_dir() and not has_tokenizer(path):
        return None
    try:
        if path.suffix == ".gguf":
            return read_gguf_tokenizer(path)
        local = path.exists() or not hub_is_reachable()
        where, revision = (home, {}) if path.exists() else hub_arguments(home)
        with patient_hub():
            return read_tokenizer(where, local_files_only=local, **revision)
    except Exception as error:
        if not path.exists():
            return None
        if lacking := machine_lacks(error, path):
            raise lacking from error
        reason = reason_of(error, "tokenizer files").rstrip(".:")
        raise UserError(f"The tokenizer in {path} cannot be read: {reason}. Save or download it again.") from error


# Language markers and prefixes that a tokenizer adds to its texts.


_CODE = re.compile(r"[a-z]{2,3}_[A-Za-z]{2,4}|java|python")
_MARK = re.compile(r"__([a-z]{2,3}(?:_[A-Za-z]{2,4})?)__")  # of SeamlessM4T: the code between underscores
_SAVED = "infoflow_prefix"  # in tokenizer_config.json: not every class keeps it in tokenizer.json
_NEAR = 8  # codes listed in a message
_PROBES = ("a", "Das Haus ist alt.", "3 cats")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How a model's texts are encoded: language codes and a prefix; empty values mean none, or unknown."""

    source_language: str = ""
    target_language: str = ""
    prefix: str = ""
    chosen: bool = False  # chosen by the caller; a tokenizer's own defaults are not part of a result's key


def reading_of(tokenizer: PreTrainedTokenizerBase | None) -> Reading:
    """How a loaded model's tokenizer encodes its texts."""
    return getattr(tokenizer, "infoflow_reading", Reading())


def reading_tokenizers(
    tokenizers: tuple[PreTrainedTokenizerBase | None, PreTrainedTokenizerBase | None],
    name: str,
    config: Any,
    generation: Any,
    reading: Reading,
) -> tuple[PreTrainedTokenizerBase | None, PreTrainedTokenizerBase | None]:
    """The tokenizers of source and target, set to mark the languages and to prefix each source text.

    The original tokenizers are not changed. The texts of a decoder with an encoder get no prefix. The configuration of
    `generation` may name the token that starts each output, or the tokens of the languages that the model writes.
    """
    own, target = tokenizers
    wanted = {"--source-language": reading.source_language, "--target-language": reading.target_language}
    if own is None:
        if given := [option for option, value in {**wanted, "--prefix": reading.prefix}.items() if value]:
            raise UserError(f"{given[0]} needs a tokenizer, and {name} has none. Name one: --tokenizer.")
        return own, target
    if not reading.chosen and hasattr(own, "infoflow_reading"):
        return own, target
    codes = language_codes(own)
    for option, value in wanted.items():
        if value:
            _check_code(option, value, codes, own, name)
    if codes:
        own = _of_languages(own, name, generation, reading, codes)
    else:
        _note_what_stands_before(own, name, config, reading)
    if prefix := reading.prefix.strip() or own.init_kwargs.get(_SAVED, ""):
        own, before = _prefixed(own, prefix, name), own
        target = target or (before if getattr(config, "is_encoder_decoder", False) else None)
    return own, target


def language_codes(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The codes by which a tokenizer marks languages, as in NLLB, mBART, M2M100 and SeamlessM4T; empty for others."""
    if not hasattr(type(tokenizer), "set_src_lang_special_tokens") or not hasattr(tokenizer, "tgt_lang"):
        return []
    for known in ("lang_code_to_token", "lang_code_to_id"):
        if codes := getattr(tokenizer, known, None):
            return sorted(codes)
    special = tokenizer.all_special_tokens
    return sorted({_code(token) for token in special if _MARK.fullmatch(token) or _CODE.fullmatch(token)})


def _code(mark: str) -> str:
    """The code of a language's token."""
    return found[1] if (found := _MARK.fullmatch(mark)) else mark


def _codes_in_texts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Language codes at the beginning of the texts themselves, as in Marian's models with several target languages."""
    return sorted(getattr(tokenizer, "supported_language_codes", ()))


def _note_what_stands_before(tokenizer: PreTrainedTokenizerBase, name: str, config: Any, reading: Reading) -> None:
    """Note the prefix that a model was trained with, if the caller chose none."""
    if codes := _codes_in_texts(tokenizer):
        current_display().note(
            f"{name} writes several languages, and each text must start with a language code: {_some(codes)}. "
            "infoflow does not add it."
        )
    known = getattr(config, "task_specific_params", None) or {}
    before = sorted({str(each["prefix"]) for each in known.values() if isinstance(each, dict) and each.get("prefix")})
    if before and not (reading.prefix or tokenizer.init_kwargs.get(_SAVED)):
        current_display().note(
            f"{name} was trained with a prefix before each text, such as {_some(before)}. Texts are read without "
            "one. To add one: --prefix."
        )


def _some(texts: list[str]) -> str:
    return ", ".join(as_written(text[:80]) for text in texts[:_NEAR])


def language_id(tokenizer: PreTrainedTokenizerBase, code: str) -> int:
    """The token that marks a language."""
    spelled = getattr(tokenizer, "lang_code_to_token", None) or {
        _code(one): one for one in tokenizer.all_special_tokens
    }
    return int(tokenizer.convert_tokens_to_ids(spelled.get(code, code)))


def _check_code(option: str, code: str, codes: list[str], tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    if in_texts := _codes_in_texts(tokenizer):
        raise UserError(
            f"{option} cannot be used with {name}: its texts select the output language themselves. Start each with "
            f"one of {_some(in_texts)}."
        )
    if not codes:
        raise UserError(
            f"{option} is for models whose tokenizer marks languages, such as NLLB, mBART, M2M100 and SeamlessM4T. "
            f"The tokenizer of {name} marks none. Leave the option out; a model that reads its task from a text "
            "prefix, as T5 does, takes --prefix."
        )
    if code not in codes:
        near = difflib.get_close_matches(code, codes, n=_NEAR, cutoff=0.5)
        near += [one for one in codes if one[:2].lower() == code[:2].lower() and one not in near]
        listed = f"Similar: {', '.join(near[:_NEAR])}." if near else f"Some of them: {', '.join(codes[:_NEAR])}."
        raise UserError(
            f"{option} must be one of the {len(codes)} language codes of {name}. Got {as_written(code[:80])}. {listed}"
        )


def _of_languages(
    tokenizer: PreTrainedTokenizerBase, name: str, generation: Any, reading: Reading, codes: list[str]
) -> Any:
    """A copy that marks its texts with these languages; a note reports defaults."""
    read: Any = copy.deepcopy(tokenizer)
    _make_special(read, codes)
    source, default = reading.source_language or _code(read.src_lang), _code(read.tgt_lang or "")
    forced = getattr(generation, "forced_bos_token_id", None)
    by_model = next((code for code in codes if language_id(read, code) == forced), "") if forced is not None else ""
    target = reading.target_language or default or by_model
    _check_written(read, target, getattr(generation, "text_decoder_lang_to_code_id", None), name)
    if not reading.source_language:
        current_display().note(
            f"{name} reads every text as {source}, the default of its tokenizer. If the texts are in another language, "
            "name its code: --source-language."
        )
    if not target:
        current_display().note(
            f"No target language was named: {name} chooses its output language, and its decoder is not "
            "measured. Name the code: --target-language."
        )
    elif target == default and not reading.target_language:
        current_display().note(
            f"{name} writes {target}, the default of its tokenizer. For another language name its code: "
            "--target-language."
        )
    read.tgt_lang = target or source
    read.src_lang = source  # last: SeamlessM4T's class marks texts by the language that was set last
    if reading.chosen:  # a saved copy encodes the same way
        read.init_kwargs |= {"src_lang": read.src_lang, "tgt_lang": read.tgt_lang}
    read.infoflow_reading = Reading(source_language=source, target_language=target or "", chosen=reading.chosen)
    return read


def _check_written(tokenizer: PreTrainedTokenizerBase, target: str, written: dict[str, int] | None, name: str) -> None:
    """Refuse a language that the model cannot generate, by the ids in its configuration (SeamlessM4T)."""
    if not target or not written:
        return
    if target not in written:
        raise UserError(
            f"{name} reads {target} but does not write it. Choose a language for --target-language that it writes: "
            f"{', '.join(sorted(written)[:_NEAR])}{', …' if len(written) > _NEAR else '.'}"
        )
    if written[target] != (own := language_id(tokenizer, target)):
        raise UserError(
            f"The configuration of {name} marks {target} by token {written[target]}, but its tokenizer by {own}. Use "
            "the tokenizer that the model was trained with."
        )


def _make_special(tokenizer: Any, codes: list[str]) -> None:
    """Mark language codes as special tokens, since M2M100's class would count them as words of every text."""
    marks = {language_id(tokenizer, code) for code in codes}
    if not marks <= set(tokenizer.all_special_ids):
        tokens = [tokenizer.convert_ids_to_tokens(mark) for mark in sorted(marks)]
        tokenizer.add_special_tokens({"extra_special_tokens": tokens}, replace_extra_special_tokens=False)
        assert tokenizer.convert_tokens_to_ids(tokens) == sorted(marks)


def _prefixed(tokenizer: PreTrainedTokenizerBase, wanted: str, name: str) -> Any:
    """A copy that puts the prefix before each text, as special tokens that are not counted as words."""
    if language_codes(tokenizer):
        raise UserError(
            f"--prefix is for models that read their task from a text prefix, as T5 does. {name} reads languages from "
            "special tokens: use --source-language and --target-language."
        )
    if not tokenizer.is_fast:
        raise UserError(
            f"--prefix needs a fast tokenizer, and that of {name} is slow. Write the prefix into the texts instead."
        )
    reading = replace(reading_of(tokenizer), prefix=wanted, chosen=True)
    added = tokenizer(wanted, add_special_tokens=False)["input_ids"]
    for add_space in (False, True):
        read: Any = copy.deepcopy(tokenizer)
        read.infoflow_reading, read.init_kwargs[_SAVED] = reading, wanted
        if tokenizer.init_kwargs.get(_SAVED) == wanted and _begins(tokenizer, added):
            return read
        if add_space:  # byte-level tokenizers use other tokens at the beginning of a text
            read._tokenizer = _with_space_before(read.backend_tokenizer)
        read.backend_tokenizer.post_processor = _template(read, added)
        if all(read(text)["input_ids"] == tokenizer(f"{wanted} {text}")["input_ids"] for text in _PROBES):
            return read
    raise UserError(
        f"--prefix cannot be used with {name}: its tokenizer merges {as_written(wanted[:80])} with the "
        "following text. Write it into the texts instead."
    )


def _begins(tokenizer: PreTrainedTokenizerBase, added: list[int]) -> bool:
    """Whether the tokenizer already adds the prefix, as some saved classes do."""
    one = tokenizer("a")["input_ids"]
    return any(one[start : start + len(added)] == added for start in range(len(one)))


def _template(tokenizer: PreTrainedTokenizerBase, prefix: list[int]) -> processors.TemplateProcessing:
    """The tokenizer's own special tokens, with the prefix's tokens after the initial ones."""
    one, two = tokenizer("a"), tokenizer("a", "a")
    parts = {"prefix": prefix}

    def pieces(encoding: Any) -> list[str]:
        found: list[str] = []
        for token, side in zip(encoding["input_ids"], encoding.sequence_ids(0), strict=True):
            if side is None:
                parts[f"special{token}"] = [token]
                found.append(f"special{token}")
            elif (text := "$B" if side else "$A") not in found:
                found += [text] if side else ["prefix", text]
        return found

    single, pair = pieces(one), pieces(two)
    special: list[Any] = [
        {"id": key, "ids": ids, "tokens": tokenizer.convert_ids_to_tokens(ids)} for key, ids in parts.items()
    ]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)


def _with_space_before(backend: Tokenizer) -> Tokenizer:
    described = json.loads(backend.to_str())
    steps = [described["pre_tokenizer"], *((described["pre_tokenizer"] or {}).get("pretokenizers") or [])]
    for step in steps:
        if step and "add_prefix_space" in step:
            step["add_prefix_space"] = True
    return Tokenizer.from_str(json.dumps(described))


def leading(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The special tokens that a tokenizer adds before a text."""
    bare, whole = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
    starts = [index for index in range(len(whole)) if whole[index : index + len(bare)] == bare]
    return whole[: starts[0]] if starts else []


def front_token(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token to add in front if the tokenizer adds none: BOS, or else the end-of-text token, or else None.

    lm-evaluation-harness does the same.
    """
    found = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    return next((int(token) for token in found if token is not None), None)
