"""All claims declared by the files in `claims`."""

import importlib
import pkgutil
import re
from collections.abc import Mapping
from types import MappingProxyType

from . import claims
from ._finding import Finding, several


def _natural(finding: Finding) -> list[tuple[bool, int, str]]:
    """Sort key that puts V-2 before V-13 and keeps rooms together."""
    parts = re.split(r"(\d+)", finding.id)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _discover() -> Mapping[str, Finding]:
    names = [module.name for module in pkgutil.iter_modules(claims.__path__)]
    modules = [importlib.import_module(f"{claims.__name__}.{name}") for name in names]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Finding)]
    repeated = {finding.id for finding in found if sum(other.id == finding.id for other in found) > 1}
    assert not repeated, f"two claims share an id: {sorted(repeated)}"
    ordered = sorted(found, key=lambda finding: (not finding.id.startswith("representations"), _natural(finding)))
    return MappingProxyType({finding.id: finding for finding in ordered})


FINDINGS: Mapping[str, Finding] = _discover()
"""All claims by id."""


def describe() -> str:
    """The registry as Markdown: each claim with its test, controls, published numbers and source."""
    return "\n\n".join(_section(finding) for finding in FINDINGS.values()) + "\n"


def _told_read(finding: Finding) -> str:
    return f" (read: {finding.source_read})" if finding.source_read else ""


def _section(finding: Finding) -> str:
    head, tail = [f"### {finding.id}", "", finding.claim, ""], f"- Source: {finding.source}{_told_read(finding)}"
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
