"""`load_corpus`: a corpus by name or path."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError

from ._corpus import Corpus
from ._generated import generate_grammar
from ._tatoeba import TATOEBA, load_tatoeba

GRAMMAR = "grammar"
GRAMMAR_SENTENCES = 20_000
"""Sentences of `load_corpus("grammar")`."""

_HUB = "hf:"


def load_corpus(source: str | Path, **options: Any) -> Corpus:
    """A corpus by name or path; `options` go to the reader.

    | source                       | corpus                                                        |
    |------------------------------|---------------------------------------------------------------|
    | `tatoeba-en-fr`              | real sentence pairs, fetched once                             |
    | `grammar`, `grammar:5000`    | generated sentences (20,000, or as many as given)             |
    | `hf:name`, `hf:name:split`   | a dataset of the Hugging Face hub (`config=` names its config) |
    | `treebank.conllu`            | `Corpus.from_conllu`                                          |
    | `pairs.tsv`                  | `Corpus.from_parallel`, two columns                           |
    | `train.en,train.de`          | `Corpus.from_parallel`, two files                             |
    | `words.tagged`, `words.tags` | `Corpus.from_tagged`                                          |
    | any other file               | `Corpus.from_text`                                            |

    Each file may be `.gz`.

    Raises:
        UserError: There is no such corpus, or it cannot be read.
    """
    name = str(source)
    if name == TATOEBA:
        return load_tatoeba(**options)
    if name == GRAMMAR or name.startswith(f"{GRAMMAR}:"):
        return generate_grammar(**{"num": _grammar_size(name), **options})
    if name.startswith(_HUB):
        return _from_hub(name.removeprefix(_HUB), options)
    if not Path(source).exists():
        return _from_pair(name, options)
    return _reader(Path(source))(source, **options)


def _grammar_size(name: str) -> int:
    size = name.partition(":")[2].replace(",", "").replace("_", "")
    if name != GRAMMAR and not size.isdecimal():
        raise UserError(f"Write grammar:SIZE with a number of sentences, such as grammar:5000. Got {name}.")
    return int(size) if size else GRAMMAR_SENTENCES


def _reader(path: Path) -> Callable[..., Corpus]:
    readers = {".conllu": Corpus.from_conllu, ".conll": Corpus.from_conllu, ".tsv": Corpus.from_parallel}
    readers |= {".tagged": Corpus.from_tagged, ".tags": Corpus.from_tagged}
    return readers.get(Path(path.name.removesuffix(".gz")).suffix.lower(), Corpus.from_text)


def _from_pair(name: str, options: dict[str, Any]) -> Corpus:
    files = [Path(part) for part in name.split(",")]
    if len(files) == 2 and any(file.exists() for file in files):
        return Corpus.from_parallel(*files, **options)
    raise UserError(
        f"No corpus {name}: neither a file (now in {Path.cwd()}) nor a name.\n"
        f"Names are {TATOEBA}, {GRAMMAR}, {GRAMMAR}:SIZE and hf:NAME; two aligned files are written train.en,train.de."
    )


def _from_hub(name: str, options: dict[str, Any]) -> Corpus:
    from datasets import load_dataset

    path, _, split = name.partition(":")
    config = options.pop("config", None)
    try:
        dataset = load_dataset(path, config, split=split or "train")
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"The dataset {path} could not be loaded from the hub: {reason}\n"
            f"Check its name, split and the network (hf:NAME:SPLIT), or use `{GRAMMAR}`, which needs none."
        ) from error
    return Corpus.from_dataset(dataset, **{"name": name, **options})
