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
    *(PROBE_SCORES, PROBE_CODELENGTH, PROBE_MIXING, PROBE_DEPTH, PROBE_TREES, PROBE_EXAMPLES),
    *(MINIMAL_PAIRS, FILL_IN, BERT_SCORE_LAYERS, BERT_SCORE),
)


def probing_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was probed."""
    models, frames = tables.models, tables.some(table.name for table in _TABLES)
    main = {name: models.main(frame) for name, frame in frames.items()}
    scores, lengths = main.get(PROBE_SCORES.name), main.get(PROBE_CODELENGTH.name)
    figures: list[ReportFigure | None] = []
    if scores is not None:
        figures += [figure(scores, models) for figure in (accuracy_figure, selectivity_figure, examples_figure)]
    if (examples := main.get(PROBE_EXAMPLES.name)) is not None:
        figures.append(solved_figure(examples, scores, models))
    if lengths is not None:
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
