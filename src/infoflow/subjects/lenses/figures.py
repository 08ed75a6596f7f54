"""When the prediction forms: every layer read through the model's own head, against the final prediction."""

from typing import Any

import pandas as pd

from infoflow.report._curves import curves, interval_note, layers_of, samples_at
from infoflow.report._figure import Method, Panel, ReportFigure, Section
from infoflow.report._in_words import Candidate, by_answer, extremes_words, listed, number
from infoflow.report._layer_figure import shared_panels, stacked
from infoflow.report._model_selection import JOIN, ModelSelection
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._lines import POSITIVE, SHARE
from infoflow.report.front_page._measures import CardMeasure

from .measures import LENS

_LENS = Method(
    id="lens",
    title="Logit lens and tuned lens",
    text="""
    KL(<i>p</i> ‖ <i>q</i><sub>l</sub>), in nats, between the model's prediction <i>p</i> and what its output head
    (final norm, prediction head, unembedding) makes of the vectors of layer <i>l</i>: as they are (logit lens,
    nostalgebraist 2020), or after <i>h</i> + <i>A</i><sub>l</sub><i>h</i> + <i>b</i><sub>l</sub> (tuned lens, Belrose
    et al. 2023), trained on that divergence by SGD on other sentences of the corpus. A masked LM is read at tokens
    selected as in its training, an encoder–decoder at its decoder. Baseline: the mean of the model's predictions.
    """,
)

_LENSES = {"tuned": ("tuned lens", 0), "logit": ("logit lens", 1)}  # label, and style of the line in every panel
_DIVERGENCE = {"y_title": "KL to the final prediction (nats)", "baseline_name": "mean prediction", "bounds": POSITIVE}
_AGREEMENT = {
    "y_title": "share of positions with the final top token",
    "baseline_name": "one guess for all",
    "bounds": SHARE,
}
_HOW_LENSES = (
    "The logit lens hands a layer's vectors to the model's own output head, as if the layers above did not exist. The "
    "tuned lens first moves them, by an affine map learned on other sentences, to where the head expects them: what "
    "only the tuned lens can read is there already, but in another form."
)


PREDICTS = Section(
    id="predicts",
    short="Predict",
    title="When does the prediction form?",
    lead="Only the last layer's vectors are turned into a prediction, but those of every layer can be read as if they "
    "were the last. How close are these predictions to the model's final prediction?",
    names={"lens-divergence": "representations/lens-divergence", "lens-agreement": "representations/lens-agreement"},
)


def lenses_section(tables: ModelTables) -> Section | None:
    """The section on when the prediction forms, or None if the run has none of its measures."""
    if LENS.name not in tables:
        return None
    models, frame = tables.models, _one_choice(tables[LENS.name])
    figures = [_divergence_figure(_by_lens(frame, "kl"), models)]
    if len(rows := _by_lens(frame, "agreement")):
        figures.append(_agreement_figure(rows, models))
    return PREDICTS.drawn_with(figures, models, [frame])


def _one_choice(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of predicted positions if these were measured, otherwise all rows."""
    kept = "predicted" if "predicted" in set(frame["positions"]) else "all"
    return frame.loc[frame["positions"] == kept]


def _by_lens(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Rows of one metric: `owner` is the model's line, `series` a line per model and lens."""
    rows = frame[frame["metric"] == metric]
    return rows.assign(owner=rows["series"], series=rows["series"] + JOIN + rows["lens"].astype(str))


def _lines(owner: Series, frame: pd.DataFrame) -> list[Series]:
    """Both lenses of one model in its colour; each lens has one style in all panels."""
    return [
        Series(key=f"{owner.key}{JOIN}{lens}", label=label, slot=owner.slot, style=style)
        for lens, (label, style) in _LENSES.items()
        if lens in set(frame["lens"])
    ]


def _owners(frame: pd.DataFrame, models: ModelSelection) -> list[Series]:
    return [series for series in models.series if series.key in set(frame["owner"])]


def _panels(frame: pd.DataFrame, models: ModelSelection, **axis: Any) -> tuple[list[Panel], pd.DataFrame, str]:
    """One panel per model, its rows (every layer but the top, where lines meet), and a note on the scale."""
    frame = frame.loc[frame["layer"] < frame.groupby("owner")["layer"].transform("max")]
    owners = {_title(frame[frame["owner"] == owner.key], owner): owner for owner in _owners(frame, models)}
    tables = {title: curves(frame[frame["owner"] == owner.key]) for title, owner in owners.items()}
    panels, scale = shared_panels(tables, lambda title: _lines(owners[title], frame), **axis)
    return panels, stacked({owners[title].key: table for title, table in tables.items()}, "owner"), scale


def _title(frame: pd.DataFrame, owner: Series) -> str:
    """The model, and its positions unless they are the usual ones."""
    if frame["stack"].iloc[0] == "decoder" and frame["objective"].iloc[0] not in ("causal-lm",):
        return f"{owner.label}: decoder"
    masked = frame["objective"].iloc[0] == "masked-lm" and frame["positions"].iloc[0] == "predicted"
    return f"{owner.label}: hidden tokens" if masked else owner.label


def _divergence_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    # An untrained model predicts nearly the same everywhere: its divergence is close to zero at any layer, and its line
    # would look like success.
    trained, untrained = frame[frame["trained"]], frame[~frame["trained"]]
    panels, table, scale = _panels(trained, models, **_DIVERGENCE)
    no_prediction = (
        "An untrained model forms no prediction: on average, its predictions are within "
        f"{number(float(untrained['baseline'].max()), 2)} nats of its mean prediction."
    )
    return ReportFigure(
        id="lens-divergence",
        question="How far is each layer from the final prediction?",
        answer=[*_logit_sentence(trained, models), *([no_prediction] if len(untrained) else [])],
        words=_halfway_words(trained, models),
        panels=panels,
        caption=f"{interval_note(table)} {scale} Measured on sentences that the lens was not "
        "trained on. The top layer is left out: there the divergence is 0 by definition.",
        how_to_read=[
            "Across: layers, from the embeddings (0) on. Up: the Kullback–Leibler divergence of what the layer "
            "predicts from what the model predicts in the end.",
            _HOW_LENSES,
            "The dotted grey line is what the model predicts on average, whatever the text: a layer above it misleads "
            "the head, a layer far below it encodes most of the answer. Untrained models are not drawn, since they "
            "predict nearly the same everywhere.",
        ],
        method=_LENS,
        data=table,
        tables=(LENS.name,),
    )


def _logit_sentence(frame: pd.DataFrame, models: ModelSelection) -> list[str]:
    """The result of the logit lens at the same layers, if the words are about the tuned lens."""
    later = [f"{_halfway(frame, one, 'logit')} in {one.label}" for one in _read_through(frame, models, "logit")]
    if _best_lens(frame) != "tuned" or not later:
        return []
    return [f"By the logit lens, from layer {listed(later)}, predictions are nearer to the final one than to the mean."]


def _halfway_words(frame: pd.DataFrame, models: ModelSelection) -> str:
    """The layer from which each model is nearer to its final prediction than to its mean prediction."""
    lens = _best_lens(frame)
    owners = _read_through(frame, models, lens)
    found = {owner.label: f"from layer {_halfway(frame, owner, lens)} on" for owner in owners}
    return by_answer(
        found, f"through the {lens} lens, more than half of the distance to the final prediction is covered "
    )


def _read_through(frame: pd.DataFrame, models: ModelSelection, lens: str) -> list[Series]:
    return [owner for owner in _owners(frame, models) if layers_of(frame, f"{owner.key}{JOIN}{lens}")]


def _best_lens(frame: pd.DataFrame) -> str:
    return "tuned" if "tuned" in set(frame["lens"]) else "logit"


def _halfway(frame: pd.DataFrame, owner: Series, lens: str) -> int:
    """The first layer from which the divergence stays below half of the baseline, including its interval."""
    key = f"{owner.key}{JOIN}{lens}"
    layers = layers_of(frame, key)
    base = float(frame.loc[frame["owner"] == owner.key, "baseline"].mean())
    at = [samples_at(frame, key, layer).estimate() for layer in layers]
    near = [(one.high if one.has_interval else one.value) < base / 2 for one in at]
    return layers[max((index + 1 for index, is_near in enumerate(near) if not is_near), default=0)]


def _agreement_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    panels, table, scale = _panels(frame, models, **_AGREEMENT)
    return ReportFigure(
        id="lens-agreement",
        question="From which layer on is the top token the final one?",
        words=_middle_words(frame, models),
        panels=panels,
        caption=f"{interval_note(table)} {scale} The top layer, 1 by definition, is left out.",
        how_to_read=[
            "Up: the share of positions at which the layer's most likely token is also the most likely in the model's "
            "final prediction, right or wrong.",
            _HOW_LENSES,
            "The dotted grey line always predicts the model's most frequent top token; the dashed one is an untrained "
            "model of the same shape. It may score high, since its layers hardly change a vector, so that its top "
            "token stays the same: agreement shows a prediction only where the divergence shows one too.",
        ],
        method=_LENS,
        data=table,
        tables=(LENS.name,),
    )


def _middle_words(frame: pd.DataFrame, models: ModelSelection) -> str:
    """Models whose middle layer predicts the final top token most and least often; one of a single layer has none."""
    lens = _best_lens(frame)
    keys = {one.label: f"{one.key}{JOIN}{lens}" for one in _read_through(frame, models, lens)}
    layers = {label: own for label, key in keys.items() if (own := layers_of(frame, key))[-1] > 1}
    middles = {label: samples_at(frame, keys[label], own[-1] // 2) for label, own in layers.items()}
    found = [Candidate(f"in {label}", samples.estimate()) for label, samples in middles.items()]
    return extremes_words(
        f"halfway up, the share of positions at which the {lens} lens predicts the final top token", found
    )


def _card_rows(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    rows = _one_choice(frame)
    rows = rows[(rows["lens"] == _best_lens(rows)) & (rows["metric"] == "agreement")]
    return rows[rows["layer"] < rows.groupby("series")["layer"].transform("max")]  # at the top it is 1 by definition


SECTIONS = ((80, PREDICTS, lenses_section),)
CARDS = (
    CardMeasure(
        figure="lens-agreement",
        axis="% of positions",
        noun="how often {middle} has the final prediction",
        section="predicts",
        question="When does the answer form?",
        table=LENS.name,
        rows=_card_rows,
        contrast="middle",
        opening="{middle} already has the model's final prediction ",
        rises="in {line} at",
        falls="in {line} at",
        what="of positions",
        percent=True,
        untrained=False,
    ),
)
