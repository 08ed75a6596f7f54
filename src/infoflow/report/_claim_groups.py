"""The claims by the question that they bear on, as the page's sections ask them."""

from collections.abc import Mapping
from dataclasses import dataclass

from ._figure import Section
from ._summary import ScorecardRow

# Of claims that no figure of the page shows: the section that would.
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

    section: str  # its id; "" where the page has no such section
    title: str
    tested: list[ScorecardRow]
    untested: list[ScorecardRow]


def claim_groups(findings: list[ScorecardRow], sections: list[Section], titles: Mapping[str, str]) -> list[ClaimGroup]:
    """The claims in the order of the sections, those of one question in theirs.

    Args:
        findings: All claims.
        sections: Those of the page.
        titles: Of all sections there could be, by their ids and in their order.
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
