"""Claims of one's own: the `Finding`s of a Python file that the user names."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, run_python_file, told_error

from ._condition import Condition
from ._finding import Curves, Finding, Untested
from ._registry import FINDINGS


def load_claims(path: Path | str) -> list[Finding | Untested]:
    """The claims in a Python file: every `Finding` or `Untested` among its names, or in a list or tuple there.

    **The file's code is executed**: name only files you trust. A claim is written as those of the package are, with the
    public names of `infoflow.findings`: `Table(...)` and `together` make readings, `untrained` and `baselines` the
    readings of controls, `exceeds` and `stays_below` the conditions.

    Raises:
        UserError: The file cannot be run, holds no claim, or a claim has no id of its own, such as `mine:1`.
    """
    module = run_python_file(path)
    found: dict[str, Finding | Untested] = {}
    for claim in _claims_in(vars(module).values()):
        if FINDINGS.get(claim.id) is claim or found.get(claim.id) is claim:  # imported, or named twice
            continue
        room, _, number = claim.id.partition(":")
        if not room or not number:
            raise UserError(f"The id of a claim must be ROOM:NUMBER, such as mine:1. Got {claim.id[:80]!r} in {path}.")
        if claim.id in FINDINGS or claim.id in found:
            whose = "the package" if claim.id in FINDINGS else "the same file"
            raise UserError(f"Each claim needs an id of its own. {claim.id} in {path} is one of {whose}. Change it.")
        found[claim.id] = claim
    if not found:
        raise UserError(
            f"{path} holds no claim: no infoflow.findings.Finding among its names. Write FINDING = Finding(...)."
        )
    return [_guarded(claim, path) if isinstance(claim, Finding) else claim for claim in found.values()]


def _claims_in(values: Any) -> Iterator[Finding | Untested]:
    for value in values:
        if isinstance(value, Finding | Untested):
            yield value
        elif isinstance(value, list | tuple):
            yield from (each for each in value if isinstance(each, Finding | Untested))


def _guarded(claim: Finding, path: Path | str) -> Finding:
    """The claim, whose test says which file is to be mended where it raises or returns something else."""

    def test(curves: Curves) -> list[Condition]:
        try:
            conditions = claim.test(curves)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also what would end the process, which must not happen without a word
            shapes = ", ".join(f"{name} {rows.shape}" for name, rows in curves.items())
            raise UserError(
                f"The test of {claim.id} in {path} raised {told_error(error)}. "
                f"It was given rows of numbers (replicates, numbers): {shapes}. Mend it."
            ) from error
        if not isinstance(conditions, list) or not conditions or not all(isinstance(c, Condition) for c in conditions):
            raise UserError(
                f"The test of {claim.id} in {path} must return a list of conditions. "
                f"Got {type(conditions).__name__}. Write return [exceeds(...)]."
            )
        return conditions

    return replace(claim, test=test)
