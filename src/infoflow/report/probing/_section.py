"""The section on probes: what can be read from each layer, and how hard it is to read."""

from infoflow.probing import BERT_SCORE, BERT_SCORE_LAYERS, FILL_IN, MINIMAL_PAIRS

from .._declared import drawn_from, names_of, tables_of
from .._figure import Section
from .._model_tables import ModelTables
from ._codelength import BITS, SIZE
from ._depth import DEPTH_FIGURE
from ._examples import EXAMPLES
from ._overview import OVERVIEW
from ._preferences import BERT_SCORE_FIGURE, FACTS_FIGURE, PAIRS_FIGURE
from ._scores import ACCURACY, SELECTIVITY
from ._solved import SOLVED
from ._trees import TREES_FIGURE

_FIGURES = (
    OVERVIEW,
    ACCURACY,
    SELECTIVITY,
    EXAMPLES,
    SOLVED,
    BITS,
    SIZE,
    DEPTH_FIGURE,
    TREES_FIGURE,
    PAIRS_FIGURE,
    FACTS_FIGURE,
    BERT_SCORE_FIGURE,
)
_WHOLE = (MINIMAL_PAIRS.name, FILL_IN.name, BERT_SCORE_LAYERS.name, BERT_SCORE.name)  # of the stack with an output head

PROBING = Section(
    id="probing",
    title="What can be read from each layer?",
    lead="A probe is a small classifier that sees nothing but a layer's vectors. What it gets right stands in them. "
    "How much is that, in which layer, how hard is it to read, and how much of it would an untrained model show?",
    names=names_of(_FIGURES),
)


def probing_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was probed."""
    models, frames = tables.models, tables.some(tables_of(_FIGURES))
    main = {name: models.main(frame) for name, frame in frames.items()}
    drawn = main | {name: frames[name] for name in _WHOLE if name in frames}
    return PROBING.told_by(drawn_from(drawn, _FIGURES, models), models, main.values())
