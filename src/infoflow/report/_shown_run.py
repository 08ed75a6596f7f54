"""A run as its page shows it: files by name, corpus, provenance, and claims by question."""

import math
import re
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.foundation import command_without_folders, model_name_of, name_of, said_size, without_folders
from infoflow.results import RunFolder, StoredTable, Tables

from ._embedding import leaves_changed
from ._figure import Section
from ._in_words import duration_text, listed
from ._summary import UNTESTABLE, ScorecardRow

_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:[/\\]")
_BUILT_IN = ("hf:", "grammar", "tatoeba")
_TELL_OF_FILES = ("title", "corpus", "models", "stages", "failures", "warnings")  # entries with text about files
# Plan settings that may name files, for runs of earlier versions, which do not list them in run.json.
_EARLIER_FILES = [
    *(f"corpus.{name}" for name in ("name", "validation_name", "test_name", "transfer_name")),
    *("domain.corpus", "probing.corpus", "retrieval.corpus", "retrieval.test"),
    *("tune[].train", "tune[].dev", "tune[].test"),
    *(f"options.{name}" for name in ("corpus", "test", "labels", "own", "tokenizer", "parser", "probing.corpus")),
]


# Settings of earlier versions that hold column names and other words of the user.
_EARLIER_WORDS = [
    *(f"{table}.{name}_column" for table in ("corpus", "domain") for name in ("text", "translation", "document")),
    *(f"options.{name}_column" for name in ("text", "translation", "label", "bad")),
    *("options.tags[]", "options.prefix", "tune[].columns[]", "steps[]"),
]
_MODELS = ("plan.models[]", "plan.model")  # a local one is an absolute path


class ShownRun(RunFolder):
    """The run in a folder, for a page that is shared; `anonymous` hides names of local files and the command, too."""

    def __init__(self, path: Path | str, anonymous: bool = False) -> None:
        super().__init__(path)
        self.anonymous = anonymous or bool(super().read().get("anonymous"))

    def read(self) -> dict[str, Any]:
        manifest = super().read()
        shown = without_folders(self._files_renamed(manifest), self.anonymous)
        shown["command"] = "" if self.anonymous else command_without_folders(manifest.get("command", ""))
        if isinstance(shown.get("provenance"), dict):
            shown["provenance"] = {**shown["provenance"], "command": shown["command"]}
        if names := self._names:
            title = str(shown.get("title", ""))
            for before, after in names.items():
                title = title.replace(before, after)
            shown["title"] = title
            if "models" in shown:
                models = shown["models"]
                shown["models"] = [{**one, "name": names.get(one.get("name"), one.get("name"))} for one in models]
            if task := shown.get("plan", {}).get("task"):
                shown["plan"] = {**shown["plan"], "task": names.get(task, task)}
        return shown

    def renamed_tables(self) -> list[StoredTable]:
        """The tables that name a local model or task by its file, with these names replaced."""
        if not self._names:
            return []
        stored = [self.tables.stored(name) for name in self.tables]
        return [
            table._replace(frame=table.frame[table.schema.column_names])
            for table in stored
            if _named_columns(table.frame) and set(table.schema.column_names) <= set(table.frame)
        ]

    def _files_renamed(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The entries with file paths reduced to their last part, or removed if anonymous."""
        files = {f"plan.{name}" for name in manifest.get("files", _EARLIER_FILES)} | {"corpus.name"}
        if self.anonymous:
            files |= {f"plan.{name}" for name in manifest.get("own_words", _EARLIER_WORDS)}
        renamed: dict[str, str] = {}
        shown = leaves_changed(manifest, lambda value, name: _setting(value, name, files, self.anonymous, renamed))
        if not renamed:
            return shown
        longest_first = sorted(renamed, key=len, reverse=True)
        pattern = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})(?![\w-])")

        def replaced(value: Any, name: str) -> Any:
            return pattern.sub(lambda found: renamed[found[1]], value) if isinstance(value, str) else value

        return {key: leaves_changed(one, replaced) if key in _TELL_OF_FILES else one for key, one in shown.items()}

    @cached_property
    def tables(self) -> Tables:
        return _Renamed(self.path / "tables", RunFolder(self.path).identity, self._names)

    @cached_property
    def _names(self) -> dict[str, str]:
        """Replacement names of anonymous models, and of tasks named after their file.

        Models of a hub or a study keep their names, as do tasks that were given a name.
        """
        manifest = super().read()
        if not self.anonymous:
            return {}
        kind, plan = manifest.get("kind"), manifest.get("plan", {})
        if kind == "tune":  # for a single model without an entry in run.json
            sources = [str(plan.get("model", ""))]
            models = [model_name_of(sources[0])]
        elif kind == "analyze":
            sources, models = plan.get("models", []), [model.get("name") for model in manifest.get("models", [])]
        else:
            return {}
        if len(sources) != len(models):
            return {}
        local = [name for name, source in zip(models, sources, strict=True) if without_folders(source) != source]
        names = {str(name): f"model-{index + 1}" for index, name in enumerate(local)}
        return {str(plan["task"]): "task", **names} if plan.get("task_named_by") else names


class _Renamed(Tables):
    def __init__(self, path: Path, identity: Callable[[], str], names: dict[str, str]) -> None:
        super().__init__(path, identity)
        self._renamed = names

    def stored(self, name: str) -> StoredTable:
        stored = super().stored(name)
        columns = _named_columns(stored.frame)
        if not self._renamed or not columns:
            return stored
        changed: dict[str, Any] = {
            column: pd.Series(stored.frame[column].map(lambda model: self._renamed.get(model, model)), dtype="string")
            for column in columns
        }
        return stored._replace(frame=stored.frame.assign(**changed))


def _named_columns(frame: pd.DataFrame) -> list[str]:
    return [column for column in ("model", "model_a", "model_b", "task") if column in frame]


def _setting(value: Any, name: str, files: Collection[str], anonymous: bool, renamed: dict[str, str]) -> Any:
    """The setting `name`, renamed if it is in `files`; if anonymous, `renamed` collects the changes."""
    if name in _MODELS and isinstance(value, str) and _ABSOLUTE.match(value):
        return "…" if anonymous else name_of(value)
    if name not in files or not isinstance(value, str) or not value or value.startswith(_BUILT_IN):
        return value
    if not anonymous:
        return ",".join(map(name_of, value.split(",")))
    words = [word for word in re.split(r"[._\[\]]+", name) if word not in ("plan", "options", "name", "")]
    renamed |= {text: " ".join(words) for file in value.split(",") for text in (value, file, name_of(file))}
    return " ".join(words)


_RULES = {
    "near-duplicates": "no two parts share a source, a target, or near duplicates of either (equal words, or one word "
    "substituted, inserted or deleted where both sentences have four words or more)",
    "both-sides": "no two parts share a source or a target",
    "source": "no two parts share a source",
}


def parts_text(run: RunFolder) -> str:
    """Sizes of the parts, the rule that separates them, rows left out, and leaks; "" if the run lacks these counts."""
    manifest = run.read()
    corpus = manifest.get("corpus", {})
    if "leakage" not in (split := corpus.get("split", {})):
        return ""
    sizes = corpus["parts"]
    requested = manifest.get("plan", {}).get("corpus", {}).get("split", split["rule"])
    rule = _RULES.get(split["rule"], "validation and test part were published with it")
    weaker = f" (“{requested}” would have left too few rows)" if split["rule"] and requested != split["rule"] else ""
    lost = sum(split["left_out"].get("train", {}).values())
    return (
        f"The corpus has {sizes['train']:,} rows for training, {sizes['validation']:,} for validation and "
        f"{sizes['test']:,} for testing; {rule}{weaker}. {lost:,} rows were left out of training. "
        f"{_leaks(split['leakage']['test'])}"
    )


def _leaks(leaks: dict[str, Any]) -> str:
    sides = [
        f"{leaks[side]:.1%} of its {side} ({leaks[f'near_{side}']:.1%} with near duplicates)"
        for side in ("sources", "targets")
        if leaks.get(side) is not None
    ]
    return f"The test part shares with training {' and '.join(sides)}."


# Provenance of the numbers: settings, versions, hashes, time per stage.


def stage_times(run: RunFolder) -> dict[str, Any] | None:
    """All stages, longest first, and the total of each kind in words; None if run.json has no times."""
    stages = pd.DataFrame(run.read().get("stages") or [])
    if stages.empty:
        return None
    stages = stages.sort_values("seconds", ascending=False, kind="stable")
    sums = stages.groupby("kind", sort=False)["seconds"].sum().sort_values(ascending=False, kind="stable")
    longest = float(stages["seconds"].iloc[0]) or 1.0
    return {
        "stages": [_stage_time(stage, longest) for stage in stages.to_dict("records")],
        "sums": listed([f"{kind} {duration_text(seconds)}" for kind, seconds in sums.items()]),
    }


def _stage_time(stage: dict[Hashable, Any], longest: float) -> dict[str, Any]:
    """Duration and resource use of a stage, in words; `share` is in percent of the longest stage."""
    memory = stage.get("peak_memory", math.nan)
    return {
        "label": stage["label"],
        "seconds": duration_text(stage["seconds"]),
        "cpu_seconds": duration_text(stage.get("cpu_seconds", math.nan)),
        "memory": said_size(memory) if memory > 0 else "",
        "share": round(100 * float(stage["seconds"]) / longest, 1),
    }


def flattened(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted name, text) pairs, in order."""
    if isinstance(value, dict):
        return [
            pair for key, inner in value.items() for pair in flattened(inner, f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(value, list):
        return [(prefix, ", ".join(str(item) for item in value) or "none")]
    return [(prefix, str(value))]


def settings(run: RunFolder) -> dict[str, list[tuple[str, str]]]:
    """Groups of settings: plan, corpus, software and hardware, time."""
    manifest = run.read()
    entries = {"Plan": "plan", "Corpus": "corpus", "Software and hardware": "provenance"}
    groups = {name: flattened(manifest.get(entry, {})) for name, entry in entries.items()}
    groups["Time"] = [(name, duration_text(float(seconds))) for name, seconds in manifest.get("timings", {}).items()]
    return {name: pairs for name, pairs in groups.items() if pairs}


def claim_groups(
    findings: list[ScorecardRow], sections: list[Section], headings: Sequence[Section]
) -> list[dict[str, Any]]:
    """Group the claims by section ("" if the page has no such section), in the order of the sections.

    `sections` are those of the page, `headings` all possible ones, in order.
    """
    shown = {figure.id: section.id for section in sections for figure in section.figures}
    present = {section.id for section in sections}
    titles = {heading.id: heading.title for heading in headings}
    homes = {word: heading.id for heading in headings for word in (heading.id, *heading.claims)}
    groups: dict[str, list[ScorecardRow]] = {}
    for finding in findings:
        section = shown.get(finding.figure) or homes.get(finding.id.partition(":")[0], "")
        groups.setdefault(section, []).append(finding)
    order = {id: index for index, id in enumerate(titles)}
    return [
        {
            "section": id if id in present else "",
            "title": titles.get(id, "Other questions"),
            "tested": [one for one in own if one.verdict != UNTESTABLE],
            "untested": [one for one in own if one.verdict == UNTESTABLE],
        }
        for id, own in sorted(groups.items(), key=lambda item: order.get(item[0], len(order)))
    ]
