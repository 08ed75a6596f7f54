"""All claims: every `Finding` or `Untested` in the files of `claims`. A new claim is a new file and nothing else."""

import importlib
import pkgutil
import re
from collections.abc import Mapping
from types import MappingProxyType

from . import claims
from ._finding import Finding, Untested, several


def _natural(finding: Finding | Untested) -> list[tuple[bool, int, str]]:
    """V-2 before V-13, and the rooms together."""
    parts = re.split(r"(\d+)", finding.id)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _discover() -> Mapping[str, Finding | Untested]:
    names = [module.name for module in pkgutil.iter_modules(claims.__path__)]
    modules = [importlib.import_module(f"{claims.__name__}.{name}") for name in names]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Finding | Untested)]
    repeated = {finding.id for finding in found if sum(other.id == finding.id for other in found) > 1}
    assert not repeated, f"two claims share an id: {sorted(repeated)}"
    ordered = sorted(found, key=lambda finding: (not finding.id.startswith("representations"), _natural(finding)))
    return MappingProxyType({finding.id: finding for finding in ordered})


FINDINGS: Mapping[str, Finding | Untested] = _discover()
"""All claims by id: those that are tested, and those that nothing can test yet."""


def describe() -> str:
    """The registry as Markdown: each claim with its test, its controls, the published numbers and the source."""
    return "\n\n".join(_section(finding) for finding in FINDINGS.values()) + "\n"


def _section(finding: Finding | Untested) -> str:
    head, tail = [f"### {finding.id}", "", finding.claim, ""], f"- Source: {finding.source}"
    if isinstance(finding, Untested):
        return "\n".join([*head, f"- Not tested: {finding.why}", f"- Published: {finding.published}", tail])
    controls = "; ".join(c.name if c.decisive else f"{c.name} (for comparison only)" for c in finding.controls)
    learned = ", ".join(one.label for one in finding.learned)
    models = f"models that have learned their task: {learned}" if learned else "of models that learned or did not"
    return "\n".join(
        [
            *head,
            f"- Test: {finding.statistic}",
            f"- Controls: {controls}",
            f"- Published: {finding.published}",
            f"- Needs: {several(finding.minimum_seeds)}; {models}",
            f"- Tables: {', '.join(finding.tables)}",
            tail,
        ]
    )
