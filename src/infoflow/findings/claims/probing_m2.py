"""probing:M-2. Context shortens the code, mostly where it was learned."""

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import bits
from .._sources import DESCRIPTION_LENGTH
from .._table import Reading, untrained

_COMPRESSION = bits(MASKED, metric="compression")
READS: dict[str, Reading] = {
    "bits": bits(MASKED),
    "trained": _COMPRESSION,
    **untrained({"random": _COMPRESSION}),
}


def test(curves: Curves) -> list[Condition]:
    gain, of_random = (curves[name][:, 1:2] - curves[name][:, :1] for name in ("trained", "random"))
    return [
        stays_below(
            "bits at layer 1 over those at layer 0",
            curves["bits"][:, 1:2] / curves["bits"][:, :1],
            0.75,
            "ratio",
            published=0.5,
        ),
        exceeds(
            "gain in compression from layer 0 to 1 beyond twice that of random layers",
            gain - 2 * of_random,
            0.0,
            "uniform bits per bit",
            alone=False,
        ),
    ]


FINDING = Finding(
    id="probing:M-2",
    claim="Context shortens the code of a linguistic task, mostly where the model was trained.",
    source=DESCRIPTION_LENGTH,
    published="about half the code at the first contextual layer for most tasks; a random model gains less",
    statistic="online code at layer 1 at most three quarters of that at layer 0; random layers gain at most half as "
    "much compression (there: random orthonormal layers over trained embeddings; here a model of random weights)",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="control task",
            reads={
                "bits": bits(MASKED, "control"),
                "trained": bits(MASKED, "control", metric="compression"),
                **untrained({"random": bits(MASKED, "control", metric="compression")}),
            },
        ),
    ),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
