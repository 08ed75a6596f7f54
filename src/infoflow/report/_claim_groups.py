"""The claims grouped by question, in the order of the page's sections."""

from collections.abc import Mapping
from dataclasses import dataclass

from ._figure import Section
from ._summary import ScorecardRow

# Section of claims that no figure on the page shows.
_OF_ROOMS = {
    "representations": "knows",
    "alignment": "alignment",
    "context": "heads",
    "heads": "heads",
    "probing": "probing",
    "pruning": "pruning",
    "transplant": "transplant",
    "adaptation": "adaptation",
    "retrieval": "retrieval",
    "objectives": "alike",
    "dynamics": "dynamics",
    "time": "over-training",
}
_UNTESTABLE = "not testable here"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimGroup:
    """The claims about one question."""

    section: str  # its id; "" if the page has no such section
    title: str
    tested: list[ScorecardRow]
    untested: list[ScorecardRow]


def claim_groups(findings: list[ScorecardRow], sections: list[Section], titles: Mapping[str, str]) -> list[ClaimGroup]:
    """Group the claims by section, in the order of the sections.

    Args:
        findings: All claims.
        sections: Sections of the page.
        titles: Titles of all possible sections by id, in order.
    """
    shown = {figure.id: section.id for section in sections for figure in section.figures}
    present = {section.id for section in sections}
    groups: dict[str, list[ScorecardRow]] = {}
    for finding in findings:
        groups.setdefault(shown.get(finding.figure) or _OF_ROOMS.get(finding.id.partition(":")[0], ""), []).append(
            finding
        )
    order = {id: place for place, id in enumerate(titles)}
    return [
        ClaimGroup(
            section=id if id in present else "",
            title=titles.get(id, "Other questions"),
            tested=[one for one in own if one.verdict != _UNTESTABLE],
            untested=[one for one in own if one.verdict == _UNTESTABLE],
        )
        for id, own in sorted(groups.items(), key=lambda item: order.get(item[0], len(order)))
    ]
