"""`load_corpus`: a corpus by name or path, or from objects in memory; and the built-in corpora."""

import lzma
import re
import shutil
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from infoflow._transformers import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from infoflow.foundation import UserError, as_written, current_display, digest, patient_hub

from ._columns import ENTITY
from ._conllu import has_brackets
from ._corpus import Corpus
from ._fact_language import FACTS_VERSION, FactConfig
from ._fact_world import FACT_COLUMNS, FactWorld, fact_rows, num_queries
from ._grammar import GRAMMAR_COLUMNS, GRAMMAR_VERSION, GrammarConfig, grammar_rows
from ._inspect import AS_IS, as_it_is
from ._lines import printable, shortened
from ._memory import is_frame
from ._plain_text import Lines
from ._store import cache_folder, cached, store
from ._tables import is_table
from ._tagged import conll_columns

TATOEBA = "tatoeba-en-fr"

_DATA = Path(__file__).parent / "data"
_PACKED, _PAIRS, _ATTRIBUTION = "tatoeba-en-fr.tsv.xz", "fra.txt", "ATTRIBUTION.txt"


def load_tatoeba() -> Corpus:
    """178,009 English sentences with a French translation (CC-BY 2.0 FR), each with its attribution; needs no network.

    The file comes with the package and is unpacked once, into the cache.

    Raises:
        UserError: The cache cannot be written, or the disk is full.
    """
    return Corpus.from_parallel(cached(TATOEBA, _unpack, f"The corpus {TATOEBA}") / _PAIRS, name=TATOEBA)


def tatoeba_folder() -> Path:
    """Folder of the unpacked sentences and their attribution."""
    return cache_folder() / TATOEBA


def _unpack(folder: Path) -> None:
    shutil.copyfile(_DATA / _ATTRIBUTION, folder / _ATTRIBUTION)
    with lzma.open(_DATA / _PACKED) as packed, (folder / _PAIRS).open("wb") as pairs:
        shutil.copyfileobj(packed, pairs, 1 << 20)


MOST_SENTENCES = 100_000_000


def generate_grammar(num: int, seed: int = 0, config: GrammarConfig | None = None) -> Corpus:
    """`num` sentences of a categorial grammar of English-like sentences, with gold analysis and translation.

    Columns: text, translation, words, upos, head, deprel (Universal Dependencies), ccg, ccg_left, ccg_right. Sentence i
    depends only on (`seed`, i, `config`), so a larger corpus extends a smaller one. Needs no network.

    Raises:
        UserError: `num` is outside 1 to 100,000,000, or the vocabulary is below 100.
    """
    if not isinstance(num, int) or not 1 <= num <= MOST_SENTENCES:
        raise UserError(
            f"The size of a generated corpus must be a whole number from 1 to {MOST_SENTENCES:,}. Got {num}."
        )
    config = config or GrammarConfig()
    key = digest(["grammar", GRAMMAR_VERSION, num, seed, config])
    current_display().note(f"Generating {num:,} sentences of the built-in grammar (seed {seed}).")
    return Corpus(store(grammar_rows(num, seed, config), GRAMMAR_COLUMNS, "grammar", key), "grammar")


def generate_facts(config: FactConfig | None = None, seed: int = 0) -> FactWorld:
    """A world of facts: entities, their relations, and trained, held-out, withheld and changed facts; needs no network.

    Everything depends only on (`seed`, `config`), and a larger world extends a smaller one. `fact_corpus` makes its
    training text; its passages and questions are methods of the world.

    Raises:
        UserError: No fact would be in training, with these shares and this seed.
    """
    world = FactWorld(config or FactConfig(), seed)
    if not num_queries(world):
        raise UserError(
            f"A world of facts needs at least one training fact. Got none of {len(world.facts):,} with held_out = "
            f"{world.config.held_out}, withheld = {world.config.withheld}.\nLower these shares, or add entities."
        )
    return world


def fact_corpus(world: FactWorld) -> Corpus:
    """The training text of a world: queries about trained facts by weight, mixed with sentences of a language.

    Columns: text, words, entity (the role of each word: subject, relation, object), label (the fact's number).
    """
    key = digest(["facts", FACTS_VERSION, world.seed, world.config])
    return Corpus(store(fact_rows(world), FACT_COLUMNS, "facts", key), "facts")


GRAMMAR = "grammar"
GRAMMAR_SENTENCES = 20_000
"""Sentences of `load_corpus("grammar")`."""
FACTS = "facts"

_HUB = "hf:"
_HUB_NAME = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?")
_SIZES = f"{GRAMMAR}, {GRAMMAR}:SIZE, {FACTS}, {FACTS}:ENTITIES"
_NAMES = f"Names are {TATOEBA}, {_SIZES} and hf:NAME; name two aligned files as train.en,train.de."


def load_corpus(
    source: Any,
    *,
    text_column: str | None = None,
    translation_column: str | None = None,
    document_column: str | None = None,
    label_column: str | None = None,
    bad_column: str | None = None,
    second_column: str | None = None,
    question_column: str | None = None,
    choices_column: str | None = None,
    answers_column: str | None = None,
    answer_starts_column: str | None = None,
    references_column: str | None = None,
    documents: bool = False,
    lines: Lines = "sentences",
    **options: Any,
) -> Corpus:
    """A corpus by name or path, or from objects in memory; `options` are passed to the reader.

    | source                       | corpus                                                        |
    |------------------------------|---------------------------------------------------------------|
    | `tatoeba-en-fr`              | real sentence pairs, in the package                           |
    | `grammar`, `grammar:5000`    | generated sentences (20,000, or as many as given)             |
    | `facts`, `facts:256`         | sentences of a generated world with this number of entities   |
    | `hf:name`, `hf:name:split`   | a dataset of the Hugging Face hub (`config=` names its config) |
    | `treebank.conllu`            | `Corpus.from_conllu`, with `entity` if MISC has `Entity=`     |
    | `words.conll`                | the same, or `Corpus.from_tagged`: words and tags, the last `tag` |
    | `pairs.tsv`                  | `Corpus.from_parallel`, two columns                           |
    | `train.en,train.de`          | `Corpus.from_parallel`, two files                             |
    | `words.tagged`, `words.tags` | `Corpus.from_tagged`                                          |
    | `.csv`, `.tsv`, `.jsonl`, `.json`, `.parquet` | `Corpus.from_table`, by `text_column`        |
    | any other file               | `Corpus.from_text`                                            |
    | `as-is:PATH`                 | the file, whatever its first lines look like                  |
    | a list of sentences or pairs | `Corpus.from_sentences`                                       |
    | a frame of pandas or polars  | `Corpus.from_frame`, by `text_column`                         |
    | a `datasets.Dataset`         | `Corpus.from_dataset`                                         |

    Each file but Parquet may be `.gz`. Files whose first hundred lines do not look like sentences or pairs are refused.
    Columns are given by name, as in a table's first line, or by number, from 1.

    Args:
        source: One of the sources above.
        text_column: The column of the sentences in a table or dataset; default for datasets: `text`.
        translation_column: The column of their translations.
        document_column: The column of each row's document; rows of a document must be consecutive.
        label_column: The column of each sentence's class or target number.
        bad_column: The column of the unacceptable sentence of a minimal pair.
        second_column: The column of the second text of a pair.
        question_column: The column of the question about each text.
        choices_column: The column of the answer choices, lists of texts.
        answers_column: The column of the answers contained in each text, lists of texts.
        answer_starts_column: The column of the start characters of the answers, lists of whole numbers.
        references_column: The column of further references in addition to the translation, lists of texts.
        documents: Whether to read documents: separated by blank lines in a text file, by `# newdoc` in CoNLL-U.
        lines: Content of a line of a text file, or of a cell of `text_column`: `"paragraphs"` are split into sentences.
        options: Other arguments of the reader in the table above.

    Raises:
        UserError: There is no such corpus, it cannot be read, or a column is missing or not applicable.
    """
    named = {"text": text_column, "translation": translation_column, "document": document_column}
    named |= {"label": label_column, "bad": bad_column, "second": second_column}
    named |= {"question": question_column, "choices": choices_column}
    named |= {"answers": answers_column, "answer_starts": answer_starts_column, "references": references_column}
    columns = {name: column for name, column in named.items() if column}
    options |= {"lines": lines} if lines != "sentences" else {}
    if isinstance(source, str | Path):
        return _by_name(source, columns, {**options, **({"documents": True} if documents else {})})
    if documents:
        raise _no_documents("What is in memory", "name their column: document_column=")
    if isinstance(source, Dataset | IterableDataset | DatasetDict | IterableDatasetDict):
        return Corpus.from_dataset(source, **{**columns, **options})
    if is_frame(source):
        return Corpus.from_frame(source, **{**columns, **options})
    if isinstance(source, list | tuple):
        _no_columns("a list", columns)
        _no_paragraphs("A list", options)
        return Corpus.from_sentences(source, **options)
    raise UserError(
        "A corpus is a name, a path, a list of sentences or of pairs, a pandas or polars frame, or a dataset. "
        f"Got {as_written(source)}.\nConvert it to a list, or write it to a file."
    )


def _by_name(source: str | Path, columns: dict[str, str], options: dict[str, Any]) -> Corpus:
    path, as_is = as_it_is(source)
    name = str(source).removeprefix(AS_IS)
    if name.startswith(_HUB):
        _check_documents(name, options, table=True)
        name = name.removeprefix(_HUB)
        dataset = hub_dataset(name, options.pop("config", None))
        return Corpus.from_dataset(dataset, **{"name": name, **columns, **options})
    if not name:
        raise UserError(f"No corpus was named.\n{_NAMES}")
    built_in = name in (TATOEBA, GRAMMAR, FACTS) or name.startswith((f"{GRAMMAR}:", f"{FACTS}:"))
    there = not built_in and _is_there(path)
    if there and is_table(path) and (columns or path.name.removesuffix(".gz")[-4:].lower() != ".tsv"):
        _check_documents(name, options, table=True)
        return Corpus.from_table(source, **{"text": None, **columns, **options})
    if built_in or there:
        _no_columns(name, columns)
    reader = _reader(path) if there else None
    if getattr(reader, "func", reader) not in (Corpus.from_text, Corpus.from_conllu):
        _check_documents(name, options, table=False)
    if reader != Corpus.from_text:
        _no_paragraphs(name, options)
    if name == TATOEBA:
        return load_tatoeba(**options)
    if built_in and (world := load_world(name, **options)):
        return fact_corpus(world)
    if built_in:
        return generate_grammar(**{"num": _size(name) or GRAMMAR_SENTENCES, **options})
    if reader is None:
        return _from_pair(name, columns, options, as_is)
    return reader(source if reader in (Corpus.from_text, Corpus.from_parallel) else path, **options)


def _no_columns(name: str, columns: Collection[str]) -> None:
    if columns:
        raise UserError(
            f"{name} has no columns, but a text or translation column was named.\n"
            "Leave it out; tables with columns are .csv, .tsv, .jsonl, .json, .parquet and hf:NAME."
        )


def _check_documents(name: str, options: dict[str, Any], table: bool) -> None:
    if options.pop("documents", False):
        raise _no_documents(
            name,
            "name their column: --document-column NAME (in Python document_column=)"
            if table
            else "read a text file with blank lines between documents, or CoNLL-U with # newdoc",
        )


def _no_documents(name: str, advice: str) -> UserError:
    return UserError(
        f"{shortened(printable(name))} does not mark documents, but documents were requested.\n"
        f"Leave out that option, or {advice}."
    )


def _no_paragraphs(name: str, options: dict[str, Any]) -> None:
    if options.pop("lines", "sentences") != "sentences":
        raise UserError(
            f"{shortened(printable(name))} already contains sentences, and cannot be read as paragraphs.\n"
            'Leave lines = "paragraphs" out; it is for text files and for columns of tables.'
        )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # name too long or folder not searchable, which the reader reports
        return "," not in str(path)


def load_world(name: str, seed: int = 0, **settings: Any) -> FactWorld | None:
    """The world of facts called `facts` or `facts:ENTITIES`; None for any other name."""
    if name.partition(":")[0] != FACTS:
        return None
    size = _size(name)
    return generate_facts(FactConfig(**({"entities": size} if size else {}), **settings), seed)


def _size(name: str) -> int | None:
    """The number after the colon in the name of a generated corpus; None without a colon."""
    kind, colon, given = name.partition(":")
    size = given.replace(",", "").replace("_", "")
    if colon and not (size.isascii() and size.isdecimal() and 1 <= len(size) <= 12 and int(size)):
        what, example = ("sentences", "grammar:5000") if kind == GRAMMAR else ("entities", "facts:256")
        raise UserError(
            f"Write {kind}:SIZE with a number of {what}, such as {example}. Got {shortened(printable(name))}."
        )
    return int(size) if colon else None


def _reader(path: Path) -> Callable[..., Corpus]:
    readers = {".conllu": Corpus.from_conllu, ".conll": Corpus.from_conllu, ".tsv": Corpus.from_parallel}
    readers |= {".tagged": Corpus.from_tagged, ".tags": Corpus.from_tagged}
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix == ".conll" and (found := conll_columns(path)):
        word, tags = found
        return partial(Corpus.from_tagged, tags=tags, blanks=True, word=word)
    if readers.get(suffix) == Corpus.from_conllu and has_brackets(path):
        return partial(Corpus.from_conllu, misc=(ENTITY.capitalize(),))
    return readers.get(suffix, Corpus.from_text)


def _from_pair(name: str, columns: Collection[str], options: dict[str, Any], as_is: bool) -> Corpus:
    files = [Path(part) for part in name.split(",")]
    if len(files) == 2 and any(map(_is_there, files)):
        if table := next(filter(is_table, files), None):
            raise UserError(
                f"Two aligned files must be plain text, one sentence per line. {table} is a table.\n"
                "Put both columns into one table, and name them: --text-column NAME --translation-column NAME."
            )
        _no_columns(name, columns)
        first = f"{AS_IS}{files[0]}" if as_is else files[0]
        return Corpus.from_parallel(first, files[1], **options)
    raise UserError(
        f"No corpus {shortened(printable(name))}: neither a file (current folder: {Path.cwd()}) nor a name.\n{_NAMES}"
    )


def hub_dataset(name: str, config: str | None = None) -> Any:
    """One split of a data set on the hub; `name` is NAME, OWNER/NAME or NAME:SPLIT."""
    from datasets import load_dataset

    path, _, split = name.partition(":")
    if not _HUB_NAME.fullmatch(path):
        raise UserError(
            f"A dataset on the hub is written hf:NAME, hf:OWNER/NAME or hf:NAME:SPLIT. Got {_HUB}{name}.\n"
            "Name one; file paths take no hf:."
        )
    try:
        with patient_hub():
            return load_dataset(path, config, split=split or "train")
    except Exception as error:  # every format library has its own errors
        said = re.sub(r"^\[Errno \d+\] ", "", str(error).strip()).splitlines()
        reason = re.sub(r" \(\w+(Error|Exception)\)$", "", said[0]) if said else "no reason was reported"
        raise UserError(
            f"The dataset {path} could not be loaded from the hub: {reason}\n"
            f"Check its name, split and the network (hf:NAME:SPLIT), or use `{GRAMMAR}`, which needs none."
        ) from error
