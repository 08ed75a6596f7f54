"""Reads a corpus as tasks need it: trees with features and mentions, tagged files, labelled sentences, pairs."""

from collections.abc import Sequence
from pathlib import Path

from infoflow.corpus import CONLLU_COLUMNS, Corpus, conllu_keys, load_corpus
from infoflow.foundation import UserError

from ._pair_tasks import ENTITY
from ._tasks import MINIMAL_PAIRS_TASK, tag_column, task_needs

_FEATURES = {
    "subject-number": ("Number",),
    "object-number": ("Number",),
    "tense": ("Tense", "VerbForm"),
}
_BLIMP = {"text": "sentence_good", "bad": "sentence_bad", "label": "UID"}
_TABLES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv")


def load_task_corpus(
    source: str | Path,
    tasks: Sequence[str],
    *,
    tags: Sequence[str] = (),
    labels: str | Path = "",
    text_column: str = "",
    translation_column: str = "",
    label_column: str = "",
    bad_column: str = "",
) -> Corpus:
    """A corpus by name or path, with the columns that these tasks need.

    | file | task | read as |
    |---|---|---|
    | `.conllu` | `coreference`, `entity-spans` | with the brackets `Entity` of MISC |
    | `.conllu` | number and tense, `Case`, `ner-spans` | with what FEATS or MISC say of that key, in any case |
    | `.tsv`, `.tagged`, `.txt` | a tag: `ner`, `upos`, any other name | `word<TAB>tag` lines, blank lines between |
    | `.tsv` without a header | `sentence-label` | `label<TAB>sentence` lines |
    | `.tsv` without a header | `minimal-pairs` | phenomenon, good and bad sentence: the last three columns |
    | `.jsonl` of BLiMP | `minimal-pairs` | `sentence_good`, `sentence_bad`, `UID` |

    Other sources are read as in `load_corpus`.

    Args:
        source: A source that `load_corpus` accepts by name.
        tasks: Names from `probing.tasks()`, tag columns, or `minimal-pairs`.
        tags: Names of the tag columns of a tagged file; default: the tag that the task needs.
        labels: A file with one sentence label per line.
        text_column: As in `load_corpus`, as are the other columns.
        translation_column: Column of the translations.
        label_column: Column of each sentence's class.
        bad_column: Column of the unacceptable sentence of a minimal pair.

    Raises:
        UserError: As in `load_corpus`, or the number of labels differs from the number of sentences.
    """
    columns = {
        "text_column": text_column,
        "translation_column": translation_column,
        "label_column": label_column,
        "bad_column": bad_column,
    }
    columns = {name: column for name, column in columns.items() if column}
    corpus = _by_task(Path(source), tasks, tags) if not columns else None
    corpus = corpus or load_corpus(source, **columns)
    return corpus.with_labels(labels) if labels else corpus


def _by_task(path: Path, tasks: Sequence[str], tags: Sequence[str]) -> Corpus | None:
    """A file in a format that its tasks determine; None for any other."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if not path.is_file():
        return None
    if suffix in (".conllu", ".conll"):
        return _treebank(path, tasks)
    named = [column for task in tasks if task != MINIMAL_PAIRS_TASK and (column := tag_column(task))]
    if suffix in (".tagged", ".tags", ".tsv", ".txt") and (tags or named):
        if len(names := list(tags or dict.fromkeys(named))) > 1 and not tags:
            raise UserError(
                f"{path.name} has columns without names, and several tags are asked for: {', '.join(names)}.\n"
                "Name its columns in their order: --tags NAME,NAME."
            )
        return Corpus.from_tagged(path, tags=names)
    if suffix == ".tsv" and "sentence-label" in tasks:
        return Corpus.from_labelled(path)
    if suffix == ".tsv" and MINIMAL_PAIRS_TASK in tasks:
        return Corpus.from_minimal_pairs(path)
    if suffix in _TABLES and MINIMAL_PAIRS_TASK in tasks:
        return Corpus.from_table(path, **_BLIMP)
    return None


def _treebank(path: Path, tasks: Sequence[str]) -> Corpus:
    """A treebank with the keys of FEATS and MISC that the tasks need; FEATS wins if both have a key."""
    feats = [feature for task in tasks for feature in _FEATURES.get(task, ())]
    misc = [ENTITY.capitalize()] if any(ENTITY in task_needs(task) for task in tasks) else []
    known = {*CONLLU_COLUMNS, *(key.lower() for key in (*feats, *misc))}
    asked = [name for task in tasks if (name := tag_column(task)) and name.lower() not in known]
    if asked:
        of_feats, of_misc = conllu_keys(path)
        for name in asked:
            if found := _key(name, of_feats):
                feats.append(found)
            elif found := _key(name, of_misc):
                misc.append(found)
            elif name[:1].isupper():  # not in this file: a column of `_`, as for a feature that no word has
                feats.append(name)
    return Corpus.from_conllu(path, misc=tuple(dict.fromkeys(misc)), feats=tuple(dict.fromkeys(feats)))


def _key(name: str, keys: Sequence[str]) -> str | None:
    """The key with exactly this name, or else in another case if it is unique."""
    alike = [key for key in keys if key.lower() == name.lower()]
    return name if name in alike else alike[0] if len(alike) == 1 else None
