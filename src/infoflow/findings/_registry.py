"""All claims, declared by the files in `claims` of the core and of the subjects."""

import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from types import ModuleType

from infoflow._subjects import parts

from . import claims
from ._finding import Finding, several


def _natural(finding: Finding) -> list[tuple[bool, int, str]]:
    """Sort key that puts V-2 before V-13 and keeps rooms together."""
    parts = re.split(r"(\d+)", finding.id)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


class _Registry(Mapping[str, Finding]):
    """Claims by id, imported when they are first needed: their modules import this package."""

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
"""All claims by id: those in `claims`, here and in every subject."""


def _declaring(part: ModuleType) -> list[ModuleType]:
    """The modules that declare claims: a single module, or those of a package without an underscore."""
    if not hasattr(part, "__path__"):
        return [part]
    names = [one.name for one in pkgutil.iter_modules(part.__path__) if not one.name.startswith("_")]
    return [import_module(f"{part.__name__}.{name}") for name in names]


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
            f"- Tables: {', '.join(finding.all_tables)}",
            tail,
        ]
    )
