"""The section over scale: every claim's effect in every run, by tokens and width."""

from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.findings import FINDINGS_OVER_SCALE
from infoflow.report._declared import DeclaredFigure, Drawn, names_of
from infoflow.report._figure import Method, Panel, Section
from infoflow.report._model_tables import ModelTables
from infoflow.report._numbers import counted, listed, number
from infoflow.report._summary import verdict_verb
from infoflow.results import END

from ..claims._scale_trend import FLAT
from ..claims._scale_trends import TRENDS, told_of_claims
from ._claim_panel import claim_panel
from ._rows import Grid, tested_rows
from ._warmups import timed_stages

_METHOD = Method(
    id="over-scale",
    title="Findings over scale",
    text=rf"""
    Every run is judged by itself. For each claim, one condition is followed: the one that decides its verdict in most
    runs. The slope over the logarithm of tokens (or of the width) comes from a weighted regression; its interval
    covers the choice of seeds and of sentences in each run, by Student's t with Satterthwaite's degrees of freedom. A
    trend needs three scales. It is <em>flat</em> where the whole interval lies within {FLAT} of the distance from the
    threshold to the published value, or to the effect where the source gives none, per factor of ten in scale; it
    <em>grows</em> where the whole interval lies on the side on which the claim holds, <em>falls</em> where it lies on
    the other side, and is <em>undetermined</em> otherwise. Checkpoints of one run depend on each other: they are
    drawn but never mixed with runs. With fewer than three runs, the trend comes from each seed's own slope over its
    checkpoints, from a tenth of the tokens on, with an interval over seeds; at those checkpoints, the learning rate
    had not yet fallen.
    """,
)
_VERDICTS, _WORDS = ("holds", "undetermined", "fails"), ("grows", "flat", "undetermined", "falls")


def _claims_over_scale(found: pd.DataFrame, rows: pd.DataFrame, trends: pd.DataFrame) -> Drawn:
    grid = Grid.of(rows)
    claims = sorted(_claims(rows, trends), key=lambda claim: claim["order"])
    drawn = [rows[(rows["id"] == one["id"]) & (rows["architecture"] == one["architecture"])] for one in claims]
    left = int(found["id"].nunique()) - len({one["id"] for one in claims})
    return Drawn(
        data=rows.drop(columns=["effects", "line"]),
        panels=[
            Panel(spec=claim_panel(own, grid), title=f"{one['short']}: {one['told']}")
            for one, own in zip(claims, drawn, strict=True)
        ],
        answer=_sentences(claims),
        findings=tuple(dict.fromkeys(one["id"] for one in claims)),
        caption=f"{counted(rows['run'].nunique(), 'run')}: {grid.told}. Bars are 95% intervals. Not tested at two "
        f"scales or more: {counted(left, 'claim')}.",
        payload={"claims": claims, "widths": grid.legend, "corpora": grid.corpora_legend},
    )


def _claims(rows: pd.DataFrame, trends: pd.DataFrame) -> list[dict[str, Any]]:
    told, families = told_of_claims(trends), len(set(rows["architecture"]))
    found = []
    for place, (_, own) in enumerate(rows.groupby(["id", "architecture"], sort=False)):
        last = _largest(own)
        id, family, verdict = str(last["id"]), str(last["architecture"]), str(last["verdict"])
        words = told.get((id, family), "too few scales")
        order = (_VERDICTS.index(verdict), min(_place(words), default=len(_WORDS)), place)
        found.append(
            {
                "id": id,
                "architecture": family,
                "short": f"{id.split(':')[-1]}{f' ({family})' if families > 1 else ''}",
                "claim": str(last["claim"]),
                "condition": str(last["condition"]),
                "verdict": verdict,
                "told": words,
                "where": f"{number(float(last['effect']))} {last['unit']}".strip(),
                "order": order,
            }
        )
    return found


def _place(words: str) -> list[int]:
    return [place for place, word in enumerate(_WORDS) if word in words]


def _largest(rows: pd.DataFrame) -> pd.Series:
    """The most expensive run; of checkpoints, if no run's end was tested, the last."""
    ended = rows[rows["update"] == END]
    own = ended if len(ended) else rows
    return own.loc[(own["tokens"] * own["parameters"]).idxmax()]


def _sentences(claims: list[dict[str, Any]]) -> list[str]:
    num = len(claims)
    counts = {verdict: sum(one["verdict"] == verdict for one in claims) for verdict in _VERDICTS}
    claims_told = "one claim" if num == 1 else f"{num} claims"
    held = f"Of {claims_told} tested at two scales or more, {counts['holds'] or 'none'}"
    said = [f"{held} {verdict_verb('holds', counts['holds'])} in the largest run."]
    for word, verb in (("grows", "grow"), ("falls", "fall"), ("flat", "are flat")):
        names = [one["short"] for one in claims if _place(one["told"])[:1] == [_WORDS.index(word)]]
        if names:
            each = word if len(names) == 1 and word != "flat" else "is flat" if len(names) == 1 else verb
            said.append(f"{listed(names)} {each}.")
    return said


CLAIMS = DeclaredFigure(
    name="scale/claims",
    id="findings-over-scale",
    question="Which claims come closer to the published values with more tokens or wider models?",
    how_to_read=(
        "Each panel is a claim: its effect against the number of tokens that the models read, on a logarithmic "
        "axis. The dashed line is the threshold, the solid line the published value if the source gives one.",
        "Each mark is a run at the end of its training. It is hollow if the run has one seed; its interval then "
        "covers only the choice of sentences. The label at the end of a line gives the width, and the corpus if "
        "it differs from that of most runs. Thin lines are checkpoints of one run, measured on less text.",
        "Claims that hold in the largest run come first, and among these the ones that grow.",
    ),
    method=_METHOD,
    tables=(FINDINGS_OVER_SCALE.name, TRENDS.name),
    template="over_scale.html.jinja",
    draw=_claims_over_scale,
)
OVER_SCALE = Section(
    id="over-scale",
    title="Do the claims grow with scale?",
    lead="The same claims on models that read more or are wider: what fails in small models may hold in larger ones.",
    names=names_of([CLAIMS]),
)


def over_scale_section(tables: ModelTables) -> Section | None:
    """The section; None if no runs were compared, or only two warm-ups."""
    found, trends = tables.of_run(FINDINGS_OVER_SCALE.name), tables.of_run(TRENDS.name)
    if found is None or trends is None:
        return None
    rows = tested_rows(found)
    if rows.empty and timed_stages(tables) is not None:
        return None
    if rows.empty:
        return replace(OVER_SCALE, notes=["No claim could be tested at two scales."])
    figure = CLAIMS.of(found, rows, trends)
    return replace(OVER_SCALE, figures=[figure] if figure else [])
