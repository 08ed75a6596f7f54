"""What neighbours share: position in the sentence, adjacent tokens, tags; and maps of the space itself."""

from dataclasses import replace

import pandas as pd

from infoflow.representations import CONTEXT_NEIGHBOURS, POSITION_NEIGHBOURS, TAG_NEIGHBOURS, TOKEN_MAP

from .._figure import Method, Section
from .._layer_figure import LayerFigure, moves
from .._model_tables import ModelTables
from ..forms._lines import POSITIVE, SHARE
from ._token_map import token_map_figures

_TOKEN_NEIGHBOURS = Method(
    id="token-neighbours",
    title="Neighbours of the same token",
    text="""
    Each occurrence is compared with its <i>k</i> nearest vectors among occurrences of the same token, by
    |<i>p</i><sub>i</sub> − <i>p</i><sub>j</sub>| for positions and the share of equal labels otherwise; the mean is
    over occurrences, then over tokens. Tokens with fewer than 2<i>k</i> + 1 sampled occurrences are left out, since all
    their occurrences would be neighbours; of each frequent token the same number is sampled. Intervals resample
    sentences, whose tokens count as queries and as neighbours. Baseline: the same for all pairs of occurrences of a
    token. After Voita, Sennrich and Titov (2019).
    """,
)

_HOW_POOLS = (
    "Neighbours are looked up among occurrences of the same token, so what they share must have come from the "
    "context. The dashed grey line is an untrained model of the same shape; the dotted one "
    "shows what random occurrences of the token share."
)


def _pools(frame: pd.DataFrame) -> str:
    trained = frame[frame["trained"]]
    fewest, most = int(trained["pools"].min()), int(trained["pools"].max())
    pools = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    least = f" with at least {int(trained['least'].iloc[0])} sampled occurrences" if "least" in trained else ""
    return (
        f"Means over {pools} frequent tokens{least}; {int(trained['neighbours'].iloc[0])} neighbours by "
        f"{trained['metric'].iloc[0]} distance."
    )


_POSITION = LayerFigure(
    id="position-neighbours",
    question="Are a token's nearest occurrences at the same position in their sentences?",
    table=POSITION_NEIGHBOURS,
    axis={
        "y_title": "distance in position to neighbours (tokens, axis inverted)",
        "baseline_name": "any two",
        "bounds": POSITIVE,
        "inverted": True,
    },
    noun="the distance in position",
    wording=moves("the distance", "tokens"),
    top="At the top layer the mean distance in position between neighbours is, in tokens",
    caption=_pools,
    how_to_read=(
        "Up: the difference in position between an occurrence and its nearest vectors, each in its own sentence, in "
        "tokens. The axis is inverted, so that higher means that more of the position is kept.",
        _HOW_POOLS,
        "In longer sentences any two occurrences are further apart, so compare a curve with the dotted line, not with "
        "curves of other corpora.",
    ),
    method=_TOKEN_NEIGHBOURS,
    claims=("representations:V-14",),
)
_CONTEXT = LayerFigure(
    id="context-neighbours",
    question="Do neighbours share the tokens before and after them?",
    table=CONTEXT_NEIGHBOURS,
    axis={"y_title": "share of neighbours", "baseline_name": "chance", "bounds": SHARE},
    noun="the share",
    wording=moves("the share"),
    caption=_pools,
    how_to_read=(
        "Up: the share of an occurrence's nearest vectors that have the same token before them (left), or after "
        "them (right). Occurrences without such a token are left out. A causal LM cannot see the "
        "token after: where that line rises, the model is predicting that token.",
        _HOW_POOLS,
    ),
    method=_TOKEN_NEIGHBOURS,
    claims=("representations:V-15",),
    panels="side",
    titles={"left": "the token before", "right": "the token after"},
    zero=0.35,
)
_TAG = replace(
    _CONTEXT,
    id="tag-neighbours",
    question="Do neighbours play the same role in their sentences?",
    table=TAG_NEIGHBOURS,
    how_to_read=(
        "Up: the share of an occurrence's nearest vectors whose word carries the same tag. A word's tag is looked "
        "up on its {subword} subword; words without a tag are left out. Each panel is one tag of the corpus.",
        _HOW_POOLS,
    ),
    claims=("representations:V-16",),
    panels="tag",
    titles={
        "ccg": "CCG category",
        "ccg_left": "its part to the left (past)",
        "ccg_right": "its part to the right (future)",
        "upos": "part of speech",
        "xpos": "fine part of speech",
        "deprel": "relation to the governor",
    },
)


NEIGHBOURS = Section(
    id="neighbours",
    title="What do neighbours share?",
    lead="Two occurrences of one word begin with the same vector. Layer by layer their sentences move them apart. "
    "Those that stay close show what a layer has written into them: a position, a neighbour, a role.",
    names={
        "position-neighbours": "representations/position-neighbours",
        "context-neighbours": "representations/context-neighbours",
        "tag-neighbours": "representations/tag-neighbours",
        "map-token": "representations/token-map",
        "map-position": "representations/position-map",
        "map-tag": "representations/tag-map",
    },
    folded=("map-position", "map-tag"),
)


def neighbours_section(tables: ModelTables) -> Section | None:
    """The section on what neighbours share, or None if the run has none of its measures."""
    models = tables.models
    own = (_POSITION, _CONTEXT, _TAG)
    names = [*(one.table.name for one in own), TOKEN_MAP.name]
    frames = {name: rows for name, frame in tables.some(names).items() if len(rows := models.main(frame))}
    figures = [one.drawn(rows, models.present(rows)) for one in own if (rows := frames.get(one.table.name)) is not None]
    if TOKEN_MAP.name in frames:
        figures += token_map_figures(frames[TOKEN_MAP.name], models)
    return NEIGHBOURS.drawn_with(figures, models, frames.values())
