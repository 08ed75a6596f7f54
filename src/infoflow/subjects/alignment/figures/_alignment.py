"""Whether one encoder's space can be mapped to another's: scores with their controls, and curves over layers."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from infoflow.report._curves import curves, interval_note
from infoflow.report._figure import Method, Panel, ReportFigure, Section
from infoflow.report._in_words import Estimate, Samples, difference_text, estimate_text, listed, sentence, size_text
from infoflow.report._model_selection import JOIN, ModelSelection
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series, objective_label, own_style
from infoflow.report.forms._chart import by_key, lit, tips
from infoflow.report.forms._layer_chart import LayerChart
from infoflow.report.forms._lines import COSINE, POSITIVE, SHARE
from infoflow.report.forms._marks import HOLLOW, draw
from infoflow.report.forms._rows import interval_dots
from infoflow.results import AmbiguousModels

from ..measures import ALIGNMENT as ALIGNMENT_TABLE

_METHOD = Method(
    id="alignment",
    title="Alignment of two encoders",
    text="""
    The masked LM's encoder <i>f</i>, followed by a linear map, is trained on MSE(<i>f</i>(<i>x</i>),
    <i>g</i>(<i>x</i>)) + ¼ MSE(<i>f</i>(<i>x</i>), <i>f</i><sub>0</sub>(<i>x</i>)) over words, with the translation
    encoder <i>g</i> and the initial <i>f</i><sub>0</sub> frozen; a word's vector is that of its last subword. After
    Cao, Kitaev and Klein (2020) and Vázquez et al. (2021), at a higher learning rate. Retrieval is by CSLS with 10
    neighbours (Conneau et al. 2018), every vector at norm 1. “Linear map only” is the least-squares map on training
    words; the same map is fitted for the encoder that was fine-tuned under the decoder. All numbers come from sentences
    that nothing was fitted on.
    """,
)

_SOURCE, _TARGET = "masked-lm", "translation"


class _Kind(NamedTuple):
    label: str
    control: bool
    shape: str


_KINDS = {
    "aligned": _Kind("aligned", False, "circle"),
    "implicit": _Kind("under the decoder", False, "diamond"),
    "unaligned": _Kind("linear map only", False, "square"),
    "shuffled": _Kind("shuffled links", True, "triangle-up"),
    "regulariser only": _Kind("no links", True, "triangle-down"),
}


class _Score(NamedTuple):
    title: str
    name: str  # the score's name in a sentence
    bounds: tuple[float, float] = SHARE


_SCORES = {
    "retrieval forward": _Score("words found, masked LM to translation: higher is better", "retrieval"),
    "retrieval backward": _Score("words found, translation to masked LM: higher is better", "retrieval backwards"),
    "mse": _Score("squared error per dimension: lower is better", "squared error", POSITIVE),
    "rsa": _Score("RSA to the translation encoder: higher is better", "RSA", COSINE),
    "pwcca": _Score("PWCCA to the translation encoder: higher is better", "PWCCA"),
}
_VERDICTS = {-1: "narrows", 0: "does not clearly change", 1: "widens"}
_CURVES = {"average similarity": "random words", "self-similarity": "occurrences of one word"}


ALIGNMENT = Section(
    id="alignment",
    short="Align",
    title="Can one space be turned into another?",
    lead="A masked LM and a translation encoder give the same word different vectors. Is that a matter of "
    "coordinates, which a map undoes? Or do the vectors hold different things, so that the encoder itself has to "
    "learn?",
    names={
        "alignment-scores": "alignment/scores",
        "alignment-curves": "alignment/layers",
        "alignment-bleu": "alignment/translation",
    },
)


def alignment_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was aligned."""
    if ALIGNMENT_TABLE.name not in tables:
        return None
    models = tables.models
    frame = _one_target(tables[ALIGNMENT_TABLE.name], models).assign(series=_SOURCE + JOIN + _TARGET, trained=True)
    figures = [_score_figure(frame, models), _curve_figure(frame, models)]
    if "bleu" in set(frame["metric"]):
        figures.append(_bleu_figure(frame, models))
    return replace(ALIGNMENT, figures=figures, keys=[one for one in models.series if one.key in (_SOURCE, _TARGET)])


def _one_target(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """The rows of masked LMs that were aligned to a single translation model."""
    own = frame[frame["series"] == _SOURCE] if "series" in frame else frame
    shown = own[own["target_model"].map(models.lines) == _TARGET] if "target_model" in own else own
    own = shown if len(shown) else own
    if "target_model" in own and int(own.groupby("source_model")["target_model"].nunique().max()) > 1:
        names = ", ".join(dict.fromkeys(own["target_model"]))
        raise AmbiguousModels(
            f"One target must be chosen for each source of an alignment. There are several: {names}. Align to one."
        )
    return own


def _score_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    mapped = frame[(frame["states"] == "mapped") & frame["metric"].isin(list(_SCORES))]
    table = _score_table(mapped)
    return ReportFigure(
        id="alignment-scores",
        question="Does alignment bring a masked LM nearer to the translation encoder than a linear map does?",
        words=_score_words(mapped),
        answer=_other_sentence(mapped),
        panels=[
            Panel(title=score.title, spec=_score_chart(table[table["metric"] == metric], models, score.bounds))
            for metric, score in _SCORES.items()
            if metric in set(table["metric"])
        ],
        caption=f"{_marks(table)} Top-layer vectors after the map, on "
        f"{int(table.loc[table['metric'] == 'mse', 'count'].median()):,} words of held-out sentences "
        f"({int(table.loc[table['metric'] == 'retrieval forward', 'count'].median()):,} candidates per retrieval).",
        how_to_read=[
            "One line per variant. Aligned: the encoder and a linear map learn together to give each word the vector "
            "that the translation encoder gives it. Under the decoder: the encoder is fine-tuned as part of the "
            "translation model, and a linear map is fitted afterwards. Linear map only: the encoder is not trained.",
            "Grey lines are controls: one is trained on links to words of other sentences; the other, without links, "
            "only learns to keep its vectors and starts with a random map. They must not come close to the aligned "
            "encoder.",
            "The dashed grey mark is the score without knowledge of the word: chance for retrieval, the mean vector "
            "for the error, shuffled words for RSA and PWCCA.",
        ],
        method=_METHOD,
        data=table,
        tables=(ALIGNMENT_TABLE.name,),
        findings=("representations:Z-3",),
    )


def _score_table(frame: pd.DataFrame, kinds: Iterable[str] = _KINDS) -> pd.DataFrame:
    """One row per kind and metric (mean over seeds, `seed` −1), and one per seed; in the order of `kinds`."""
    rows = []
    groups: Any = frame.groupby(["metric", "kind"], sort=False)
    for (metric, kind), own in groups:
        estimate = Samples.of(own).estimate()
        rows.append(_score_row(metric, kind, -1, estimate, float(own["baseline"].mean())))
        for seed in own.to_dict("records"):
            one = Estimate(value=seed["value"], low=seed["low"], high=seed["high"], seeds=1, count=seed["count"])
            rows.append(_score_row(metric, kind, int(seed["seed"]), one, float(seed["baseline"])))
    order = {kind: index for index, kind in enumerate(kinds)}
    return pd.DataFrame(rows).sort_values("kind", key=lambda names: names.map(order), kind="stable")


def _score_row(metric: str, kind: str, seed: int, estimate: Estimate, baseline: float) -> dict[str, Any]:
    row = {"metric": metric, "kind": kind, "label": _KINDS[kind].label if kind in _KINDS else kind, "seed": seed}
    row |= {"value": estimate.value, "low": estimate.low, "high": estimate.high, "baseline": baseline}
    row |= {"seeds": estimate.seeds, "count": estimate.count, "series": _SOURCE + JOIN + _TARGET}
    return row | {"shown": estimate_text(estimate), "short": estimate_text(estimate).split(" (")[0]}


def _score_chart(table: pd.DataFrame, models: ModelSelection, bounds: tuple[float, float]) -> dict[str, Any]:
    means, seeds = table[table["seed"] < 0], table[table["seed"] >= 0]
    labels = list(means["label"])
    shapes = {kind.label: kind.shape for kind in _KINDS.values()}
    look = {
        "color": by_key("color", "label", labels, [_color(kind, models) for kind in means["kind"]]),
        "shape": by_key("shape", "label", labels, [shapes.get(label, "circle") for label in labels]),
    }
    dots = draw("point", seeds, filled=True, size=22, opacity=lit(0.45))
    tooltip = tips("label:N", "shown:N|value", "baseline:Q|reference")
    return interval_dots(means, look, bounds=bounds, tooltip=tooltip, size=80, more=[dots], step=38)


def _color(kind: str, models: ModelSelection) -> str:
    """The masked LM's colour for its encoders, grey for controls, translation's colour for translation's encoder."""
    if kind in _KINDS and _KINDS[kind].control:
        return "var(--control)"
    key, slot = (_TARGET, 2) if kind == "target" else (_SOURCE, 1)
    return next((series.color for series in models.series if series.key == key), f"var(--series-{slot})")


def _score_words(frame: pd.DataFrame) -> str:
    """How many more words a trained encoder retrieves than a linear map, and how many shuffled links retrieve."""
    at = {kind: _samples(frame, kind, "retrieval forward") for kind in ("aligned", "unaligned", "shuffled")}
    gap = (at["aligned"] - at["unaligned"]).estimate()
    shuffled = f"; on shuffled links it finds {estimate_text(at['shuffled'].estimate())}" if at["shuffled"] else ""
    return sentence(
        f"alignment finds {estimate_text(at['aligned'].estimate())} of the words, "
        f"{difference_text(gap, 'more', 'less')} than a linear map{shuffled}"
    )


def _other_sentence(frame: pd.DataFrame) -> list[str]:
    """How the aligned encoder's other scores differ from those of the linear map."""
    moved = []
    for metric in ("mse", "rsa", "pwcca"):
        difference = (_samples(frame, "aligned", metric) - _samples(frame, "unaligned", metric)).estimate()
        name = _SCORES[metric].name
        if difference.sign:
            moved.append(f"{name} is {size_text(difference)} {'higher' if difference.value > 0 else 'lower'}")
        else:
            moved.append(f"{name} does not clearly differ")
    return [f"Against the linear map, {listed(moved)}."]


def _samples(frame: pd.DataFrame, kind: str, metric: str) -> Samples:
    return Samples.of(frame[(frame["kind"] == kind) & (frame["metric"] == metric)])


def _marks(table: pd.DataFrame) -> str:
    seeds = int(table["seeds"].max())
    if seeds == 1:
        return f"Marks are values with 95% intervals over sentences, {HOLLOW}."
    bars = "a 95% interval over seeds and sentences"
    return f"Large marks are means over {seeds} seeds with {bars}, small dots the seeds."


def _curve_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    lines = _curve_lines(models)
    kept = frame[frame["metric"].isin(list(_CURVES)) & frame["kind"].isin([line.key for line in lines])]
    tables = {metric: curves(kept[kept["metric"] == metric].assign(series=kept["kind"])) for metric in _CURVES}
    tables = {metric: table[table["group"] == "trained"] for metric, table in tables.items()}
    everything = pd.concat([table.assign(metric=metric) for metric, table in tables.items()])
    least = int(kept["least"].max())
    rare = f" Self-similarity leaves out words with fewer than {least} occurrences." if least else ""
    return ReportFigure(
        id="alignment-curves",
        question="Does the aligned encoder's space look like the translation encoder's, layer by layer?",
        words=sentence(f"alignment {listed([_gap_words(frame, metric) for metric in _CURVES])}"),
        panels=[
            Panel.of(
                LayerChart(table=tables[metric], series=lines, y_title=metric, bounds=COSINE), f"mean cosine of {what}"
            )
            for metric, what in _CURVES.items()
        ],
        caption=f"{interval_note(everything)}{rare}",
        how_to_read=[
            "Left, how similar two words' vectors are wherever they occur; right, how similar the occurrences of one "
            "word are. Across: layers, from the embeddings (0).",
            "If alignment made the masked LM like the translation encoder, the aligned line would be nearer to the "
            "translation line than the unaligned one in every layer, not only at the top, which is trained to match.",
        ],
        method=_METHOD,
        data=everything,
        tables=(ALIGNMENT_TABLE.name,),
        findings=("representations:Z-4",),
    )


def _curve_lines(models: ModelSelection) -> list[Series]:
    slots = {series.key: series.slot for series in models.series}
    source, target = slots.get(_SOURCE, 1), slots.get(_TARGET, 2)
    return [
        Series(key="target", label=objective_label(_TARGET), slot=target),
        Series(key="aligned", label="aligned", slot=source),
        Series(key="unaligned", label="unaligned", slot=source, style=own_style(source) + 1),
    ]


def _gap_words(frame: pd.DataFrame, metric: str) -> str:
    """`narrows the gap to translation in self-similarity by 0.04 (0.03 to 0.05)`."""
    aligned, unaligned = (_samples(frame, kind, f"{metric} gap") for kind in ("aligned", "unaligned"))
    difference = (aligned - unaligned).estimate()
    by = f" by {size_text(difference)}" if difference.sign else ""
    return f"{_VERDICTS[difference.sign]} the gap to translation in {metric}{by}"


def _bleu_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    names = {"unaligned": "as it was", "implicit": "fine-tuned", "target": "translation's own encoder"}
    kept = frame[(frame["metric"] == "bleu") & frame["kind"].isin(list(names))]
    table = _score_table(kept, names).assign(label=lambda rows: rows["kind"].map(names))
    before, after, own = (_samples(frame, kind, "bleu") for kind in names)
    signatures = sorted({str(s) for s in kept["signature"] if s})
    return ReportFigure(
        id="alignment-bleu",
        question="Can the masked LM's encoder serve the translation decoder?",
        answer=_drift_sentence(frame),
        words=_bleu_words(before, after, own),
        panels=[Panel(title="BLEU: higher is better", spec=_score_chart(table, models, POSITIVE))],
        caption=f"{_marks(table)} {int(table['count'].median()):,} held-out sentences. sacreBLEU signature: "
        f"{listed(signatures)}.",
        how_to_read=[
            "The masked LM's encoder replaces the translation model's own, and both this encoder and the decoder are "
            "trained on few sentences. How fast BLEU rises shows how much of what the decoder needs the encoder holds.",
            "The dashed grey mark is a copy of the source.",
        ],
        method=_METHOD,
        data=table,
        tables=(ALIGNMENT_TABLE.name,),
    )


def _bleu_words(before: Samples, after: Samples, own: Samples) -> str:
    """BLEU after fine-tuning, compared with the encoder before it and with the decoder's own encoder."""
    gain, left = (after - before).estimate(), (after - own).estimate()
    return sentence(
        f"fine-tuned, the encoder gives BLEU {estimate_text(after.estimate())}, "
        f"{difference_text(gain, 'more', 'less')} than before and {difference_text(left, 'more', 'less')} than the "
        "decoder's own encoder"
    )


def _drift_sentence(frame: pd.DataFrame) -> list[str]:
    """Whether training for the decoder alone moves the encoder's states nearer to those of the other encoder."""
    states = frame[frame["states"] == "encoder"]
    after, before = (_samples(states, kind, "rsa") for kind in ("implicit", "unaligned"))
    if not after:
        return []
    difference = (after - before).estimate()
    towards = {1: "comes nearer to", -1: "moves away from", 0: "does not clearly move towards"}[difference.sign]
    return [
        f"Fine-tuning did not use the vectors of the decoder's own encoder. The tuned space {towards} that encoder's: "
        f"RSA at the top is {estimate_text(after.estimate())} after and {estimate_text(before.estimate())} before."
    ]
