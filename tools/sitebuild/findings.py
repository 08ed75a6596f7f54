"""The findings page: every claim of the registry with its test, threshold, controls and source."""

import re

from .escaping import escaped


def page() -> str:
    from infoflow.findings import FINDINGS

    groups: dict[str, list[str]] = {}
    for finding in FINDINGS.values():
        groups.setdefault(finding.id.split(":")[0], []).append(_section(finding))
    lines = [
        "# Findings",
        "",
        f"The {len(FINDINGS)} published claims that infoflow knows. Each is an executable check on the tables of a "
        "run; its verdict is *holds*, *fails*, *undetermined* or *not testable here*, as [told in plain words]"
        "(background/statistics.md). This page is written from the registry, `infoflow.findings.FINDINGS`.",
        "",
        "Each source says how much of it was read: *whole*, its own text; *numbers only*, its figures, tables, "
        "published "
        "code or data; its *abstract* alone; or *second hand*, what others say of it, slides and memory "
        "included. A claim "
        "that is second hand, or that says more than what was read, is *ours, after* that source.",
        "",
    ]
    for group, sections in groups.items():
        lines += [f"## {group.replace('_', ' ').capitalize()}", "", *sections]
    return "\n".join(lines)


def anchor(identifier: str) -> str:
    return "claim-" + re.sub(r"[^a-z0-9]+", "-", identifier.lower())


def _section(finding) -> str:
    from infoflow.findings import facts_of

    lines = [f"### {escaped(finding.claim)} {{#{anchor(finding.id)}}}", "", f"`{finding.id}`", ""]
    lines += [f"- **{name}:** {escaped(text)}" for name, text in facts_of(finding).items() if name != "Tables"]
    if finding.cause:
        study = f"[{finding.examined}](../experiments/studies/{finding.examined}/README.md)"
        lines.append(f"- **Why it failed in our experiments:** {escaped(finding.cause)} See {study}.")
    lines.append("- **Tables:** " + ", ".join(f"`{table}`" for table in finding.all_tables))
    return "\n".join([*lines, ""])
