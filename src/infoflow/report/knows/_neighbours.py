"""What neighbours share: place in the sentence, the tokens beside them, tags; and maps of the space itself."""

from typing import Any

import pandas as pd

from .._curves import curves, interval_note
from .._figure import Method, Panel, ReportFigure, Section
from .._in_words import Candidate, both_extremes, sentence
from .._model_tables import ModelTables
from .._numbers import number
from .._series import Series
from .._shown_models import ShownModels
from .._trends import Wording, change, order_sentence, trend_sentences, trend_words
from ..forms._layer_chart import LayerChart, panel_scales
from ..forms._lines import POSITIVE, SHARE
from ._token_map import token_map_figures

_TOKEN_NEIGHBOURS = Method(
    id="token-neighbours",
    title="Neighbours of the same token",
    text="""
    For each occurrence its <i>k</i> nearest vectors among occurrences of the same token; the mean of what they share
    with it (|<i>p</i><sub>i</sub> − <i>p</i><sub>j</sub>| for positions, the share of equal labels else), over
    occurrences, then over tokens. Tokens with fewer than 2<i>k</i> + 1 sampled occurrences are left out, since all
    their occurrences would be neighbours; of frequent ones equally many are sampled. Intervals resample sentences,
    whose tokens count as queries and as neighbours. Baseline: the same of all pairs of occurrences of a token. After
    Voita, Sennrich and Titov (2019).
    """,
)

_TABLES = ("position_neighbours", "context_neighbours", "tag_neighbours")
_SIDES = {"left": "the token before", "right": "the token after"}
_TAGS = {
    "ccg": "CCG category",
    "ccg_left": "its part to the left (past)",
    "ccg_right": "its part to the right (future)",
    "upos": "part of speech",
    "xpos": "fine part of speech",
    "deprel": "relation to the governor",
}
_TOLD = 3  # panels that the text speaks of
_HOW_POOLS = (
    "Neighbours are looked up among occurrences of the same token, so the token itself is no help: what they share "
    "must have come from the context. The dashed grey line is a model of the same shape that was never trained; the "
    "dotted one is what random occurrences of the token share."
)


NEIGHBOURS = Section(
    id="neighbours",
    title="What do neighbours share?",
    lead="Two occurrences of one word begin with the same vector. Layer by layer their sentences move them apart. "
    "Those that stay close tell what a layer has written into them: a place, a neighbour, a role.",
    names={
        "position-neighbours": "representations/position-neighbours",
        "context-neighbours": "representations/context-neighbours",
        "tag-neighbours": "representations/tag-neighbours",
        "map-token": "representations/token-map",
        "map-position": "representations/position-map",
        "map-tag": "representations/tag-map",
    },
)


def neighbours_section(tables: ModelTables) -> Section | None:
    """The section, or None where the run measured nothing that belongs here."""
    models = tables.models
    frames = {name: models.main(frame) for name, frame in tables.some((*_TABLES, "token_map")).items()}
    frames = {name: frame for name, frame in frames.items() if len(frame)}
    build = {"position_neighbours": _position, "context_neighbours": _context, "tag_neighbours": _tags}
    figures = [build[name](frames[name], models) for name in _TABLES if name in frames]
    if "token_map" in frames:
        figures += token_map_figures(frames["token_map"], models)
    return NEIGHBOURS.told_by(figures, models, frames.values())


def _position(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
    table, series = curves(frame), models.present(frame)
    top = order_sentence(frame, series, "At the top layer neighbours stand this many tokens apart")
    wording = Wording("tokens", "rises by", "falls by", subject=lambda s: f"the distance in {s.label}")
    chart = LayerChart(
        table=table,
        series=series,
        y_title="distance in position to neighbours (tokens, axis inverted)",
        baseline_name="any two",
        bounds=POSITIVE,
        inverted=True,
    )
    return ReportFigure(
        id="position-neighbours",
        question="Do a token's nearest occurrences stand at the same place in their sentences?",
        answer=[*([top] if top else []), *trend_sentences(frame, series, wording)],
        words=trend_words(frame, series, "the distance in position"),
        panels=[Panel.of(chart)],
        caption=f"{interval_note(table)} {_pools(frame)}",
        how_to_read=[
            "Up: how many tokens apart an occurrence and its nearest vectors stand, each in its own sentence. The axis "
            "is inverted, so that higher means that more of the position is kept.",
            _HOW_POOLS,
            "Sentences differ in length between corpora, and so does the distance of any two occurrences: compare with "
            "that, not with other corpora.",
        ],
        method=_TOKEN_NEIGHBOURS,
        data=table,
        tables=("position_neighbours",),
        findings=("representations:V-14",),
    )


def _context(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
    return _shares(
        frame,
        models,
        column="side",
        names={side: name for side, name in _SIDES.items() if side in set(frame["side"])},
        id="context-neighbours",
        question="Do they have the same token beside them?",
        how="Up: the share of an occurrence's nearest vectors that have the same token before them (left), or after "
        "them (right). Occurrences at the edge of a sentence have none and are left out. A causal LM cannot see the "
        "token after: where that line rises, it is predicting it.",
        findings=("representations:V-15",),
    )


def _tags(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
    measured = list(dict.fromkeys(frame["tag"]))
    ordered = [*(tag for tag in _TAGS if tag in measured), *(tag for tag in measured if tag not in _TAGS)]
    return _shares(
        frame,
        models,
        column="tag",
        names={tag: _TAGS.get(tag, str(tag)) for tag in ordered},
        id="tag-neighbours",
        question="Do their words play the same part in the sentence?",
        how="Up: the share of an occurrence's nearest vectors whose word carries the same tag. A word's tag is looked "
        f"up on its {frame['subword'].iloc[0]} subword; words without a tag are left out. Each panel is one tag of the "
        "corpus.",
        findings=("representations:V-16",),
    )


def _shares(
    frame: pd.DataFrame, models: ShownModels, *, column: str, names: dict[str, str], how: str, **facts: Any
) -> ReportFigure:
    """A panel per value of `column`, on one scale unless they span very different ranges."""
    parts = {value: frame[frame[column] == value] for value in names}
    tables = {value: curves(part) for value, part in parts.items()}
    data = pd.concat([table.assign(**{column: value}) for value, table in tables.items()], ignore_index=True)
    series = models.present(frame)
    scales = panel_scales(tables.values(), "All panels share one scale." if len(names) > 1 else "", SHARE, zero=0.35)
    form: dict[str, Any] = {"y_title": "share of neighbours", "baseline_name": "chance", "bounds": SHARE}
    return ReportFigure(
        panels=[
            Panel.of(LayerChart(table=table, series=series, y_range=scales.shared, **form), names[value])
            for value, table in tables.items()
        ],
        answer=_told(parts, series, names),
        words=_share_words(parts, series, names),
        caption=f"{interval_note(data)} {_pools(frame)} {scales.note}".rstrip(),
        how_to_read=[how, _HOW_POOLS],
        method=_TOKEN_NEIGHBOURS,
        data=data,
        tables=(f"{column}_neighbours" if column == "tag" else "context_neighbours",),
        **facts,
    )


def _share_words(parts: dict[str, pd.DataFrame], series: list[Series], names: dict[str, str]) -> str:
    """What the share gains from bottom to top, most and least, in the first panels."""
    told = []
    for value in list(names)[:_TOLD]:
        own = parts[value]
        lines = [line for line in series if len(own[(own["series"] == line.key) & own["trained"]])]
        moves = [Candidate(f"in {line.label}", change(own, line.key)) for line in lines]
        gains = both_extremes(moves)
        told += [f"{names[value]}, {gains}"] if gains else []
    return sentence(f"the change of the share from bottom to top is, for {'; for '.join(told)}") if told else ""


def _told(parts: dict[str, pd.DataFrame], series: list[Series], names: dict[str, str]) -> list[str]:
    """What the first panels show, in words, and how far the control moves in any."""
    wording = Wording("", "rises by", "falls by", subject=lambda s: f"the share in {s.label}")
    told = []
    for value in list(names)[:_TOLD]:
        first = trend_sentences(parts[value], series, wording)[0]
        told.append(f"{names[value][:1].upper()}{names[value][1:]}: {first[:1].lower()}{first[1:]}")
    moves = [
        abs(change(part, line.key, trained=False).value)
        for part in parts.values()
        for line in series
        if len(part[(part["series"] == line.key) & ~part["trained"]])
    ]
    return [*told, f"Untrained models of the same shape move by at most {number(max(moves), 2)}."] if moves else told


def _pools(frame: pd.DataFrame) -> str:
    trained = frame[frame["trained"]]
    fewest, most = int(trained["pools"].min()), int(trained["pools"].max())
    pools = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return (
        f"Means over {pools} frequent tokens; {int(trained['neighbours'].iloc[0])} neighbours by "
        f"{trained['metric'].iloc[0]} distance."
    )
