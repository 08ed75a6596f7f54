"""The section on probes: what a probe reads from each layer, and its margin over the control task."""

from functools import partial

import pandas as pd

from infoflow.report._curves import curves, interval_note
from infoflow.report._figure import ReportFigure, Section
from infoflow.report._in_words import Samples, listed, number
from infoflow.report._layer_figure import layer_panels, stacked
from infoflow.report._model_selection import ModelSelection
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._lines import COSINE, SHARE
from infoflow.report.front_page._measures import CardMeasure

from ..measures import (
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
from ._codelength import bits_figure, size_figure
from ._depth import depth_figure
from ._examples import examples_figure, solved_figure
from ._preferences import bert_score_figure, facts_figure, pairs_figure
from ._rows import (
    CONTROL_TASK,
    PROBES,
    Best,
    above_controls,
    against,
    all_examples,
    any_trained,
    best_layer,
    best_layers,
    case_words,
    cases_of,
    control_curve,
    curves_with,
    gain_words,
    held_out_at,
    left_out_note,
    most_layered,
    of,
    one_probe,
    probe_label,
    samples_at,
    task_label,
    tasks_of,
)
from ._trees import trees_figure

AXIS = {"y_title": "accuracy", "baseline_name": "majority class", "bounds": SHARE, "controls": (CONTROL_TASK,)}
_DESCRIBED = 5  # tasks with sentences of their own


def accuracy_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per task, over layers; None without accuracies."""
    scores = all_examples(one_probe(of(frame, metric="accuracy", words="all")))
    own, control = (of(scores, labels=name) for name in ("task", "control"))
    if not any_trained(own):
        return None
    tasks = tasks_of(own)
    shown = most_layered(own, tasks)
    tables = {task: curves_with(of(own, task=task), {CONTROL_TASK: of(control, task=task)}) for task in tasks}
    data = stacked(tables, "task")
    return ReportFigure(
        id="probe-accuracy",
        question="How well can each task be read from each layer?",
        answer=_between(own, shown, models) + _above(own, control, shown[:_DESCRIBED], models),
        words=gain_words("accuracy", cases_of(own, models)),
        panels=layer_panels({task: tables[task] for task in shown}, models, partial(_title, own), **AXIS),
        caption=f"{interval_note(data)} Test part; {_probe_note(own)}. Each panel has its own scale."
        f"{left_out_note(tasks, shown)}",
        how_to_read=[
            "Across: layers, from the embeddings (0) on. Up: the share of test examples that a probe labels correctly "
            "from the vectors of this layer alone.",
            "The dashed grey line is a model of the same shape that was never trained: what a probe finds there comes "
            "from the words themselves and from the shape of the network, not from training. Dash and dots in grey: "
            "the control task, in which each word type has one random label. Dotted: the most frequent label for all.",
            "A probe that does as well on the control task has memorised words: only accuracy above the control shows "
            "what the vectors hold. It would be surprising if an untrained model did as well in upper layers as a "
            "trained one.",
        ],
        method=PROBES,
        data=data,
        tables=(PROBE_SCORES.name,),
        findings=tuple(f"probing:P-{n}" for n in (1, 2, 3, 6)),
        payload={"apart": True},
    )


def _title(own: pd.DataFrame, task: str) -> str:
    """The task, and the probe unless it is the linear one."""
    probe = str(of(own, task=task)["probe"].iloc[0])
    return task_label(task) if probe == "linear" else f"{task_label(task)} ({probe_label(probe)})"


def _probe_note(own: pd.DataFrame) -> str:
    probes = listed(
        ["linear" if name == "linear" else name.upper() for name in dict.fromkeys(own["probe"].astype(str))]
    )
    text = f"{probes} probes"
    if "seeds" in own:
        text += f", means over {int(own['seeds'].max())} seeds of the probe" if int(own["seeds"].max()) > 1 else ""
    if "training" in own:
        fewest, most = int(own["training"].min()), int(own["training"].max())
        text += f", trained on {fewest:,}" + (f" to {most:,}" if most > fewest else "") + " examples"
    return text


def _above(own: pd.DataFrame, control: pd.DataFrame, tasks: list[str], models: ModelSelection) -> list[str]:
    """How far the best layer of each task is above its embeddings, its control task and an untrained model."""
    return [
        text
        for task in tasks
        for text in above_controls(
            task_label(task), of(own, task=task), models, partial(_control_task, of(control, task=task))
        )
    ]


def _control_task(control: pd.DataFrame, line: Series, best: Best) -> dict[str, Samples]:
    return {"the control task there": held_out_at(control, line.key, best.layer)}


def _between(own: pd.DataFrame, tasks: list[str], models: ModelSelection) -> list[str]:
    """How many best layers are clearly neither the embeddings nor the top layer."""
    by_task = [of(own, task=task) for task in tasks]
    bests = [best for rows in by_task for best in best_layers(rows, models).values()]
    if len(bests) < 3:
        return []
    below = sum(best.top != best.layer and best.top not in best.alike for best in bests)
    above = sum(best.layer != 0 and 0 not in best.alike for best in bests)
    return [
        f"Of {len(bests)} cases (tasks and models), the best layer is clearly above the embeddings in {above}, and the "
        f"top layer is clearly below the best in {below}."
    ]


_AXIS = {"y_title": "selectivity (accuracy minus control)", "bounds": COSINE, "baseline_name": "as the control"}


def selectivity_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """A task's margin over its control, for word types seen and unseen in training; None if it was not measured."""
    scores = all_examples(one_probe(of(frame, metric="selectivity")))
    own = of(scores, words="all")
    if not any_trained(own):
        return None
    tasks = tasks_of(own)
    shown = most_layered(own, tasks)
    control = all_examples(one_probe(of(frame, metric="accuracy", labels="control")))
    tables = {task: _table(of(scores, task=task)) for task in tasks}
    drawn = {task: tables[task].query("words == 'all'") for task in shown}
    data = stacked(tables, "task")
    return ReportFigure(
        id="probe-selectivity",
        question="Is it in the vectors, or has the probe memorised words?",
        answer=[*_layer_sentences(own, shown, models), *_type_sentences(scores, control, shown, models)],
        words=case_words("selectivity at its best layer", cases_of(own, models), lambda case: case.best.estimate, 0.0),
        panels=layer_panels(drawn, models, task_label, **_AXIS),
        caption=f"{interval_note(data)} Each panel has its own scale; tooltips and the data distinguish word types "
        f"seen and not seen in training.{left_out_note(tasks, shown)}",
        how_to_read=[
            "Up: accuracy on the task minus accuracy on its control, in which each word type has one random label. A "
            "probe with enough weights learns both; selectivity is what it cannot learn from the word alone. The "
            "dotted line: as good as the control.",
            "Embeddings distinguish words best, so control tasks are easiest at layer 0. Negative: the control task is "
            "easier.",
        ],
        method=PROBES,
        data=data,
        tables=(PROBE_SCORES.name,),
        findings=("probing:P-1",),
    )


def _table(scores: pd.DataFrame) -> pd.DataFrame:
    """Curves of all words, with seen and unseen types in the tooltip, and the curves of these types."""
    words = [name for name in ("all", "seen", "unseen") if name in set(scores["words"].astype(str))]
    tables = {name: curves(of(scores, words=name).assign(baseline=0.0)) for name in words}
    keys = ["series", "group", "layer"]
    every = tables["all"]
    for name in words[1:]:
        stated = every[keys].merge(tables[name][[*keys, "shown"]], on=keys, how="left")["shown"]
        types_text = stated.map(lambda text, name=name: f"; {name} types {text}" if isinstance(text, str) else "")
        every = every.assign(shown=[a + b for a, b in zip(every["shown"], types_text, strict=True)])
    parts = [(every if name == "all" else tables[name]).assign(words=name) for name in words]
    return pd.concat(parts, ignore_index=True)


def _layer_sentences(own: pd.DataFrame, tasks: list[str], models: ModelSelection) -> list[str]:
    """The number of cases where the embeddings are less selective than the best layer above them."""
    lower, cases, most = 0, 0, []
    for task in tasks:
        rows = of(own, task=task)
        upper = rows[rows["layer"] > 0]
        for series in models.present(rows[rows["trained"]]):
            best, first = best_layer(upper, series.key), held_out_at(rows, series.key, 0)
            if best is None or not first:
                continue
            gap = (held_out_at(upper, series.key, best.layer) - first).estimate()
            cases, lower = cases + 1, lower + (gap.sign > 0)
            most.append((best.first - samples_at(rows, series.key, 0).halves().first, gap, task, series, best))
    if not most:
        return []
    _, gap, task, series, best = max(most, key=lambda one: one[0])  # chosen on the half that chose the layers
    return [
        f"Embeddings are clearly less selective than the best layer above them in {lower} of {cases} cases. The "
        f"difference is largest for {task_label(task)} in {series.label}, where layer {best.layer} is "
        f"{against(gap, 'layer 0')}."
    ]


def _type_sentences(scores: pd.DataFrame, control: pd.DataFrame, tasks: list[str], models: ModelSelection) -> list[str]:
    """Selectivity and control accuracy for words that were not in the training data."""
    parts = []
    for task in tasks[:_DESCRIBED]:
        found = {}
        for words in ("seen", "unseen"):
            rows = of(scores, task=task, words=words)
            controls = control_curve(of(control, task=task, words=words), words)
            if len(rows[rows["trained"]]) and len(controls):
                found[words] = (control_curve(rows, words)["value"].mean(), controls["value"].mean())
        if len(found) == 2:
            (seen, by_heart), (unseen, chance) = found["seen"], found["unseen"]
            parts.append(
                f"{task_label(task)}: {number(seen, 2)} and {number(unseen, 2)} (control {number(by_heart, 2)} "
                f"and {number(chance, 2)})"
            )
    if not parts:
        return []
    return [f"Selectivity for word types seen and not seen in training, over all layers: {'; '.join(parts)}."]


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


def _of_tasks(tables: ModelTables) -> list[CardMeasure]:
    frame = tables.get(PROBE_SCORES.name)
    return [] if frame is None else [_of_task(task) for task in tasks_of(of(frame, metric="accuracy", labels="task"))]


def _of_task(task: str) -> CardMeasure:
    def rows(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
        scores = of(frame, metric="accuracy", words="all", labels="task", task=task)
        return models.main(all_examples(one_probe(scores)))

    name = task_label(task)
    return CardMeasure(
        figure="probe-accuracy",
        axis="accuracy",
        noun=f"the accuracy of {name}",
        section="probing",
        question=f"Which layer is best for {name}?",
        table=PROBE_SCORES.name,
        rows=rows,
        contrast="best",
        opening="A probe reads it best ",
        rises="in layer {at} of {line}, with an accuracy of",
        falls="in layer {at} of {line}, with an accuracy of",
        bounded=True,
        fills=True,
    )


CARDS = (_of_tasks,)
