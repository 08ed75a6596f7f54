"""The table of contents: sections with short names, and their figures."""

from dataclasses import dataclass, field

from ._figure import ReportFigure, Section

_SHORT = {
    "over-scale": "Scale",
    "warmups": "Warm-up",
    "alike": "Alike",
    "own": "Own",
    "further": "Further",
    "knows": "Know",
    "changes": "Change",
    "similarity": "Similar",
    "space": "Space",
    "predicts": "Predict",
    "probing": "Probes",
    "neighbours": "Neighbours",
    "words": "Words",
    "alignment": "Align",
    "heads": "Heads",
    "pruning": "Pruning",
    "transplant": "Transplant",
    "adaptation": "Tuning",
    "retrieval": "Retrieval",
    "training": "Training",
    "dynamics": "Dynamics",
    "over-training": "Over training",
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ContentsLine:
    """One line of the contents."""

    id: str
    short: str  # in the top bar and the sidebar
    title: str
    figures: list[ReportFigure] = field(default_factory=list)


def contents(sections: list[Section], claims: bool) -> list[ContentsLine]:
    """The page's parts in order."""
    told = [ContentsLine(id=s.id, short=_SHORT.get(s.id, s.title), title=s.title, figures=s.figures) for s in sections]
    findings = [ContentsLine(id="findings", short="Claims", title="Do published claims hold here?")] if claims else []
    return [*told, *findings, ContentsLine(id="methods", short="Methods", title="Methods and provenance")]
