"""The tokenizers of a model: given, or saved with its weights."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from infoflow.corpus import read_tokenizer
from infoflow.foundation import UserError, patient_hub

from ._gguf import read_gguf_tokenizer
from ._hub import hub_is_reachable
from ._hub_name import hub_arguments
from ._unreadable import machine_lacks, reason_of

TARGET_FOLDER = "target_tokenizer"
"""Subfolder of a checkpoint for a translation model's separate output tokenizer."""

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.model",
    "tiktoken.model",
    "tekken.json",
    "prophetnet.tokenizer",
    "bpe.codes",
    "sentencepiece.bpe.model",
    "source.spm",
)


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
    """Whether a tokenizer's files lie there."""
    return any((folder / file).is_file() for file in _FILES)


def _read(home: Path | str) -> PreTrainedTokenizerBase | None:
    """The tokenizer at a location, or None if there is none (transformers 5 would create an empty one)."""
    path = Path(home).expanduser()
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
