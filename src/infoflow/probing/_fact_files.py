"""Facts and prompts from files: the user's tables, and those of LAMA and LPAQA."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from infoflow.corpus import read_cells, read_objects
from infoflow.foundation import UserError, as_written

from ._facts import MANUAL, ClozeFact, Facts, Prompt

Record = dict[str, str]

_NAMES = {
    "relation": ("relation", "predicate_id"),
    "subject": ("subject", "sub_label", "sub"),
    "object": ("object", "obj_label", "obj"),
    "template": ("template", "prompt"),
    "family": ("family", "prompts"),
}  # LAMA's and LPAQA's own names follow ours
_FAMILIES = {"mine": "mined", "mining": "mined", "para": "paraphrased", "paraphrase": "paraphrased"}
_FACTS, _PROMPTS, _TRAIN = ("relation", "subject", "object"), ("family", "relation", "template"), "facts-train"
_SUFFIXES = (".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz")


def read_facts(
    path: Path | str, *, prompts: Sequence[Path | str] = (), train: Path | str | None = None, template: str = ""
) -> Facts:
    """Facts with their prompts.

    | file            | holds                                                                                    |
    |-----------------|------------------------------------------------------------------------------------------|
    | facts, `.tsv`   | relation, subject, object; or, under a first line that names them, also their template   |
    | facts, `.jsonl` | the same as objects; LAMA's names (sub_label, obj_label, predicate_id) are known too     |
    | prompts, `.tsv` | family, relation, template; or under a first line that names them                        |
    | prompts, `.jsonl` | objects with relation and template (LAMA's and LPAQA's), and perhaps a family          |

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
        beside = [one for one in sorted(folder.iterdir()) if _stem(one).endswith("prompts") and _is_readable(one)]
        prompt_files = [*_named(folder, "relations"), *beside, *prompt_files]
    found, written = _facts(path)
    trained, more = _facts(train_file) if train_file else ([], [])
    asked = [*written, *more, *(prompt for file in prompt_files for prompt in _prompts(file))]
    if template:
        have = {prompt.relation for prompt in asked}
        lacking = dict.fromkeys(fact.relation for fact in found if fact.relation not in have)
        asked += [Prompt(relation=relation, template=template) for relation in lacking]
    return Facts(facts=tuple(found), prompts=tuple(asked), train=tuple(trained))


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
                    f"{path}, line {number}: {len(names)} cells between tabs were expected ({', '.join(names)}). "
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
