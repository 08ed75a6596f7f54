"""All claims (of the core, of the subjects and of the user) and the tables that are derived for them."""

import os
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from infoflow._subjects import parts
from infoflow.foundation import UserError, as_written, error_text, own_module
from infoflow.results import Spec, TableSchema

from . import claims
from ._finding import Agreement, Condition, Control, Curves, Finding, several


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Derived:
    """Tables that a subject (a package in `infoflow.subjects`) derives from a run's tables when claims are judged."""

    schemas: Sequence[TableSchema]
    make: Callable[[Mapping[str, pd.DataFrame]], Mapping[str, pd.DataFrame]]
    """Returns these tables by name, except the ones for which the run has no data."""
    judged: bool = False  # whether claims read them; if not, they are made after the verdicts


def _natural(finding: Finding) -> list[tuple[bool, int, str]]:
    """Sort key that puts V-2 before V-13 and keeps claims with one prefix together."""
    parts = re.split(r"(\d+)", finding.id)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


class _Registry(Mapping[str, Finding]):
    """Claims by id. Their modules are imported on first use, because they import this package."""

    @cached_property
    def _findings(self) -> dict[str, Finding]:
        modules = [module for part in (claims, *parts("claims")) for module in _declaring(part)]
        found = [value for module in modules for value in vars(module).values() if isinstance(value, Finding)]
        repeated = {finding.id for finding in found if sum(other.id == finding.id for other in found) > 1}
        assert not repeated, f"two claims share an id: {sorted(repeated)}"
        ordered = sorted(found, key=lambda finding: (not finding.id.startswith("representations"), _natural(finding)))
        return {finding.id: finding for finding in ordered}

    def __getitem__(self, key: str) -> Finding:
        return self._findings[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._findings)

    def __len__(self) -> int:
        return len(self._findings)


FINDINGS: Mapping[str, Finding] = _Registry()
"""All claims by id, from `claims` in this package and in every subject."""


def _declaring(part: ModuleType) -> list[ModuleType]:
    """The modules that declare claims: `part` itself, or the modules of a package whose names do not start with _."""
    if not hasattr(part, "__path__"):
        return [part]
    names = [one.name for one in pkgutil.iter_modules(part.__path__) if not one.name.startswith("_")]
    return [import_module(f"{part.__name__}.{name}") for name in names]


def describe() -> str:
    """The registry as Markdown: each claim with its test, controls, published numbers and source."""
    return "\n\n".join(_section(finding) for finding in FINDINGS.values()) + "\n"


def facts_of(finding: Finding) -> dict[str, str]:
    controls = "; ".join(c.name if c.decisive else f"{c.name} (for comparison only)" for c in finding.controls)
    learned = ", ".join(one.label for one in finding.learned)
    models = f"models that have learned their task: {learned}" if learned else "models need not have learned their task"
    return {
        "Test": finding.statistic,
        "Controls": controls or "none",
        "Published": finding.published,
        "Needs": f"{several(finding.minimum_seeds)}; {models}",
        "Source": finding.source + (f" (read: {finding.source_read})" if finding.source_read else ""),
        "Tables": ", ".join(finding.all_tables),
    }


def _section(finding: Finding) -> str:
    facts = facts_of(finding) | ({"Why it failed in our experiments": finding.known_cause} if finding.cause else {})
    return "\n".join(
        [f"### {finding.id}", "", finding.claim, "", *(f"- {name}: {text}" for name, text in facts.items())]
    )


def load_claims(path: Path | str) -> list[Finding]:
    """The claims in a Python file: every `Finding` among its names, or in a list or tuple there.

    `path` may also be the entry point of an installed package, in the group `infoflow.claims`.

    **The file's code is executed**: name only files you trust. A claim is written like those of the package, with the
    public names of `infoflow.findings`: `Table(...)` and `together` make readings, `untrained` and `baselines` make the
    readings of controls, and `exceeds` and `stays_below` make conditions.

    Raises:
        UserError: The file cannot be run or holds no claim, or a claim lacks a unique id, such as `mine:1`.
    """
    module, path = own_module(path, "claims")
    found: dict[str, Finding] = {}
    for claim in _claims_in(vars(module).values()):
        if not isinstance(claim.id, str) or not all(claim.id.partition(":")):
            raise UserError(
                f"The id of a claim must be SECTION:NUMBER, such as mine:1. Got {as_written(claim.id)} in {path}."
            )
        if FINDINGS.get(claim.id) is claim or found.get(claim.id) is claim:  # imported, or has two names
            continue
        if fault := _fault(claim):
            raise UserError(f"{claim.id[:80]} in {path} cannot be judged: {fault}. Correct it.")
        if claim.id in FINDINGS or claim.id in found:
            whose = "the package" if claim.id in FINDINGS else "the same file"
            raise UserError(f"Each claim needs a unique id. {claim.id} in {path} is one of {whose}. Change it.")
        found[claim.id] = claim
    if not found:
        raise UserError(
            f"{path} contains no claim: none of its names is an infoflow.findings.Finding. "
            "Write FINDING = Finding(...)."
        )
    return [_guarded(claim, path) for claim in found.values()]


def _claims_in(values: Any) -> Iterator[Finding]:
    for value in values:
        if isinstance(value, Finding):
            yield value
        elif isinstance(value, list | tuple):
            yield from (each for each in value if isinstance(each, Finding))


def _fault(claim: Finding) -> str:
    """Describe a field of the claim that has the wrong type, since nothing else checks types in a user's file."""
    texts = ["claim", "source", "published", "statistic"]
    if wrong := [name for name in texts if not isinstance(getattr(claim, name), str)]:
        return f"{wrong[0]} must be text"
    if not isinstance(claim.controls, tuple) or not all(isinstance(one, Control) for one in claim.controls):
        return "controls must be a tuple of Control(...)"
    for reads in (claim.reads, *(control.reads for control in claim.controls)):
        if not isinstance(reads, Mapping) or not reads or not all(hasattr(one, "sources") for one in reads.values()):
            return 'reads must name readings, such as {"change": Table("layer_distance", MASKED)}'
    if not isinstance(claim.learned, tuple) or not all(isinstance(one, Spec) for one in claim.learned):
        return "learned must be a tuple of objectives, such as (MASKED,)"
    if not callable(claim.test):
        return "test must be a function of the curves"
    if claim.reliable is not None and not isinstance(claim.reliable, Agreement):
        return "reliable must be an Agreement(...)"
    if not isinstance(claim.uncontrolled, str):
        return "uncontrolled must be text: why no control could show the claim"
    if claim.uncontrolled and any(one.decisive for one in claim.controls):
        return "uncontrolled must be left out where a control is decisive"
    if not isinstance(claim.minimum_seeds, int) or claim.minimum_seeds < 1:
        return "minimum_seeds must be a whole number from 1"
    return ""


def _guarded(claim: Finding, path: Path | str) -> Finding:
    """The claim with a wrapped test, whose error names the file if the test raises or returns something invalid."""

    def test(curves: Curves) -> list[Condition]:
        here, num_rows = Path.cwd(), {len(rows) for rows in curves.values()}
        try:
            conditions = claim.test(curves)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # includes exceptions that would end the process silently
            shapes = ", ".join(f"{name} {rows.shape}" for name, rows in curves.items())
            raise UserError(
                f"The test of {claim.id} in {path} raised {error_text(error)}. "
                f"It was given rows of numbers (replicates, numbers): {shapes}. Correct it."
            ) from error
        finally:
            os.chdir(here)
        if not isinstance(conditions, list) or not conditions or not all(isinstance(c, Condition) for c in conditions):
            raise UserError(
                f"The test of {claim.id} in {path} must return a list of conditions. "
                f"Got {type(conditions).__name__}. Write return [exceeds(...)]."
            )
        if wrong := [one for one in conditions if {len(one.values)} != num_rows]:
            raise UserError(
                f"The test of {claim.id} in {path} must keep the {max(num_rows):,} rows it is given: the estimate, "
                f"each seed, and replicates. Its condition {wrong[0].name!r} has {len(wrong[0].values):,}. Correct it."
            )
        return conditions

    return replace(claim, test=test)
