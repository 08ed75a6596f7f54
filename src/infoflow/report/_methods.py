"""How the numbers were made: definitions, settings, versions, hashes, command, warnings."""

from dataclasses import dataclass
from typing import Any

from infoflow.results import Column, RunFolder

from ._numbers import duration_text


@dataclass(frozen=True, kw_only=True, slots=True)
class TableNote:
    """A table of the run: what it holds and what its columns mean."""

    name: str
    description: str
    version: int
    rows: int
    columns: tuple[Column, ...]


def flattened(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted name, text) pairs, in their order."""
    if isinstance(value, dict):
        return [
            pair for key, inner in value.items() for pair in flattened(inner, f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(value, list):
        return [(prefix, ", ".join(str(item) for item in value) or "none")]
    return [(prefix, str(value))]


def settings(run: RunFolder) -> dict[str, list[tuple[str, str]]]:
    """Groups of settings: plan, corpus, software and hardware, time."""
    manifest = run.read()
    timings = [(name, duration_text(float(seconds))) for name, seconds in manifest.get("timings", {}).items()]
    groups = {
        "Plan": flattened(manifest.get("plan", {})),
        "Corpus": flattened(manifest.get("corpus", {})),
        "Software and hardware": flattened(manifest.get("provenance", {})),
        "Time": timings,
    }
    return {name: pairs for name, pairs in groups.items() if pairs}


def table_notes(run: RunFolder) -> list[TableNote]:
    """Every table of the run with its documented columns."""
    notes = []
    for name in run.tables:
        stored = run.tables.stored(name)
        schema = stored.schema
        notes.append(
            TableNote(
                name=name,
                description=schema.description,
                version=schema.version,
                rows=len(stored.frame),
                columns=schema.columns,
            )
        )
    return notes
