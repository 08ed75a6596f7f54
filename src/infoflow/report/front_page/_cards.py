"""The three cards of the front page: the largest effects, in interval widths, with and without the control."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import pandas as pd

from infoflow.heads import HEAD_PRUNING_CURVE

from .._curves import curves, layers_of, samples_at, turn_sentence
from .._figure import ReportFigure
from .._in_words import Chosen, Estimate, Samples, chosen, decimals, number
from .._model_tables import ModelTables
from .._theme import Series
from ._measures import Card, CardMeasure, card_measures, measured
from ._spark import roles_card, spark

CARDS = 3
_UNCLEAR = "no clear change in {line}"
_EACH = 3  # up to this number, a sentence names every line

HOW_CHOSEN = (
    "Each measure is summarised by one number per model. The cards show where two models that have learned their task "
    "differ most, relative to the interval of their difference, and still differ after subtracting each one's control "
    "(the untrained model, or the measure's own baseline); where possible, one card per section of the report. For a "
    "single model, they show where its number is farthest from the control. The cards are picked from many measures, "
    "and no interval corrects for that: read the figures behind them."
)


def strength(estimate: Estimate) -> float:
    """Distance of an estimate from zero in half-widths of its interval; 0 without an interval."""
    half = (estimate.high - estimate.low) / 2
    if not estimate.has_interval:
        return 0.0
    return abs(estimate.value) / half if half > 0 else math.inf if estimate.value else 0.0


def cards(tables: ModelTables, figures: Sequence[ReportFigure], dull: set[str]) -> list[Card]:
    """The cards, in the report's order; if no measure has one, cards with the answers of the first figures.

    Each card links to one of the `figures` on the page. `dull`: lines with models that have not learned their task,
    drawn in grey.
    """
    found = []
    ids = {figure.id: place for place, figure in enumerate(figures)}
    offered = [measure for measure in card_measures(tables) if measure.figure in ids]
    every = sorted(offered, key=lambda measure: ids[measure.figure])
    for measure in every:
        frame = measured(measure, tables)
        if frame is not None and (seen := effects(measure, frame, dull)).shown:
            found.append((measure, frame, seen))
    found.sort(key=lambda one: (one[0].fills, -one[2].strength))  # stable: ties keep the report's order
    sections = [one[0].section for one in found]
    first = [one for at, one in enumerate(found) if one[0].section not in sections[:at]]
    more = [one for one in found if one not in first]  # if fewer sections than cards have a result
    ahead = [card] if "head-map" in ids and (card := roles_card(tables)) else []
    chosen = sorted([*first, *more], key=lambda one: (one[0].fills, not one[2].clear))[: CARDS - len(ahead)]
    made = [_card(*one, tables, dull) for one in sorted(chosen, key=lambda one: every.index(one[0]))]
    stated = [Card(figure=one.id, question=one.question, sentence=one.words) for one in figures if one.words]
    return [*ahead, *made] or stated[:CARDS]


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """One number per line, as measured and after subtracting the control."""

    shown: dict[str, Estimate]  # series → the number itself
    beyond: dict[str, Estimate]  # that number minus the untrained model's, or minus the measure's own baseline
    control: float | None  # the control of what the card says; None without one
    pair: tuple[str, str] | None  # the two lines that differ most; None for a single line
    difference: Estimate | None  # the difference between the lines of `pair`
    difference_beyond: Estimate | None  # that difference after subtracting the control
    at: dict[str, int] = field(default_factory=dict)  # layer of the largest value, for the contrast "best"

    @property
    def deciding(self) -> Estimate:
        """What the card says: the difference between two lines, or a single line's own number."""
        return self.difference or next(iter(self.shown.values()))

    @property
    def deciding_beyond(self) -> Estimate:
        """`deciding` after subtracting the control."""
        return self.difference_beyond or next(iter(self.beyond.values()))

    @property
    def clear(self) -> bool:
        """Whether both intervals exclude zero, on the same side."""
        return self.strength > 0 and self.deciding.sign == self.deciding_beyond.sign != 0

    @property
    def strength(self) -> float:
        """The smaller of the strengths before and after subtracting the control."""
        return _weaker(self.deciding, self.deciding_beyond)


def _weaker(plain: Estimate, beyond: Estimate) -> float:
    """The effect, or what remains of it beyond the control, whichever is smaller; 0 if their signs differ."""
    return min(strength(plain), strength(beyond)) if plain.value * beyond.value > 0 else 0.0


def _card(measure: CardMeasure, frame: pd.DataFrame, seen: Effects, tables: ModelTables, dull: set[str]) -> Card:
    series = tables.models.present(frame)
    sentence = _sentence(measure, frame, seen, series)
    if measure.contrast == "ends" and measure.x == "layer":
        named = [line for line in series if line.key in (seen.pair or seen.shown)]
        inside = turn_sentence(
            frame[frame["trained"]], named, lambda size: _amount(abs(size.value), measure, size, change=True)
        )
        sentence = f"{inside} {sentence}".strip()
    return Card(
        figure=measure.figure,
        question=measure.question,
        sentence=sentence,
        difference=_difference(measure, seen, series),
        clear=seen.clear,
        strength=seen.strength,
        picked=not measure.fills,
        picture=spark(
            curves(frame),
            series,
            dull,
            (measure.x, measure.axis),
            measure.percent,
            f"{measure.question} {sentence}",
            measure.ends,
            measure.bounded,
        ),
    )


def _sentence(measure: CardMeasure, frame: pd.DataFrame, seen: Effects, series: list[Series]) -> str:
    places = _places(measure, frame, series)
    lines = [line for line in series if line.key in seen.shown]
    if not seen.clear:
        return _nothing_seen(measure, seen, lines, measure.noun.format(**places))
    if len(lines) > _EACH and seen.pair:
        lines = [line for line in lines if line.key in seen.pair]
    lines.sort(key=lambda line: _is_still(measure, seen.shown[line.key]))  # lines with a clear change come first
    verbs = [_verb(measure, seen.shown[line.key], first=not index) for index, line in enumerate(lines)]
    clauses = [
        _clause(measure, seen, line, verb, first=not index, again=index > 0 and verb == verbs[index - 1])
        for index, (line, verb) in enumerate(zip(lines, verbs, strict=True))
    ]
    left = len(seen.shown) - len(lines)
    rest = f"; {left} more in the figure" if left else ""
    sentence = f"{measure.opening.format(**places)}{'; '.join(clauses)}{rest}."
    return sentence[:1].upper() + sentence[1:]


def _nothing_seen(measure: CardMeasure, seen: Effects, lines: list[Series], noun: str) -> str:
    values = [seen.shown[line.key].value for line in lines]
    least, most = (_amount(value, measure, seen.deciding) for value in (min(values), max(values)))
    if len(lines) == 1:
        return f"No difference from the control seen in {noun.rstrip(',')}: {most}."
    span = most if least == most else f"{_amount(min(values), measure, seen.deciding, unit=False)} to {most}"
    beyond = " beyond that of their controls" if seen.deciding.sign else ""
    return f"No difference seen between the models{beyond} in {noun.rstrip(',')}: {span}."


def _places(measure: CardMeasure, frame: pd.DataFrame, series: list[Series]) -> dict[str, str]:
    """How a sentence names the layers that it compares; without numbers if the models differ in depth."""
    layers = [layers_of(frame[frame["trained"]], line.key) for line in series]
    deepest = max(layers, key=len)
    first, middle, last = deepest[0], deepest[len(deepest) // 2], deepest[-1]
    same = all((own[0], own[-1]) == (first, last) for own in layers)
    return {
        "span": f"{measure.x} {first} to {last}" if same else f"the first {measure.x} to the last",
        "middle": f"{measure.x} {middle}" if same else f"the middle {measure.x}",
        "reached": str(reached(measure, deepest)),
    }


def _verb(measure: CardMeasure, estimate: Estimate, first: bool) -> str:
    """The verb phrase for a line, with a placeholder for its name."""
    if not first and _is_still(measure, estimate):
        return _UNCLEAR
    verb = measure.rises if estimate.value >= 0 else measure.falls
    return verb if "{line}" in verb else f"{{line}} {verb}"


def _clause(measure: CardMeasure, seen: Effects, line: Series, verb: str, first: bool, again: bool) -> str:
    """`rises in masked LM by 2`; `in masked LM by 2` after a clause with the same verb (`again`)."""
    _, inside, behind = verb.partition(" in {line}")
    subject = (f"in {{line}}{behind}" if again and inside else verb).format(line=line.label, at=seen.at.get(line.key))
    if verb == _UNCLEAR:
        return verb.format(line=line.label)
    estimate = seen.shown[line.key]
    value = abs(estimate.value) if measure.rises != measure.falls else estimate.value
    amount = _amount(value, measure, seen.deciding, change=verb.endswith(" by"), unit=first)
    return f"{subject} {amount}{f' {measure.what}' if first and measure.what else ''}"


def _is_still(measure: CardMeasure, estimate: Estimate) -> bool:
    """Whether the interval of a reported change includes zero."""
    return measure.rises.endswith(" by") and estimate.has_interval and estimate.sign == 0


def _amount(value: float, measure: CardMeasure, estimate: Estimate, change: bool = False, unit: bool = True) -> str:
    """`0.19 nats`, `12 %`, or `12 points` for a change of a share; without `unit`, only the number and the sign."""
    scale = 100 if measure.percent else 1
    places = decimals(scale * estimate.low, scale * estimate.high, scale * value)
    shown = number(scale * value, min(places, 1) if measure.percent else places)
    if measure.percent:
        return f"{shown} {'points' if change else '%'}"
    return f"{shown} {measure.unit}".rstrip() if unit else shown


def _difference(measure: CardMeasure, seen: Effects, series: list[Series]) -> str:
    """`causal LM − masked LM: −0.26 nats (−0.28 to −0.24); 0.01 in the control`."""
    estimate, scale = seen.deciding, 100 if measure.percent else 1
    labels = {line.key: line.label for line in series}
    who = f"{labels[seen.pair[0]]} − {labels[seen.pair[1]]}: " if seen.pair else ""
    low, high = (scale * end for end in (estimate.low, estimate.high))
    places = decimals(low, high, scale * estimate.value)
    change = bool(seen.pair) or measure.contrast in ("ends", "reached")
    size = number(scale * estimate.value, places)
    unit = measure.unit if not measure.percent else "points" if change else "%"
    span = f" ({number(low, places)} to {number(high, places)})" if estimate.has_interval else ", no interval known"
    control = ""
    if seen.control is not None:
        same = _amount(seen.control, measure, estimate, change, unit=False)
        control = f"; {same if re.search('[1-9]', same) else 'none'} in the control"
    return f"{who}{f'{size} {unit}'.rstrip()}{span}{control}"


def effects(measure: CardMeasure, frame: pd.DataFrame, dull: Collection[str] = ()) -> Effects:
    """Compute the effects of every line in `frame`, the rows of `measured`.

    Models in `dull`, which have not learned their task, are compared only if fewer than two others exist.
    """
    trained = {str(key): contrast(measure, frame, str(key)) for key in dict.fromkeys(frame["series"])}
    trained = {key: own for key, own in trained.items() if own}
    controls = {key: _control(measure, frame, key, own) for key, own in trained.items()}
    beyond = {key: own - controls[key] if controls[key] else own for key, own in trained.items()}
    learned = [key for key in beyond if key not in dull]
    pair = max(
        combinations(learned if len(learned) > 1 else beyond, 2),
        key=lambda two: _weaker(_differ(trained, *two), _differ(beyond, *two)),
        default=None,
    )
    compared = [controls[key].estimate().value for key in pair or list(controls)[:1] if controls[key]]
    return Effects(
        shown={key: own.estimate() for key, own in trained.items()},
        beyond={key: own.estimate() for key, own in beyond.items()},
        control=compared[0] - sum(compared[1:]) if len(compared) == (2 if pair else 1) else None,
        pair=pair,
        difference=_differ(trained, *pair) if pair else None,
        difference_beyond=_differ(beyond, *pair) if pair else None,
        at={key: best.key for key in trained if measure.contrast == "best" and (best := _best(frame, key))},
    )


def _differ(found: dict[str, Samples], a: str, b: str) -> Estimate:
    return (found[a] - found[b]).estimate()


def _best(frame: pd.DataFrame, key: str, trained: bool = True) -> Chosen[int] | None:
    """A line's layer with the largest value on one half of the sentences, with all values on the other half."""
    layers = layers_of(frame[frame["trained"] == trained], key)
    return chosen({layer: samples_at(frame, key, layer, trained) for layer in layers})


def contrast(measure: CardMeasure, frame: pd.DataFrame, key: str, trained: bool = True) -> Samples:
    """The number that summarises a line, per seed."""
    layers = layers_of(frame[frame["trained"] == trained], key)
    if not layers:
        return Samples.bare({})
    if measure.contrast == "best":
        best = _best(frame, key, trained)
        return best.at[best.key] if best else Samples.bare({})
    if measure.contrast == "middle":
        return samples_at(frame, key, layers[len(layers) // 2], trained)
    end = layers[-1] if measure.contrast == "ends" else reached(measure, layers)
    return samples_at(frame, key, end, trained) - samples_at(frame, key, layers[0], trained)


def reached(measure: CardMeasure, layers: list[int]) -> int:
    """Where the contrast "reached" ends: the last position, in percent, within the share `measure.reached`."""
    limit = layers[0] + measure.reached * 100
    return max((layer for layer in layers if layer <= limit), default=layers[0])


def _control(measure: CardMeasure, frame: pd.DataFrame, key: str, own: Samples) -> Samples:
    """The number that summarises the untrained models, or the measure's own baseline if there are none."""
    if measure.untrained and (untrained := contrast(measure, frame, key, trained=False)):
        return untrained if set(untrained.values) >= set(own.values) else Samples.bare({})
    if measure.table == HEAD_PRUNING_CURVE.name or "baseline" not in frame:
        return Samples.bare({})  # its baseline is a random order: a curve of its own
    based = contrast(measure, _baselines(frame), key)
    return based if set(based.values) >= set(own.values) else Samples.bare({})


def _baselines(frame: pd.DataFrame) -> pd.DataFrame:
    """The baselines in the form of measured rows without error, so that all replicates are equal."""
    rows = frame.dropna(subset="baseline")
    flat = {"value": rows["baseline"], "low": rows["baseline"], "high": rows["baseline"]}
    if "replicates" in rows:
        pairs = zip(rows["baseline"], rows["replicates"], strict=True)
        same = [None if own is None else [float(base)] * len(own) for base, own in pairs]
        flat["replicates"] = pd.Series(same, index=rows.index, dtype=object)
    return rows.assign(**flat)
