"""The section on probes: its figures in order."""

from infoflow.probing import (
    BERT_SCORE,
    BERT_SCORE_LAYERS,
    FILL_IN,
    MINIMAL_PAIRS,
    PROBE_CODELENGTH,
    PROBE_DEPTH,
    PROBE_EXAMPLES,
    PROBE_MIXING,
    PROBE_SCORES,
    PROBE_TREES,
)

from .._figure import ReportFigure, Section
from .._model_tables import ModelTables
from ._codelength import bits_figure, size_figure
from ._depth import depth_figure
from ._examples import examples_figure, solved_figure
from ._preferences import bert_score_figure, facts_figure, pairs_figure
from ._scores import accuracy_figure, selectivity_figure
from ._trees import trees_figure

PROBING = Section(
    id="probing",
    short="Probes",
    title="What can be read from each layer?",
    lead="A probe is a small classifier that sees only a layer's vectors. What it labels correctly is in them. How "
    "much is that, in which layer, how hard is it to read, and how much of it would an untrained model show?",
    names={
        "probe-accuracy": "probing/accuracy",
        "probe-selectivity": "probing/selectivity",
        "probe-examples": "probing/examples",
        "probe-solved": "probing/single-examples",
        "probe-bits": "probing/codelength",
        "probe-size": "probing/probe-size",
        "probe-depth": "probing/depth",
        "probe-trees": "probing/trees",
        "probe-pairs": "probing/minimal-pairs",
        "facts-filled-in": "probing/facts",
        "bert-score": "probing/bert-score",
    },
)
_TABLES = (
    PROBE_SCORES.name,
    PROBE_CODELENGTH.name,
    PROBE_MIXING.name,
    PROBE_DEPTH.name,
    PROBE_TREES.name,
    PROBE_EXAMPLES.name,
    MINIMAL_PAIRS.name,
    FILL_IN.name,
    BERT_SCORE_LAYERS.name,
    BERT_SCORE.name,
)


def probing_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was probed."""
    models, frames = tables.models, tables.some(_TABLES)
    main = {name: models.main(frame) for name, frame in frames.items()}
    figures: list[ReportFigure | None] = []
    if (scores := main.get(PROBE_SCORES.name)) is not None:
        figures += [
            accuracy_figure(scores, models),
            selectivity_figure(scores, models),
        ]
        figures.append(examples_figure(scores, models))
    if (examples := main.get(PROBE_EXAMPLES.name)) is not None:
        figures.append(solved_figure(examples, main.get(PROBE_SCORES.name), models))
    if (lengths := main.get(PROBE_CODELENGTH.name)) is not None:
        figures += [bits_figure(lengths, models), size_figure(lengths, models)]
    figures.append(depth_figure(main.get(PROBE_MIXING.name), main.get(PROBE_DEPTH.name), models))
    if (trees := main.get(PROBE_TREES.name)) is not None:
        figures.append(trees_figure(trees, models))
    if (pairs := frames.get(MINIMAL_PAIRS.name)) is not None:  # from the one stack with an output head
        figures.append(pairs_figure(pairs, models))
    if (facts := frames.get(FILL_IN.name)) is not None:
        figures.append(facts_figure(facts, models))
    if (means := frames.get(BERT_SCORE_LAYERS.name)) is not None:
        figures.append(bert_score_figure(means, frames.get(BERT_SCORE.name), models))
    return PROBING.drawn_with(figures, models, main.values())
