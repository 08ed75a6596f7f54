"""Tasks by name, the examples that each extracts from a corpus, and files read with the columns that tasks need."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infoflow.corpus import CONLLU_COLUMNS, ENTITY, Corpus, Lines, conllu_keys, load_corpus, split_numbers, tag_columns
from infoflow.foundation import UserError, as_written, current_display, did_you_mean, hash64, running_words

from ._questions import PARTS, Examples, Kind, Part, ProbeQuestion, ProbeTask, QuestionedSentence
from ._sentence_tasks import CHANGED_TASKS, SENTENCE_TASKS
from ._word_tasks import PAIR_TASKS, SPAN_TASKS, SPANS_SUFFIX, TOKEN_TASKS, iob_kind, tag_kind

MINIMAL_PAIRS_TASK = "minimal-pairs"  # the task of `MinimalPairs`, in addition to the probes' tasks

MOST_CLASSES = 10_000  # maximum number of labels of a task, since a probe has one output for each

TEST_SHARE, DEV_SHARE = 0.2, 0.2
_NAMED: dict[str, Kind] = TOKEN_TASKS | SPAN_TASKS | PAIR_TASKS | SENTENCE_TASKS | CHANGED_TASKS


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskDescription:
    """A task of the catalogue."""

    name: str
    unit: str
    about: str
    needs: str  # the columns that a corpus must have, in words; empty if any text will do


def tasks(corpus: Corpus | None = None) -> list[TaskDescription]:
    """All tasks by name; for a corpus, those whose columns it has, and tasks for its own tag columns.

    In addition, NAME is the task for the tags in a word column NAME, and NAME-spans is the task for its spans in IOB2.
    """
    named = dict(_NAMED)
    if corpus is not None:
        own = sorted(_tags(corpus) - set(named))
        named = {name: kind for name, kind in named.items() if kind.missing(corpus.columns) is None}
        named |= {column: tag_kind(column) for column in own}
    return [
        TaskDescription(name=name, unit=kind.unit, about=kind.about, needs=_needs(kind)) for name, kind in named.items()
    ]


def build_task(name: str, corpus: Corpus, rows: np.ndarray | None = None, seed: int = 0) -> ProbeTask:
    """The examples of a task over a corpus, in three parts that share no sentence.

    A sentence's part depends only on (seed, its text without case and spacing): a fifth is the test part, a fifth the
    development part. A corpus with the column `part` marks its own test sentences (`Corpus.with_test`); then the first
    fifth joins the training part, and other sentences with the text of a test sentence are left out.

    Args:
        name: One of `tasks()`, or a tag column of the corpus, or `NAME-spans` of one in IOB2.
        corpus: Source of the examples.
        rows: Sentences of the corpus to use; None: all.
        seed: Seeds the parts and the task's random choices: negative pairs, changed sentences.
    """
    kind = _kind(name, corpus)
    chosen = np.arange(len(corpus)) if rows is None else np.unique(np.asarray(rows, dtype=np.int64))
    left_out: Counter[str] = Counter()
    parts = _parts(corpus, chosen, seed, left_out)
    for part, own in zip(PARTS, parts, strict=True):
        _check_part(name, part, len(own), corpus)
    ask = kind.begin(lambda: _sentences(corpus, parts[0], seed))
    of_parts = [_examples(kind, corpus, own, seed, ask, left_out) for own in parts]
    names = tuple(dict.fromkeys(question.label for _, question in of_parts[0][1]))
    _check_classes(name, names, corpus, left_out)
    found = [_part(part, each, names, left_out) for part, each in zip(PARTS, of_parts, strict=True)]
    for part, each in zip(PARTS, found, strict=True):
        _check_part(name, part, len(each.examples), corpus, left_out)
    counted = {reason: count for reason, count in left_out.items() if count}
    if counted:
        current_display().note(f"{name} of {corpus.name} leaves out {_listed(left_out)}.")
    return ProbeTask(
        name=name, unit=kind.unit, names=names, train=found[0], dev=found[1], test=found[2], left_out=counted
    )


def tag_column(name: str) -> str | None:
    """The tag column of a task that needs nothing else (`ner` for `ner` and `ner-spans`); None for other tasks."""
    kind = _NAMED.get(name)
    if kind is None:
        return name.removesuffix(SPANS_SUFFIX)
    return kind.needs[0] if name.removesuffix(SPANS_SUFFIX) in kind.needs else None


def task_needs(name: str) -> tuple[str, ...]:
    """The columns that a task of the catalogue needs; empty for a tag column of the user's corpus."""
    return _NAMED[name].needs if name in _NAMED else ()


def _tags(corpus: Corpus) -> set[str]:
    """Columns that a probe can predict: tags, and also lemmas."""
    return {*tag_columns(corpus)} | (corpus.columns & {"lemma"})


def _kind(name: str, corpus: Corpus) -> Kind:
    kind = _NAMED.get(name)
    if kind is None and name.lower() in _tags(corpus):
        kind = tag_kind(name.lower())
    tagged = name.removesuffix(SPANS_SUFFIX)
    if kind is None and name.endswith(SPANS_SUFFIX) and tagged.lower() in _tags(corpus):
        kind = iob_kind(tagged.lower())
    if kind is None:
        listed = [each.name for each in tasks(corpus)]
        raise UserError(
            f"No task {as_written(name)}: neither one of the list nor a tag column of {corpus.name}."
            f"{did_you_mean(name, listed)}\nTasks of this corpus: {', '.join(listed)}."
        )
    if missing := kind.missing(corpus.columns):
        raise _lacking(name, missing, corpus)
    return kind


def check_task(name: str, corpus: Corpus) -> None:
    """Raise a UserError that names what is missing, unless the corpus supports the task (or `minimal-pairs`)."""
    if name != MINIMAL_PAIRS_TASK:
        _kind(name, corpus)
    elif "bad" not in corpus.columns:
        raise UserError(
            f"{name} needs pairs of an acceptable and another sentence. The corpus {corpus.name} has "
            f"{', '.join(sorted(corpus.columns))}.\nGive a .tsv of phenomenon, good and bad sentence, or for a table "
            "name their columns: --text-column NAME --bad-column NAME."
        )


def _needs(kind: Kind) -> str:
    return ", ".join(part for part in (*kind.needs, " or ".join(kind.either)) if part)


def _lacking(name: str, missing: str, corpus: Corpus) -> UserError:
    return UserError(
        f"The task {name} needs {missing}. The corpus {corpus.name} has {', '.join(sorted(corpus.columns))}.\n"
        "Treebanks (CoNLL-U) bring words, tags and trees, tagged files their tags, tables a label; "
        "`grammar` has tags and trees."
    )


def _parts(corpus: Corpus, rows: np.ndarray, seed: int, left_out: Counter[str]) -> list[np.ndarray]:
    """The rows of each part."""
    if len(rows) == 0:
        return [rows] * 3
    numbers = split_numbers(corpus.select(rows).column("text"), seed, purpose="probing")
    test = numbers < TEST_SHARE
    dev = ~test & (numbers < TEST_SHARE + DEV_SHARE)
    kept = ~test
    if "part" in corpus.columns:
        test = np.array([part == "test" for part in corpus.select(rows).column("part")])
        known = np.isin(numbers, numbers[test]) & ~test
        left_out["sentences that also occur in the test corpus"] += int(known.sum())
        kept = ~known & ~test
    return [rows[kept & ~dev], rows[kept & dev], rows[test]]


def _sentences(corpus: Corpus, rows: np.ndarray, seed: int) -> Iterator[QuestionedSentence]:
    for sentence in corpus.select(rows):
        words = running_words(sentence.text) if sentence.words is None else sentence.words
        number = hash64(seed, sentence.text)
        yield QuestionedSentence(sentence=sentence, words=words, number=number, corpus=corpus.name)


_Examples = tuple[Corpus, list[tuple[int, ProbeQuestion]]]  # examples of a part, each with its sentence's row


def _examples(
    kind: Kind,
    corpus: Corpus,
    rows: np.ndarray,
    seed: int,
    ask: Callable[[QuestionedSentence, Counter[str]], Iterator[ProbeQuestion]],
    left_out: Counter[str],
) -> _Examples:
    found = [
        (int(row), question)
        for row, sentence in zip(rows, _sentences(corpus, rows, seed), strict=True)
        if sentence.words
        for question in ask(sentence, left_out)
    ]
    return _with_own_corpus(corpus, found) if kind.changes and found else (corpus, found)


def _with_own_corpus(corpus: Corpus, questions: Sequence[tuple[int, ProbeQuestion]]) -> _Examples:
    """The sentences of the examples, changed or not, as a new corpus; it has words if the corpus has words."""
    written = [question.written for _, question in questions if question.written is not None]
    name = f"{corpus.name} (asked)"
    if "words" in corpus.columns:
        rows = ({"text": each.text, "words": list(each.words), "word_starts": each.starts} for each in written)
        own = Corpus.from_rows(rows, ("text", "words"), name)
    else:
        own = Corpus.from_sentences([each.text for each in written], name)
    return own, [(row, question) for row, (_, question) in enumerate(questions)]


def _part(part: str, questioned: _Examples, names: Sequence[str], left_out: Counter[str]) -> Part:
    places = {name: index for index, name in enumerate(names)}
    corpus, questions = questioned
    known = [(row, question) for row, question in questions if question.label in places]
    unknown = len(questions) - len(known)
    left_out[f"examples of the {part} part whose class is not in the training part"] += unknown
    second = [question.second for _, question in known]
    paired = len(second) > 0 and second[0] is not None
    examples = Examples(
        sentence=np.array([row for row, _ in known], dtype=np.int64),
        first=np.array([question.first for _, question in known], dtype=np.int64).reshape(-1, 2),
        second=np.array(second, dtype=np.int64).reshape(-1, 2) if paired else None,
        label=np.array([places[question.label] for _, question in known], dtype=np.int64),
    )
    return Part(corpus=corpus, examples=examples)


def _listed(left_out: Counter[str]) -> str:
    return "; ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)


def _check_part(name: str, part: str, size: int, corpus: Corpus, left_out: Counter[str] | None = None) -> None:
    if size == 0:
        why = f" Left out are {listed}." if left_out and (listed := _listed(left_out)) else ""
        raise UserError(
            f"The task {name} needs sentences with an example for a training, a development and a test part. "
            f"{corpus.name} ({len(corpus):,} sentences) leaves none for the part {part}.{why}\n"
            f"Give a larger corpus{', or choose another task' if why else ''}."
        )


def _check_classes(name: str, names: Sequence[str], corpus: Corpus, left_out: Counter[str]) -> None:
    if len(names) == 0:
        _check_part(name, "train", 0, corpus, left_out)
    if len(names) == 1:
        raise UserError(
            f"A task needs at least two classes. In the training part of {corpus.name}, {name} has one: "
            f"{as_written(names[0])}.\nChoose another task, or a larger corpus."
        )
    if len(names) > MOST_CLASSES:
        raise UserError(
            f"A task may have {MOST_CLASSES:,} classes at most. In {corpus.name}, {name} has {len(names):,}.\n"
            "Choose a column of tags: this one is different for nearly every word."
        )


# Reads a corpus as tasks need it: trees with features and mentions, tagged files, labelled sentences, pairs.


_FEATURES = {"subject-number": ("Number",), "object-number": ("Number",), "tense": ("Tense", "VerbForm")}
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
    lines: Lines = "sentences",
) -> Corpus:
    """A corpus by name or path, with the columns that these tasks need.

    | file | task | read as |
    |---|---|---|
    | `.conllu` | `coreference`, `entity-spans` | with the brackets `Entity` of MISC |
    | `.conllu` | number and tense, `Case`, `ner-spans` | with the values of that key in FEATS or MISC, in any case |
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
        lines: As in `load_corpus`.

    Raises:
        UserError: As in `load_corpus`, or the number of labels differs from the number of sentences.
    """
    given = (text_column, translation_column, label_column, bad_column)
    names = ("text_column", "translation_column", "label_column", "bad_column")
    columns = {name: column for name, column in zip(names, given, strict=True) if column}
    corpus = _by_task(Path(source), tasks, tags) if not columns and lines == "sentences" else None
    corpus = corpus or load_corpus(source, lines=lines, **columns)
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
                f"{path.name} has columns without names, but several tags were requested: {', '.join(names)}.\n"
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
    columns = [name for task in tasks if (name := tag_column(task)) and name.lower() not in known]
    if columns:
        of_feats, of_misc = conllu_keys(path)
        for name in columns:
            if found := _key(name, of_feats):
                feats.append(found)
            elif found := _key(name, of_misc):
                misc.append(found)
            elif name[:1].isupper():  # not in this file: a column of `_`, as for a feature that no word has
                feats.append(name)
    return Corpus.from_conllu(path, misc=tuple(dict.fromkeys(misc)), feats=tuple(dict.fromkeys(feats)))


def _key(name: str, keys: Sequence[str]) -> str | None:
    """The key with exactly this name, or else the only one that differs just in case."""
    alike = [key for key in keys if key.lower() == name.lower()]
    return name if name in alike else alike[0] if len(alike) == 1 else None
