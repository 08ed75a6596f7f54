"""The user's own measures, objectives and claims in a plan: which code it is, when it may run, and what it holds."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoflow.findings import FINDINGS_TABLE, Finding, load_claims
from infoflow.flow import AbstractMeasure, load_measures
from infoflow.foundation import File, UserError, as_written, check_settings, file_digest
from infoflow.objectives import load_objectives
from infoflow.report import known_tables
from infoflow.results import GIVEN_SCORES, TASK_SCORES


# Code runs only when the user names it, in a plan file, an option, or Python. A run folder may come from somebody else,
# so the code that its run.json names is not run when the folder is only read.
@dataclass(frozen=True, kw_only=True, slots=True)
class PluginsPlan:
    """The user's own code: Python files, relative to the plan, or entry points of installed packages."""

    measures: File = ""  # run on every model and its control, and drawn in the report
    objectives: File = ""  # can be named in `objectives`
    claims: File = ""  # judged with those of the package

    def __post_init__(self) -> None:
        check_settings(self, "plugins")
        for name, value in dataclasses.asdict(self).items():
            if value.endswith(".py"):  # stages may run elsewhere, so paths must be valid in any folder
                object.__setattr__(self, name, str(Path(value).resolve()))


class UnnamedCode(UserError):
    """A run names code that the user did not name in this command."""


_LOADED: dict[tuple[str, str], tuple[str, Any]] = {}  # by kind and source: digest of the file, and what it holds
_MAY_RUN: ContextVar[bool] = ContextVar("may_run", default=True)


@contextmanager
def code_may_run(allowed: bool) -> Iterator[None]:
    """Inside the block, `allowed` says whether plans may run code that this process has not run yet."""
    before = _MAY_RUN.set(allowed)
    try:
        yield
    finally:
        _MAY_RUN.reset(before)


def with_paths(values: dict[str, Any], folder: Path, given: Mapping[str, Path | str | None]) -> dict[str, Any]:
    """A plan file's values with paths to code relative to the current folder instead of `folder`; `given` overrides."""
    named = values.get("plugins", {})
    if not isinstance(named, dict):
        return values
    files = {name: str(folder / one) for name, one in named.items() if isinstance(one, str) and one.endswith(".py")}
    return {**values, "plugins": {**named, **files, **{name: str(one) for name, one in given.items() if one}}}


def named_plugins(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    """The code that a run.json names, by its kind; nothing is run."""
    plan = manifest.get("plan")
    named = plan.get("plugins") if isinstance(plan, dict) else None
    return {kind: one for kind, one in named.items() if isinstance(one, str) and one} if isinstance(named, dict) else {}


def own_measures(plugins: PluginsPlan) -> list[AbstractMeasure]:
    return list(_LOADED["measures", plugins.measures][1]) if plugins.measures else []


def own_claims(plugins: PluginsPlan) -> list[Finding]:
    return list(_LOADED["claims", plugins.claims][1]) if plugins.claims else []


def taken_tables() -> list[str]:
    """Names of tables that the user's own measures must not use."""
    return [*known_tables(), TASK_SCORES.name, GIVEN_SCORES.name, FINDINGS_TABLE.name]


def load_plugins(plugins: PluginsPlan) -> None:
    """Load code that is new or has changed, so that mistakes are reported before any work."""
    loaders = {
        "measures": lambda source: load_measures(source, taken_tables()),
        "objectives": load_objectives,
        "claims": load_claims,
    }
    named: Mapping[str, str] = {kind: source for kind, source in dataclasses.asdict(plugins).items() if source}
    new = {kind: source for kind, source in named.items() if _LOADED.get((kind, source), ("",))[0] != _code(source)}
    if new and not _MAY_RUN.get():
        files = "; ".join(f"{kind} = {as_written(source)}" for kind, source in new.items())
        raise UnnamedCode(
            f"This run uses its author's own code: {files}. A run folder may come from somebody else, so that code is "
            "executed only if you ask for it.\nLook at it; then add --own-code, or in Python load its plan first: "
            'infoflow.StudyPlan.load("study.toml").'
        )
    for kind, source in new.items():
        code = _code(source)
        _LOADED[kind, source] = code, loaders[kind](source)


def _code(source: str) -> str:
    """The digest of a file, or the name of an entry point, since that is loaded only once."""
    return file_digest(source) if source.endswith(".py") and Path(source).is_file() else source
