"""probing:P-4. Trees in the geometry of states."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import trees
from .._shapes import layer_names
from .._sources import STRUCTURAL_PROBE
from .._table import Reading, untrained

READS: dict[str, Reading] = {
    "uuas": trees(MASKED, "uuas"),
    "spearman": trees(MASKED, "spearman"),
    "beyond": trees(MASKED, "uuas", beyond_chain=True),
}


def test(curves: Curves) -> list[Condition]:
    uuas, spearman = curves["uuas"], curves["spearman"]
    names = layer_names(uuas.shape[1] - 1, 1)
    return [
        exceeds(
            "edges of a contextual layer beyond those of a chain of neighbours",
            curves["beyond"][:, 1:],
            0.05,
            "share of edges",
            names,
            over="any",
        ),
        exceeds("edges beyond layer 0", uuas[:, 1:] - uuas[:, :1], 0.0, "share of edges", names, over="any"),
        exceeds(
            "rank correlation of distances beyond layer 0",
            spearman[:, 1:] - spearman[:, :1],
            0.0,
            "",
            names,
            over="any",
        ),
    ]


FINDING = Finding(
    id="probing:P-4",
    claim="Dependency trees lie in the geometry of a masked LM's states, up to a linear map.",
    source=STRUCTURAL_PROBE,
    published="undirected attachment of BERT-large 82.5 against 48.9 for a chain and 26.8 at layer 0 of ELMo "
    "(unverified)",
    statistic="structural probe: some contextual layer above a chain by five points of undirected attachment, and "
    "above layer 0 in attachment and in rank correlation of distances",
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
