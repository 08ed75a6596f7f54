"""representations:V-12. Influence in layer 1 of translation encoders, by frequency bin."""

from .._chance import seeds_alone
from .._condition import Condition, Verdict, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._frequency_bins import influence_by_rank, rarest_over_next
from .._model_group import TOKEN_DROPOUT, TRANSLATION
from .._sources import BOTTOM_UP
from .._table import Reading, untrained

NO_OUTLIER = 1.2
PLAIN = influence_by_rank(TRANSLATION)
READS: dict[str, Reading] = {"plain": PLAIN, "dropout": influence_by_rank(TOKEN_DROPOUT)}


def test(curves: Curves) -> list[Condition]:
    plain, dropout = (rarest_over_next(curves[name])[:, :1] for name in ("plain", "dropout"))
    return [
        stays_below(
            "influence of the rarest tokens over that of the next bin, layer 1, with token dropout",
            dropout,
            NO_OUTLIER,
            "ratio",
            alone=False,  # a model without any outlier lies below: what counts is that dropout takes it away
        ),
        exceeds("share of that ratio which token dropout takes away", 1 - dropout / plain, 0.25, "share"),
    ]


def hinders(curves: Curves, verdict: Verdict) -> str | None:
    """Nothing is taken away where nothing is."""
    ratio = float(rarest_over_next(curves["plain"])[0, 0])
    if ratio > NO_OUTLIER:
        return None
    return (
        f"without token dropout the rarest tokens' influence is {ratio:.2f} times that of the next bin, which is no "
        f"outlier (over {NO_OUTLIER})"
    )


FINDING = Finding(
    id="representations:V-12",
    claim="The extreme influence of the rarest tokens on a translation encoder is overfitting: trained with token "
    "dropout, it loses it.",
    source=BOTTOM_UP,
    published=(
        "layer 1: rarest .0059 and next .0022 (ratio 2.7); with token dropout all at most .0011 and the rarest no "
        "longer extreme"
    ),
    statistic=(
        "influence of the rarest bin over that of the next, layer 1: with token dropout below 1.2, and at least 25 % "
        "below the ratio without it"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, "plain", "dropout"),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(TRANSLATION, TOKEN_DROPOUT),
    hinders=hinders,
)
