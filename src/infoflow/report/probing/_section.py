"""The section on probes: what can be read from each layer, and how hard it is to read."""

from .._figure import ReportFigure, Section
from .._model_tables import ModelTables
from ._accuracy import accuracy_figure
from ._bert_score import bert_score_figure
from ._bits import bits_figure
from ._depth import depth_figure
from ._examples import examples_figure
from ._facts import facts_figure
from ._overview import overview_figure
from ._pairs import pairs_figure
from ._probe_size import size_figure
from ._selectivity import selectivity_figure
from ._solved import solved_figure
from ._trees import trees_figure

PROBING = Section(
    id="probing",
    title="What can be read from each layer?",
    lead="A probe is a small classifier that sees nothing but a layer's vectors. What it gets right stands in them. "
    "How much is that, in which layer, how hard is it to read, and how much of it would an untrained model show?",
    names={
        "where-is-what": "probing/overview",
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
    "probe_scores", "probe_codelength", "probe_mixing", "probe_depth", "probe_trees", "probe_examples", "minimal_pairs",
    "fill_in", "bert_score_layers", "bert_score",
)  # fmt: skip


def probing_section(tables: ModelTables) -> Section | None:
    """The section, or None where nothing was probed."""
    models, frames = tables.models, tables.some(_TABLES)
    main = {name: models.main(frame) for name, frame in frames.items()}
    figures: list[ReportFigure | None] = []
    if (scores := main.get("probe_scores")) is not None:
        figures += [
            overview_figure(scores, models),
            accuracy_figure(scores, models),
            selectivity_figure(scores, models),
        ]
        figures.append(examples_figure(scores, models))
    if (examples := main.get("probe_examples")) is not None:
        figures.append(solved_figure(examples, main.get("probe_scores"), models))
    if (lengths := main.get("probe_codelength")) is not None:
        figures += [bits_figure(lengths, models), size_figure(lengths, models)]
    figures.append(depth_figure(main.get("probe_mixing"), main.get("probe_depth"), models))
    if (trees := main.get("probe_trees")) is not None:
        figures.append(trees_figure(trees, models))
    if (pairs := frames.get("minimal_pairs")) is not None:  # of the one stack with an output head
        figures.append(pairs_figure(pairs, models))
    if (facts := frames.get("fill_in")) is not None:
        figures.append(facts_figure(facts, models))
    if (means := frames.get("bert_score_layers")) is not None:
        figures.append(bert_score_figure(means, frames.get("bert_score"), models))
    return PROBING.told_by(figures, models, main.values())
