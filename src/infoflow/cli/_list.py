"""`infoflow list`: the names that commands and plans accept, from the registries."""

import dataclasses
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ._session import show_table

Kind = Literal["tables", "tasks", "objectives", "presets", "claims", "settings", "corpora"]
_DEFAULT = 24


def list_names(what: Kind, /) -> None:
    """List the names of tables, probing tasks, objectives, presets, claims, settings of a plan, or corpora.

    Args:
        what: tables (for --only), tasks (for --task), objectives, presets, claims, settings (for --set) or corpora.
    """
    show_table(*_LISTS[what]())


Listed = tuple[list[str], list[list[str]]]


def _tables() -> Listed:
    import infoflow.studies  # noqa: F401 (declares them)
    from infoflow.results import TABLES

    found = sorted(TABLES.values(), key=lambda table: table.name)
    return ["table", "holds"], [[table.name, table.description.partition(". ")[0].rstrip(".")] for table in found]


def _tasks() -> Listed:
    from infoflow.probing import tasks

    return ["task", "of", "asks"], [[task.name, task.unit, task.about] for task in tasks()]


def _objectives() -> Listed:
    from infoflow.objectives import OBJECTIVES

    said = {name: (one.__doc__ or "").partition("\n")[0] for name, one in OBJECTIVES.items()}
    rows = [[name, OBJECTIVES[name].layout, re.sub(r" \(\[@.*?\]\)", "", text)] for name, text in said.items()]
    return ["objective", "model", "what it does"], rows


def _presets() -> Listed:
    from infoflow.studies import PRESETS, StudyPlan

    plans = {name: StudyPlan.load(name) for name in PRESETS}
    return ["preset", "seeds", "asks"], [[name, str(len(plan.seeds)), plan.title] for name, plan in plans.items()]


def _claims() -> Listed:
    from infoflow.findings import FINDINGS

    return ["claim", "says"], [[id, one.claim] for id, one in FINDINGS.items()]


def _settings() -> Listed:
    from infoflow.studies import StudyPlan

    return ["setting", "default", "takes"], [list(row) for row in _of_section(StudyPlan, "")]


def _of_section(section: type, path: str) -> Iterator[tuple[str, str, str]]:
    """Settings with their defaults and allowed values, those of sections below."""
    from infoflow.foundation import as_written, default_settings, describe_setting

    defaults, hints = default_settings(section), get_type_hints(section, include_extras=True)
    for name in (field.name for field in dataclasses.fields(section)):
        hint: Any = hints[name]
        items = get_args(hint) if get_origin(hint) is tuple else ()
        inner, mark = (items[0], "[]") if items and dataclasses.is_dataclass(items[0]) else (hint, "")
        if dataclasses.is_dataclass(inner):
            yield from _of_section(inner, f"{path}{name}{mark}.")  # type: ignore[arg-type]
            continue
        default = as_written(defaults[name]) if name in defaults else "–"
        yield path + name, textwrap.shorten(default, _DEFAULT, placeholder="…"), describe_setting(hint)


def _corpora() -> Listed:
    from infoflow.corpus import list_corpora

    rows = [[entry.name, f"{entry.sentences:,}", entry.description] for entry in list_corpora()]
    return ["corpus", "sentences", "holds"], rows


_LISTS: dict[str, Callable[[], Listed]] = {
    "tables": _tables,
    "tasks": _tasks,
    "objectives": _objectives,
    "presets": _presets,
    "claims": _claims,
    "settings": _settings,
    "corpora": _corpora,
}
