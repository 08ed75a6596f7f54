"""Facts, the sentences with a blank that query them, and files with both."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from infoflow.corpus import read_cells, read_objects
from infoflow.foundation import UserError, as_written, digest, hash64

SUBJECT, OBJECT = "[X]", "[Y]"
MANUAL = "manual"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClozeFact:
    """A subject, a relation and an object."""

    relation: str
    subject: str
    object: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A template that queries the object of a relation: [X] is the subject, [Y] the object."""

    relation: str
    template: str
    family: str = MANUAL
    """Origin: written by hand, `mined` from text, `paraphrased` by translation, or the name in a file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Facts to measure on, facts for choosing and weighting prompts, and the prompts.

    Repeated facts, facts of relations without a template, training facts whose subject is measured in the same
    relation, and templates without exactly one [X] and one [Y] are left out and counted.
    """

    facts: tuple[ClozeFact, ...]
    prompts: tuple[Prompt, ...]
    train: tuple[ClozeFact, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)  # number of facts left out, by reason

    def __post_init__(self) -> None:
        for fact in (*self.facts, *self.train):
            if not (fact.relation.strip() and fact.subject.strip() and fact.object.strip()):
                raise UserError(f"A fact has a relation, a subject and an object. Got {fact}. Complete or delete it.")
        prompts = tuple(dict.fromkeys(prompt for prompt in self.prompts if _is_template(prompt.template)))
        named = {prompt.relation for prompt in prompts}
        facts = tuple(dict.fromkeys(fact for fact in self.facts if fact.relation in named))
        measured = {(fact.relation, fact.subject) for fact in facts}
        train = tuple(
            dict.fromkeys(
                one for one in self.train if one.relation in named and (one.relation, one.subject) not in measured
            )
        )
        counts = {
            "templates without one [X] and one [Y]": sum(not _is_template(one.template) for one in self.prompts),
            "facts of relations without a template": sum(one.relation not in named for one in self.facts),
            "facts given twice": len(self.facts) - len(set(self.facts)),
            "training facts about measured subjects": len(
                {one for one in self.train if (one.relation, one.subject) in measured}
            ),
        }
        if not facts:
            raise UserError(
                f"No fact has a template: {len(self.facts)} facts, {len(prompts)} templates with one [X] and one [Y], "
                'and none for the relation of a fact. Give templates such as "[X] was born in [Y] .".'
            )
        for name, value in (("facts", facts), ("prompts", prompts), ("train", train)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "left_out", {**self.left_out, **{name: num for name, num in counts.items() if num}})

    @property
    def relations(self) -> tuple[str, ...]:
        """Relations of the measured facts, in order of first occurrence."""
        return tuple(dict.fromkeys(fact.relation for fact in self.facts))

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(prompt.family for prompt in self.prompts))

    @property
    def objects(self) -> tuple[str, ...]:
        """Every object of any fact, measured or for training, in alphabetical order."""
        return tuple(sorted({fact.object for fact in (*self.facts, *self.train)}))

    @property
    def digest(self) -> str:
        """Sixteen hex digits that identify the facts and prompts."""
        parts = (self.facts, self.train, self.prompts)
        return digest([[repr(one) for one in part] for part in parts])

    def chosen(self, relation: str, num: int, *, train: bool = False) -> list[ClozeFact]:
        """Up to `num` facts of one relation (0: all), by hash; smaller samples are subsets of larger ones."""
        of_relation = [fact for fact in (self.train if train else self.facts) if fact.relation == relation]
        order = np.argsort([hash64("fact", one.relation, one.subject, one.object) for one in of_relation])
        return [of_relation[index] for index in order[: num or None]]

    def prompts_of(self, relation: str, families: Sequence[str], num: int) -> list[Prompt]:
        """The first `num` templates (0: all) of each family for one relation."""
        chosen = []
        for family in families:
            own = [one for one in self.prompts if (one.relation, one.family) == (relation, family)]
            chosen += own[: num or None]
        return chosen

    def with_objects(self, objects: Sequence[str]) -> "Facts":
        """The facts whose object is in this list; the others are counted."""
        known = set(objects)
        kept = tuple(fact for fact in self.facts if fact.object in known)
        if not kept:
            raise UserError(
                f"No object of the {len(self.facts):,} facts is one token of every model compared, so there is no "
                "question. Give facts with frequent words as objects, or models with larger vocabularies."
            )
        train = tuple(fact for fact in self.train if fact.object in known)
        dropped = {
            "facts whose object is not one token": len(self.facts) - len(kept),
            "training facts whose object is not one token": len(self.train) - len(train),
        }
        counts = {name: num for name, num in dropped.items() if num}
        return replace(self, facts=kept, train=train, left_out={**self.left_out, **counts})


def _is_template(template: str) -> bool:
    return template.count(SUBJECT) == 1 and template.count(OBJECT) == 1


# Facts and prompts from files: the user's tables, and those of LAMA and LPAQA.


Record = dict[str, str]

_NAMES = {
    "relation": ("relation", "predicate_id"),
    "subject": ("subject", "sub_label", "sub"),
    "object": ("object", "obj_label", "obj"),
    "template": ("template", "prompt"),
    "family": ("family", "prompts"),
}  # our names first, then those of LAMA and LPAQA
_FAMILIES = {"mine": "mined", "mining": "mined", "para": "paraphrased", "paraphrase": "paraphrased"}
_FACTS, _PROMPTS, _TRAIN = ("relation", "subject", "object"), ("family", "relation", "template"), "facts-train"
_SUFFIXES = (".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz")


def read_facts(
    path: Path | str, *, prompts: Sequence[Path | str] = (), train: Path | str | None = None, template: str = ""
) -> Facts:
    """Facts with their prompts.

    | file              | holds                                                                                   |
    |-------------------|-----------------------------------------------------------------------------------------|
    | facts, `.tsv`     | relation, subject, object; a first line may name the columns, also one for the template |
    | facts, `.jsonl`   | JSON objects with these keys, or with LAMA's: sub_label, obj_label, predicate_id        |
    | prompts, `.tsv`   | family, relation, template; a first line may name the columns                           |
    | prompts, `.jsonl` | JSON objects with relation and template (LAMA's and LPAQA's), optionally a family       |

    All may be gzipped. `path` may be a folder with `facts`, and optionally `facts-train`, `relations` (prompts written
    by hand) and files whose names end in `prompts`.

    Args:
        path: The facts to measure on, or a folder as above.
        prompts: Additional files of prompts.
        train: Facts for choosing and weighting prompts.
        template: Template for facts of relations without one.

    Raises:
        UserError: A file is missing or malformed, or holds no usable fact.
    """
    path = Path(path)
    prompt_files = [Path(one) for one in prompts]
    train_file = Path(train) if train is not None else None
    if path.is_dir():
        folder, path = path, _in_folder(path, "facts")
        train_file = train_file or next(_named(folder, _TRAIN), None)
        tables = [one for one in sorted(folder.iterdir()) if _stem(one).endswith("prompts") and _is_readable(one)]
        prompt_files = [*_named(folder, "relations"), *tables, *prompt_files]
    found, written = _facts(path)
    trained, more = _facts(train_file) if train_file else ([], [])
    collected = [*written, *more, *(prompt for file in prompt_files for prompt in _prompts(file))]
    if template:
        have = {prompt.relation for prompt in collected}
        lacking = dict.fromkeys(fact.relation for fact in found if fact.relation not in have)
        collected += [Prompt(relation=relation, template=template) for relation in lacking]
    return Facts(facts=tuple(found), prompts=tuple(collected), train=tuple(trained))


def _facts(path: Path) -> tuple[list[ClozeFact], list[Prompt]]:
    facts, prompts = [], []
    for number, record in _records(path, _FACTS):
        values = {name: record.get(name, "").strip() for name in _FACTS}
        if lacking := [name for name, value in values.items() if not value]:
            raise UserError(
                f"{path}, line {number}: a fact has a relation, a subject and an object. Its {lacking[0]} is missing.\n"
                "Complete or delete the line."
            )
        facts.append(ClozeFact(**values))
        if record.get("template", "").strip():
            prompts.append(Prompt(relation=values["relation"], template=record["template"].strip()))
    if not facts:
        raise UserError(f"{path} holds no facts. Write one to a line: relation<TAB>subject<TAB>object.")
    return facts, prompts


def _prompts(path: Path) -> Iterator[Prompt]:
    for number, record in _records(path, _PROMPTS):
        relation, template = record.get("relation", "").strip(), record.get("template", "").strip()
        if not relation or not template:
            raise UserError(
                f"{path}, line {number}: a prompt has a relation and a template. Got {as_written(record)}.\n"
                "Complete or delete the line."
            )
        family = record.get("family", "").strip() or MANUAL
        yield Prompt(relation=relation, template=template, family=_FAMILIES.get(family, family))


def _records(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Record]]:
    if not path.exists():
        raise UserError(f"There is no file {path} of facts or prompts. Check the path.")
    if not _is_readable(path):
        raise UserError(
            f"Facts and prompts are read from {', '.join(_SUFFIXES)}. Got {path}.\nGive it such a name, or convert it."
        )
    return _objects(path) if ".jsonl" in path.name else _rows(path, columns)


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Record]]:
    known = {name: own for own, names in _NAMES.items() for name in names}
    names = list(columns)
    for number, cells in read_cells(path):
        if number == 1 and len(cells) > 1 and {cell.strip().lower() for cell in cells} <= known.keys():
            names = [known[cell.strip().lower()] for cell in cells]
        elif cells:
            if len(cells) != len(names):
                raise UserError(
                    f"{path}, line {number}: {len(names)} tab-separated cells were expected ({', '.join(names)}). "
                    f"Got {len(cells)}.\nCorrect the line, or name the columns in the first line."
                )
            yield number, dict(zip(names, cells, strict=True))


def _objects(path: Path) -> Iterator[tuple[int, Record]]:
    for number, value in read_objects(path):
        named = {own: next((value[name] for name in names if name in value), "") for own, names in _NAMES.items()}
        if odd := next((name for name, cell in named.items() if not isinstance(cell, str)), None):
            raise UserError(f"{path}, line {number}: {odd} must be text. Got {as_written(named[odd])}.")
        yield number, named


def _in_folder(folder: Path, stem: str) -> Path:
    found = next(_named(folder, stem), None)
    if found is None:
        raise UserError(f"{folder} holds no {stem}.tsv and no {stem}.jsonl (.gz too). Give a file, or another folder.")
    return found


def _named(folder: Path, stem: str) -> Iterator[Path]:
    return (path for suffix in _SUFFIXES if (path := folder / f"{stem}{suffix}").is_file())


def _is_readable(path: Path) -> bool:
    return path.name.endswith(_SUFFIXES)


def _stem(path: Path) -> str:
    return path.name.split(".")[0]
