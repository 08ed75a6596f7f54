"""`load_task`: the three parts of a task from files or corpora, checked."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, as_written, current_display, hash64

from ._choice_and_tagging import right_places
from ._read_part import LABELLED, check_named, read_part
from ._span_rows import askable_spans
from ._task import (
    SHAPES,
    Shape,
    TaskData,
    check_known,
    check_numbers,
    check_tags,
    check_task_name,
    number,
    several,
    tag_column,
    tags_of,
)

DEV_SHARE, TEST_SHARE = 0.1, 0.2  # share of the distinct training texts for a missing dev or test part
_MOST_CLASSES = 20  # maximum number of distinct integer labels in a classification; with more, it is a regression
_TEXTS: Mapping[Shape, tuple[str, ...]] = {
    "classification": ("text", "label"),
    "regression": ("text", "label"),
    "tagging": ("words",),
    "choice": ("text", "question", "choices", "label"),
    "span": ("text", "question", "answers"),
    "generation": ("text", "translation"),
}
"""The columns that a shape needs."""
_NAMED = {"translation": "label= (--label-column)"}  # in generation, the option `label` names the column of targets
_COLUMN: Mapping[Shape, str] = {"classification": "label", "tagging": "tags"}
"""The option that names the column of the classes."""
LabelReader = Callable[[Corpus], Iterable[Sequence[str]]]
"""A function that reads the labels of each example of a part; empty for a shape without classes."""


def load_task(
    name: str,
    *,
    train: Any,
    dev: Any = None,
    test: Any = None,
    shape: Shape | None = None,
    tags: str | None = None,
    labels: Sequence[str] | None = None,
    multi: bool = False,
    seed: int = 0,
    **columns: str | int | None,
) -> TaskData:
    """A task's parts, each from a corpus, a file, a frame, a data set, or `hf:NAME:SPLIT`.

    | file                                                     | read as                                              |
    |----------------------------------------------------------|------------------------------------------------------|
    | `label<TAB>text`                                         | classification or regression                         |
    | `label<TAB>first<TAB>second`                             | the same, for pairs                                  |
    | `class<TAB>number<TAB>first<TAB>second` (SICK)           | pairs; the number if `shape` is `"regression"`       |
    | `word<TAB>tag`, blank lines between sentences; `.conllu` | tagging                                              |
    | a data set or `hf:NAME`, with `words` and `tags`         | tagging                                              |
    | SQuAD's `.json`                                          | span: answers that occur in passages                 |
    | `.jsonl`, `.csv`, `.parquet`, `.tsv` with a header       | by usual or given column names                       |

    If a table has a `question` and a text (BoolQ, QNLI), the question is the first text of a pair in classification and
    regression.

    If `shape` is not set, it is inferred from the columns of training: `choices` imply choice, `answers` span, a label
    classification or regression, tags of words tagging, and a `translation` generation. Labels imply regression if all
    are numbers and one has a fraction or there are more than 20 distinct ones; a note reports it.

    A missing part is split off training by the content of the texts (`Corpus.split`): 0.1 of the texts for dev, 0.2 for
    test, and their near duplicates are removed from training; a note reports it. Examples without a label are left out
    (also those with a `gold_label` of `-`: no agreement between annotators), as are questions whose passages lack their
    answers.

    `labels` are the classes in order, by default that of first occurrence in training; with `multi`, an example may
    have several, joined by `|`, or none. `columns` are names, or numbers from 1 in a file without names (see
    `COLUMNS`); for generation, `label` is another name for `translation`, the target.
    """
    check_task_name(name)
    named = check_named(columns)
    check_shape(shape)
    if shape == "generation" and "label" in named:
        named = {name: column for name, column in named.items() if name != "label"} | {"translation": named["label"]}
    left_out: Counter[str] = Counter()
    parts = {
        part: read_part(source, shape, named, tags)
        for part, source in (("train", train), ("dev", dev), ("test", test))
        if source is not None
    }
    shape = shape or _shape_of(parts["train"], name)
    if tags is not None and shape != "tagging":
        raise UserError(
            f"tags names the column of word tags. Got {as_written(tags)} for {name}, which is a task of the "
            f"shape {shape}.\nLeave it out, or use a file of word<TAB>tag lines."
        )
    for corpus in parts.values():
        _check_columns(corpus, shape)
        if shape == "regression":
            check_numbers(corpus)  # before rows are selected, to report line numbers of the file
    if shape in ("classification", "regression", "choice") and not multi:
        parts = {part: _labelled(corpus, part, left_out) for part, corpus in parts.items()}
    if shape == "span":
        parts = {part: _askable(corpus, part, left_out) for part, corpus in parts.items()}
    read_labels = _label_reader(shape, parts["train"], multi, tags)
    parts = _split(parts, name, seed, left_out, read_labels)
    classes = _classes(parts, shape, labels, read_labels)
    if shape in LABELLED:
        parts = {part: _questions_first(corpus) for part, corpus in parts.items()}
    options = {"column": tag_column(parts["train"], tags)} if shape == "tagging" else {}
    return TaskData(name=name, shape=shape, labels=classes, left_out=dict(left_out), options=options, **parts)


def check_shape(shape: str | None) -> None:
    """Raise a UserError unless the shape exists or is None."""
    if shape is not None and shape not in SHAPES:
        raise UserError(f"shape must be one of {', '.join(SHAPES)}. Got {as_written(shape)}.")


def _shape_of(corpus: Corpus, name: str) -> Shape:
    columns = corpus.columns
    if "choices" in columns:
        return "choice"
    if "answers" in columns:
        return "span"
    if "label" in columns:
        return _of_labels(corpus, name)
    if "words" in columns:
        return "tagging"
    if "translation" in columns:
        return "generation"
    raise UserError(
        f"The kind of task cannot be inferred from the columns of {corpus.name}: {', '.join(sorted(columns))}.\n"
        "Name the column of the labels (label=), or set shape=."
    )


def _of_labels(corpus: Corpus, name: str) -> Shape:
    found = {label for label in corpus.column("label") if label is not None}
    values = [number(label) for label in found]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values) or (len(found) <= _MOST_CLASSES and all(value == value // 1 for value in numbers)):
        return "classification"
    current_display().note(
        f'{name}: its labels are numbers, so it is treated as a regression (shape="classification" for classes).'
    )
    return "regression"


def _check_columns(corpus: Corpus, shape: Shape) -> None:
    needed = _TEXTS.get(shape, ("text",))
    if missing := [column for column in needed if column not in corpus.columns]:
        how = (
            "Tags need words: read word<TAB>tag lines, CoNLL-U, or a data set (with the columns words= and tags=)."
            if shape == "tagging"
            else ("Name its columns: " + ", ".join(f"{_NAMED.get(column, f'{column}=')}" for column in missing) + ".")
        )
        raise UserError(
            f"A task of the shape {shape} needs {', '.join(needed)}. {corpus.name} has "
            f"{', '.join(sorted(corpus.columns))}.\n{how}"
        )


def _questions_first(corpus: Corpus) -> Corpus:
    """The corpus with its question as the first text of a pair, if it has a question and a text.

    Parts are split before this step, so that all questions about a text stay together.
    """
    if "question" not in corpus.columns:
        return corpus
    if "second" in corpus.columns:
        raise UserError(
            f"A label belongs to a text or a pair of texts. {corpus.name} has three: question, text and second.\n"
            "Name two of their columns: text= and second= (--text-column, --second-column)."
        )
    columns = ["second", *sorted(corpus.columns - {"question", "second"})]
    values = {name: corpus.column(name) for name in columns if name not in ("text", "second")}
    values |= {"text": corpus.column("question"), "second": corpus.column("text")}
    rows = (dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))
    return Corpus.from_rows(rows, columns, corpus.name)


def _labelled(corpus: Corpus, part: str, left_out: Counter[str]) -> Corpus:
    rows = [row for row, label in enumerate(corpus.column("label")) if label is not None]
    if len(rows) < len(corpus):
        left_out[f"{part}: without a label"] += len(corpus) - len(rows)
        current_display().note(f"{corpus.name}: {len(corpus) - len(rows):,} examples without a label were left out.")
    if not rows:
        raise UserError(
            f"No example of {corpus.name} has a label.\nName the column of the labels (label=), or leave this part out."
        )
    return corpus if len(rows) == len(corpus) else corpus.select(rows)


def _askable(corpus: Corpus, part: str, left_out: Counter[str]) -> Corpus:
    kept, reasons = askable_spans(corpus)
    left_out.update({f"{part}: {reason}": count for reason, count in reasons.items()})
    return kept


def _split(
    parts: dict[str, Corpus], name: str, seed: int, left_out: Counter[str], read_labels: LabelReader
) -> dict[str, Corpus]:
    """All three parts; missing ones are split off training, without examples whose label training then lacks."""
    missing = [part for part in ("dev", "test") if part not in parts]
    if not missing:
        return parts
    shares = [share if part in missing else 0.0 for part, share in (("dev", DEV_SHARE), ("test", TEST_SHARE))]
    # Training may be the rest of another split; with the same seed, no text of it would then fall into a new part.
    apart = hash64("task-parts", seed, *missing) % 2**31
    split = parts["train"].split(seed=apart, validation=shares[0], test=shares[1])
    for part, reasons in split.left_out.items():
        for reason, count in reasons.items():
            left_out[f"{'dev' if part == 'validation' else part}: {reason}"] += count
    found = {"train": split.train, "dev": split.validation or parts.get("dev"), "test": split.test or parts.get("test")}
    parts = {part: corpus for part, corpus in found.items() if corpus is not None}
    known = {label for labels in read_labels(parts["train"]) for label in labels}
    for part in missing:
        is_known = np.array([known.issuperset(labels) for labels in read_labels(parts[part])])
        if not is_known.all():
            left_out[f"{part}: a label that training lacks"] += int((~is_known).sum())
            parts[part] = parts[part].select(is_known)
    sizes = ", ".join(f"{part} {len(corpus):,}" for part, corpus in parts.items())
    current_display().note(
        f"{name}: {' and '.join(missing)} split off training by the content of the texts ({split.rule}): {sizes}."
    )
    return parts


def _label_reader(shape: Shape, train: Corpus, multi: bool, tags: str | None) -> LabelReader:
    if shape == "tagging":
        column = tag_column(train, tags)
        return lambda corpus: tags_of(corpus, column)
    if shape == "classification" and multi:
        return lambda corpus: map(several, corpus.column("label"))
    if shape == "classification":
        return lambda corpus: ([str(label)] for label in corpus.column("label"))
    return lambda corpus: ([] for _ in range(len(corpus)))


def _classes(
    parts: Mapping[str, Corpus], shape: Shape, labels: Sequence[str] | None, read_labels: LabelReader
) -> tuple[str, ...]:
    for corpus in parts.values():
        if shape == "choice":
            right_places(corpus)
    if shape not in ("classification", "tagging"):
        return ()
    found = {part: [label for each in read_labels(corpus) for label in each] for part, corpus in parts.items()}
    classes = _known(parts["train"], found["train"], labels, shape)
    column = _COLUMN[shape]
    for part in ("dev", "test"):
        check_known(found[part], classes, parts[part], column)
    return classes


def _known(train: Corpus, found: Sequence[str], labels: Sequence[str] | None, shape: Shape) -> tuple[str, ...]:
    """The classes or tags of training; all classes in `labels` must occur."""
    classes = tuple(dict.fromkeys(found))
    what = "class" if shape == "classification" else "tag"
    if labels is not None:
        check_known(found, labels, train, _COLUMN[shape])
        if empty := [label for label in labels if label not in set(classes)]:
            raise UserError(
                f"Every {what} must have an example in training. {train.name} has none of "
                f"{', '.join(map(as_written, empty))}.\nLeave it out of labels, or add examples."
            )
        classes = tuple(labels)
    if shape == "tagging":
        check_tags(classes)
    if len(classes) < 2:
        kinds = {"class": "A classification needs at least two classes", "tag": "Tagging needs at least two tags"}
        raise UserError(
            f"{kinds[what]}. {train.name} has {len(classes)}: {', '.join(map(as_written, classes)) or 'none'}.\n"
            f"Name another column ({_COLUMN[shape]}=), or use more data."
        )
    return classes
