"""representations:Z-1. Layers are 0..L; BERT's part is played by the study's masked LM."""

from .._condition import Condition, exceeds
from .._curves import geometry
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._shapes import depth_correlation
from .._sources import GEOMETRY
from .._table import baselines, untrained

READS = {"masked": geometry(MASKED, "average_similarity")}


def test(curves: Curves) -> list[Condition]:
    curve = curves["masked"]
    return [
        exceeds(
            "rank correlation of average similarity with depth, last layer aside",
            depth_correlation(curve[:, :-1]),
            0.8,
            "Spearman's rho",
            published=0.979,
        ),
        exceeds(
            "fall of average similarity at the last layer",
            curve[:, -2:-1] - curve[:, -1:],
            0.05,
            "cosine",
            published=0.198,
        ),
    ]


FINDING = Finding(
    id="representations:Z-1",
    claim=(
        "In a masked LM the states of random words become more alike from layer to layer, until the last one, where "
        "they part again."
    ),
    source=GEOMETRY,
    published=(
        "BERT-base, layers 0 to 12: .105 .168 .219 .245 .327 .377 .420 .398 .399 .484 .561 .675 .477; the study's "
        "masked LM stands in for BERT"
    ),
    statistic=(
        "mean cosine of random word occurrences, masked LM: Spearman correlation with depth over layers 0..L−1 above "
        ".8, and a fall of over .05 at the last layer"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="isotropic Gaussian", reads=baselines(READS)),
        Control(name="untrained model", reads=untrained(READS)),
        Control(
            name="Spearman's correlation in place of the cosine",
            reads={"masked": geometry(MASKED, "average_similarity", space="rank")},
            decisive=False,
        ),
    ),
    learned=(MASKED,),
    minimum_seeds=1,
)
