"""A run as its report shows it: files by their names, folders not at all; anonymous, not even those."""

from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.foundation import command_without_folders, model_name_of, name_of, without_folders
from infoflow.results import RunFolder, StoredTable, Tables

_OF_CORPORA = ("name", "validation_name", "test_name", "transfer_name", "corpus")
_BUILT_IN = ("hf:", "grammar", "tatoeba")


class ShownRun(RunFolder):
    """The run in a folder, for a page that is passed on.

    Args:
        path: The run folder.
        anonymous: Leave out the names of local files, too, and the command.
    """

    def __init__(self, path: Path | str, anonymous: bool = False) -> None:
        super().__init__(path)
        self.anonymous = anonymous or bool(super().read().get("anonymous"))

    def read(self) -> dict[str, Any]:
        manifest = super().read()
        names = self._names
        shown = without_folders(_corpora_named(manifest, self.anonymous), self.anonymous)
        shown["command"] = "" if self.anonymous else command_without_folders(manifest.get("command", ""))
        if isinstance(shown.get("provenance"), dict):
            shown["provenance"] = {**shown["provenance"], "command": shown["command"]}
        if names:
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

    @cached_property
    def tables(self) -> Tables:
        return _Renamed(self.path / "tables", self._names)

    @cached_property
    def _names(self) -> dict[str, str]:
        """What anonymous models are called instead, and a task that is called like its file; models of a hub or a study
        keep their names, as does a task that was given one."""
        manifest = super().read()
        if not self.anonymous:
            return {}
        kind, plan = manifest.get("kind"), manifest.get("plan", {})
        if kind == "tune":  # of one model, of which run.json has no entry
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
    """The tables with other names of models and tasks."""

    def __init__(self, path: Path, names: dict[str, str]) -> None:
        super().__init__(path)
        self._renamed = names

    def stored(self, name: str) -> StoredTable:
        stored = super().stored(name)
        columns = [column for column in ("model", "model_a", "model_b", "task") if column in stored.frame]
        if not self._renamed or not columns:
            return stored
        changed: dict[str, Any] = {
            column: pd.Series(stored.frame[column].map(lambda model: self._renamed.get(model, model)), dtype="string")
            for column in columns
        }
        return stored._replace(frame=stored.frame.assign(**changed))


def _corpora_named(manifest: dict[str, Any], anonymous: bool) -> dict[str, Any]:
    """Corpora by the names of their files, which a plan may give by relative paths."""
    plan = manifest.get("plan", {})
    shown = {**manifest, "corpus": _named(manifest.get("corpus", {}), anonymous)}
    if isinstance(plan.get("corpus"), dict):
        shown["plan"] = {**plan, "corpus": _named(plan["corpus"], anonymous)}
    elif isinstance(plan.get("options"), dict):
        shown["plan"] = {**plan, "options": _named(plan["options"], anonymous)}
    return shown


def _named(entries: dict[str, Any], anonymous: bool) -> dict[str, Any]:
    return {
        key: _corpus(value, anonymous) if key in _OF_CORPORA and isinstance(value, str) else value
        for key, value in entries.items()
    }


def _corpus(name: str, anonymous: bool) -> str:
    if name.startswith(_BUILT_IN) or not name:
        return name
    return "corpus" if anonymous else ",".join(map(name_of, name.split(",")))
