"""A finished run, for people and programs; its claims can be judged again."""

import dataclasses
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from infoflow.findings import FINDINGS_TABLE, OVER_SCALE, Finding, load_claims
from infoflow.flow import Failure
from infoflow.foundation import UserError, shown_by
from infoflow.report import Figures, Findings, ShownRun, write_figures, write_report
from infoflow.results import RunFolder, ShownTables

from ._graph import Graph, graph
from ._plan import StudyPlan, stored_plan
from ._study_facts import so_far
from ._study_models import prepared_keys
from .stages._check import write_derived

_OF_FAILURES = {field.name for field in dataclasses.fields(Failure)}


class Run:
    """Tables, findings and report of a run folder."""

    def __init__(self, folder: RunFolder | Path | str) -> None:
        self.folder = RunFolder.of(folder)

    @classmethod
    def open(cls, path: Path | str) -> "Run":
        """The run in the folder `path`."""
        return cls(RunFolder.existing(path))

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def tables(self) -> ShownTables:
        """The run's tables by name, as data frames."""
        return ShownTables.of(self.folder.tables)

    @cached_property
    def figures(self) -> Figures:
        """The report's figures by name, such as `figures["representations/mutual-information"]`; see `Figures`."""
        return Figures(ShownRun(self.path))

    @property
    def findings(self) -> pd.DataFrame:
        """The claims that were checked, one a row.

        Raises:
            UserError: No claims were checked: an analysis of pretrained or external models checks them only on request
                (`infoflow findings`).
        """
        if FINDINGS_TABLE.name not in self.tables:
            raise UserError(
                f"{self.path} has no findings. Check the claims on its tables: infoflow findings {self.path}"
            )
        return Findings(self.tables[FINDINGS_TABLE.name])

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Measures that failed on single models; their tables are missing, and the same command tries them again.

        Raises:
            UserError: run.json is damaged.
        """
        found = self.folder.read().get("failures", [])
        known = [{name: value for name, value in failure.items() if name in _OF_FAILURES} for failure in found]
        try:
            return tuple(Failure(**failure) for failure in known)
        except TypeError:
            raise UserError(
                f"{self.path / 'run.json'} is damaged: each of its failures must have a table, a model and a reason. "
                "Run the command again in a new folder."
            ) from None

    @property
    def stages(self) -> Graph:
        """The stages of the run's plan, with state, dependencies and tables.

        Raises:
            UserError: The run is not a study.
        """
        return self._graph()

    def _graph(self, prepared: bool = False) -> Graph:
        return graph(self._plan, self.folder, prepared)

    @property
    def _plan(self) -> StudyPlan:
        if self.folder.read().get("kind") != "study":
            raise UserError(f"{self.path} is not a study: only a study has stages.")
        return stored_plan(self.folder)

    def so_far(self) -> "Run":
        """The finished part of a running or stopped study, as a run in its folder `so-far`.

        It has the tables of all finished stages and the claims judged by them; its `report()` says what is missing.

        The study itself stays untouched, and removes that folder when it ends.

        Raises:
            UserError: The run is not a study, or none of its models is measured.
        """
        if not prepared_keys(self._plan, self.folder):  # reading its corpus may take hours and is left to the study
            raise UserError(
                f"{self.path} cannot be reported before one of its models is measured, and its "
                "sentences are not prepared for the plan in its run.json.\n"
                "Wait, or run the command that started it again."
            )
        return Run(so_far(self.folder, self._graph(prepared=True)))

    def report(self) -> Path:
        """Write `report.html` again and return its path."""
        return write_report(self.folder)

    def write_figures(
        self,
        folder: Path | str,
        formats: Iterable[str] = ("svg", "png", "pdf"),
        width: float = 6.8,
        columns: int | None = None,
    ) -> list[Path]:
        """Write every figure of the report as `<folder>/<figure>.<format>`, `width` inches wide, and return the paths.

        See `infoflow.report.write_figures`; one figure alone is saved by `run.figures[...].save("name.pdf")`.
        """
        return write_figures(self.folder, folder, formats, width, columns)

    _repr_html_ = shown_by("infoflow.report", "run_shown")

    def __fspath__(self) -> str:
        """The path, so that functions which take a run folder accept a run."""
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {len(self.tables)} tables)\nrun.tables, run.figures, run.findings"


def check_findings(path: Path | str, claims: Path | str | Sequence[Finding] = ()) -> Run:
    """Judge every claim on the run's tables and rewrite its report; a newer infoflow may know more claims.

    Args:
        path: The run folder.
        claims: Your own additional claims, judged by the same rules: `Finding`s, or a Python file that holds them.
            **The file's code is executed.** The next check without them drops them.

    Raises:
        UserError: `path` is not a run folder or has no tables yet, or the file holds no claims.
    """
    own = load_claims(claims) if isinstance(claims, Path | str) else list(claims)
    run = RunFolder.existing(path)
    run.require_tables()
    if run.read().get("kind") == OVER_SCALE:
        raise UserError(
            f"{path} is a comparison of several runs. Check their findings again: infoflow over-scale RUN RUN "
            f"... --out {path}"
        )
    write_derived(run, own)
    write_report(run)
    return Run(run)
