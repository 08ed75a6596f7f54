"""probing:T-2. Syntax in few layers, semantics in many."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import depths
from .._sources import PIPELINE
from .._table import Reading, untrained

SYNTAX = ("upos", "arc-label")
SEMANTICS: dict[str, str | tuple[str, ...]] = {"entities": ("ner-spans", "entity-spans"), "coreference": "coreference"}
READS: dict[str, Reading] = {
    "syntax": depths(MASKED, SYNTAX, "k_weights"),
    "semantics": depths(MASKED, tuple(SEMANTICS.values()), "k_weights"),
}


def test(curves: Curves) -> list[Condition]:
    gaps = curves["syntax"][:, :, None] - curves["semantics"][:, None]
    names = [f"{one} and {other}" for one in SYNTAX for other in SEMANTICS]
    return [
        exceeds(
            "mixing weights of a syntactic task farther from uniform than those of a semantic one",
            gaps.reshape(len(gaps), -1),
            0.0,
            "bits",
            names,
        )
    ]


FINDING = Finding(
    id="probing:T-2",
    claim="Syntactic tasks draw on few layers of a masked LM, semantic ones on many.",
    source=PIPELINE,
    published="K(s), the divergence of mixing weights from uniform, is higher for syntactic tasks than for relations "
    "and proto-roles",
    statistic="K(s) of parts of speech and dependencies above that of entities (of a treebank all mentions by their "
    "kind) and coreference, every pair (our choice of semantic tasks: relations and proto-roles have no annotation at "
    "hand)",
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
