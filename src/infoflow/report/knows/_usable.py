"""Usable information about the input token by layer, from the entropy of the tokens on."""

from dataclasses import replace

import pandas as pd

from infoflow.representations import USABLE_INFORMATION

from .._curves import Wording
from .._figure import Method, ReportFigure
from .._layer_figure import HOW_BANDS, LayerFigure
from .._shown_models import ShownModels
from ..forms._lines import POSITIVE
from ._information_rows import input_rows, span

ABOUT = {"baseline_name": "shuffled labels", "bounds": POSITIVE}
"""What charts of information have in common."""


def _of_types(frame: pd.DataFrame) -> str:
    trained = frame[frame["trained"]]
    return (
        f"Line across: the entropy H(T) of the {int(trained['types'].median()):,} most frequent tokens, "
        f"{span(trained['entropy'])} nats, which layer 0 must have."
    )


USABLE_METHOD = Method(
    id="usable-information",
    title="Usable information",
    text="""
    <i>H</i>(<i>T</i>) minus the cross-entropy of a classifier of the token, fitted on one half of the sentences and
    scored on the other, and the reverse. Tokens are Gaussian with one covariance; the means of rare tokens are drawn
    towards the mean of all (Ioffe 2006), so that with many occurrences the classifier is linear. Ridge, temperature and
    the share of token frequencies mixed in are chosen on an eighth of the fitted sentences. It is a lower bound of the
    mutual information for this family of readers (Xu et al. 2020, Pimentel et al. 2020), needs no clusters, and ignores
    what is independent of the token, such as the position. Intervals carry the choice of sentences and what more of
    them would add.
    """,
)

_USABLE = LayerFigure(
    id="usable-input",
    question="How much of their input token can still be read from representations?",
    table=USABLE_INFORMATION,
    axis={"y_title": "usable information about the input token (nats)", **ABOUT},
    noun="usable information about the input token",
    wording=Wording("nats", what="of usable information about its input token"),
    caption=_of_types,
    known="entropy",
    known_name="entropy H(T)",
    how_to_read=(
        "Across: layers, from the embeddings (0) to the top. Up: how many nats of the input token's identity a simple "
        "classifier reads from its vector. Every model starts at the entropy of the tokens: embeddings determine them.",
        HOW_BANDS,
        "A falling line is information that later layers make hard to read. It would be surprising if a causal LM kept "
        "its input to the top: it is trained to name the next token, not to repeat this one.",
    ),
    method=USABLE_METHOD,
    claims=("representations:V-1", "representations:V-2", "representations:V-3", "representations:V-18"),
)
_USABLE_OF_DECODER = replace(
    _USABLE,
    id="usable-input-decoder",
    question="How much of the decoder's own input token can still be read from decoder states?",
    claims=(),
)


def usable_figures(frame: pd.DataFrame, models: ShownModels) -> list[ReportFigure]:
    both = ((_USABLE, models.main(frame)), (_USABLE_OF_DECODER, models.others(frame)))
    shown = [(figure, rows) for figure, own in both if len(rows := input_rows(own))]
    return [figure.drawn(rows, models.present(rows)) for figure, rows in shown]
