"""The user's own claims: the `Finding`s of a Python file."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, as_written, run_python_file, told_error
from infoflow.results import Spec

from ._condition import Condition
from ._finding import Agreement, Control, Curves, Finding
from ._registry import FINDINGS


def load_claims(path: Path | str) -> list[Finding]:
    """The claims in a Python file: every `Finding` among its names, or in a list or tuple there.

    **The file's code is executed**: name only files you trust. A claim is written like those of the package, with the
    public names of `infoflow.findings`: `Table(...)` and `together` make readings, `untrained` and `baselines` the
    readings of controls, `exceeds` and `stays_below` the conditions.

    Raises:
        UserError: The file cannot be run or holds no claim, or a claim lacks a unique id, such as `mine:1`.
    """
    module = run_python_file(path)
    found: dict[str, Finding] = {}
    for claim in _claims_in(vars(module).values()):
        if not isinstance(claim.id, str):
            raise UserError(
                f"The id of a claim must be ROOM:NUMBER, such as mine:1. Got {as_written(claim.id)} in {path}."
            )
        if FINDINGS.get(claim.id) is claim or found.get(claim.id) is claim:  # imported, or bound to two names
            continue
        room, _, number = claim.id.partition(":")
        if not room or not number:
            raise UserError(f"The id of a claim must be ROOM:NUMBER, such as mine:1. Got {claim.id[:80]!r} in {path}.")
        if fault := _fault(claim):
            raise UserError(f"{claim.id[:80]} in {path} is no claim that can be judged: {fault}. Mend it.")
        if claim.id in FINDINGS or claim.id in found:
            whose = "the package" if claim.id in FINDINGS else "the same file"
            raise UserError(f"Each claim needs an id of its own. {claim.id} in {path} is one of {whose}. Change it.")
        found[claim.id] = claim
    if not found:
        raise UserError(
            f"{path} holds no claim: no infoflow.findings.Finding among its names. Write FINDING = Finding(...)."
        )
    return [_guarded(claim, path) for claim in found.values()]


def _claims_in(values: Any) -> Iterator[Finding]:
    for value in values:
        if isinstance(value, Finding):
            yield value
        elif isinstance(value, list | tuple):
            yield from (each for each in value if isinstance(each, Finding))


def _fault(claim: Finding) -> str:
    """Describe a claim field of the wrong type, since nothing enforces types in a user's file."""
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
    """The claim with a test whose errors name the file, if it raises or returns something else."""

    def test(curves: Curves) -> list[Condition]:
        here, num_rows = Path.cwd(), {len(rows) for rows in curves.values()}
        try:
            conditions = claim.test(curves)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # includes exceptions that would end the process silently
            shapes = ", ".join(f"{name} {rows.shape}" for name, rows in curves.items())
            raise UserError(
                f"The test of {claim.id} in {path} raised {told_error(error)}. "
                f"It was given rows of numbers (replicates, numbers): {shapes}. Mend it."
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
                f"each seed, and replicates. Its condition {wrong[0].name!r} has {len(wrong[0].values):,}. Mend it."
            )
        return conditions

    return replace(claim, test=test)
