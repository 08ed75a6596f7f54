"""Colours and type of all figures; styles and names of lines, which are the same in every figure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from infoflow.objectives import OBJECTIVES, further_objectives

# Series colours by slot (see below), distinguishable with any colour vision, or else by dash and mark. They maximise
# the distances within a family, and to all other colours, under three colour vision deficiencies.
COLOURS = {
    "ink": ("#1d2228", "#e6e9ed"),
    "soft": ("#59626d", "#a3adb8"),
    "control": ("#7d858e", "#8b949e"),
    "grid": ("#e4e7eb", "#2e343b"),
    "paper": ("#ffffff", "#15181c"),
    "series-0": ("#1b4f91", "#5f9df0"),
    "series-1": ("#b8541c", "#f5a05f"),
    "series-2": ("#2f9e92", "#8ce0d2"),
    "series-3": ("#7a3e9d", "#c79be6"),
    "series-4": ("#8f6f00", "#dcc25c"),
    "series-5": ("#c23b75", "#f48fb8"),
    "series-6": ("#4d7a1f", "#a9d477"),
    "series-7": ("#3b3f8c", "#a5a9f2"),
    "series-8": ("#0a1f56", "#4263ba"),
    "series-9": ("#5a7fa4", "#b0c4f3"),
    "series-10": ("#1a95f8", "#6c85af"),
    "series-11": ("#560f00", "#b63f08"),
    "series-12": ("#e27102", "#b57660"),
    "series-13": ("#854427", "#f06b18"),
    "series-14": ("#0e745e", "#37967b"),
    "series-15": ("#054f41", "#b7fefa"),
    "series-16": ("#1e8b6e", "#60c7a6"),
    "series-17": ("#a657d4", "#8d5877"),
    "series-18": ("#400f2b", "#c193b5"),
    "series-19": ("#890f71", "#f5cefc"),
    "series-20": ("#8b34b2", "#b85bd9"),
    "series-21": ("#4d430b", "#f2fe5b"),
    "series-22": ("#96964b", "#8a941b"),
    "series-23": ("#687743", "#cdce98"),
    "series-24": ("#585500", "#667040"),
    "heat-0": ("#f3f5f7", "#20262d"),
    "heat-1": ("#8fb4d9", "#3f76b0"),
    "heat-2": ("#123a6d", "#d6e8ff"),
    "below": ("#b8541c", "#f5a05f"),
    "above": ("#1b4f91", "#5f9df0"),
}
"""Colours by name: on light and on dark paper."""
LIGHT, DARK = ({name: pair[side] for name, pair in COLOURS.items()} for side in (0, 1))
RANK_STEPS = 11
"""Shades `rank-0` to `rank-10`: frequency ranges, from the most frequent tokens to the rarest."""


def _ramp(*anchors: str) -> dict[str, str]:
    """`RANK_STEPS` colours interpolated linearly between anchors; mixed here, since charts cannot mix CSS variables."""
    stops = np.array([[int(color[index : index + 2], 16) for index in (1, 3, 5)] for color in anchors])
    places = np.linspace(0, len(stops) - 1, RANK_STEPS)
    mixed = np.stack([np.interp(places, range(len(stops)), part) for part in stops.T], axis=1).round().astype(int)
    return {f"rank-{step}": f"#{red:02x}{green:02x}{blue:02x}" for step, (red, green, blue) in enumerate(mixed)}


LIGHT |= _ramp("#77a9d6", "#2f6cad", "#0a1c3a")
DARK |= _ramp("#447ab0", "#76abe0", "#f1f8ff")
# Liberation Sans is built into the converter and has Arial's metrics: screen, SVG and PDF agree.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"


def vega_config() -> dict[str, Any]:
    """The Vega-Lite config shared by all charts."""
    text = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"}
    return {
        "background": None,
        "aria": False,  # each figure has one text summary; a label per mark would be noise
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **text,
            "labelColor": "var(--soft)",
            "titleColor": "var(--ink)",
            "domainColor": "var(--control)",
            "tickColor": "var(--control)",
            "gridColor": "var(--grid)",
            "tickSize": 4,
            "labelPadding": 4,
            "titlePadding": 6,
        },
        "axisY": {
            "titleAlign": "left",
            "titleAngle": 0,
            "titleAnchor": "start",
            "titleX": 0,
            "titleY": -10,
            "domain": False,
            "ticks": False,
        },
        "axisX": {"grid": False, "labelFlush": False, "labelSeparation": 4},
        "title": {"font": FONT, "color": "var(--ink)", "fontSize": 12, "anchor": "start", "fontWeight": "bold"},
        "legend": {**text, "labelColor": "var(--soft)", "titleColor": "var(--ink)"},
        "text": {"font": FONT, "fontSize": 11},
    }


def coloured(text: str, palette: Mapping[str, str] = LIGHT) -> str:
    """The SVG or JSON text with every CSS variable replaced by its colour, by default the colour for print."""
    return re.sub(r"var\(--([a-z0-9-]+)\)", lambda match: palette.get(match[1], match[0]), text)


def css_variables(palette: dict[str, str]) -> str:
    """The palette as CSS variables, `--ink:#1d2228;…`, for a style sheet."""
    return "".join(f"--{name}:{color};" for name, color in palette.items())


# Styles and names of lines: a colour, dash and mark per objective, the same in every figure.

FAMILIES: dict[str, tuple[int, ...]] = {
    "predict next": (0, 8, 9, 10),
    "fill in": (1, 11, 12, 13),
    "translate": (2, 14, 15, 16),
    "discriminate": (17, 18, 19, 20),
    "reconstruct": (21, 22, 23, 24),
}
"""Palette slots (see above): objectives of a family share a hue, and differ in lightness, dash and mark."""
_HUES = {"static": "discriminate"}  # families that share another's hue
_OTHERS = (3, 4, 5, 6, 7)  # for models and objectives without a family
NUM_SLOTS = len(_OTHERS) + sum(map(len, FAMILIES.values()))
_SAME = {"seq2seq": "translation"}  # a task of external models → the objective of that name here
# Words that reveal the family of objectives outside the registry, such as those of models from a hub.
_FAMILY_WORDS = {
    "predict next": ("causal", "next-token", "prefix-lm", "permut", "autoregress"),
    "fill in": ("mask", "mlm", "span", "infill", "cloze", "t5", "electra-generator"),
    "translate": ("translat", "seq2seq", "summar"),
    "discriminate": ("discriminat", "replaced", "electra", "next-sentence", "sentence-order", "contrast"),
    "reconstruct": ("denois", "bart", "autoencod"),
    "static": ("skip-gram", "cbow", "static-", "word2vec", "fasttext", "glove"),
}
_LABELS = {
    "causal-lm": "causal LM",
    "masked-lm": "masked LM",
    "masked-lm-nsp": "masked LM and next sentence",
    "masked-lm-sop": "masked LM and sentence order",
    "spanbert": "SpanBERT",
    "electra": "ELECTRA",
    "prefix-lm": "prefix LM",
    "prefix-lm-decoder": "single-stack prefix LM",
    "seq2seq-lm": "decoder-only LM",
    "denoise-full": "denoising",
    "denoise-mask": "denoising of masks",
    "replace-spans": "replaced tokens",
    "drop-tokens": "dropped tokens",
    "span-corruption": "span corruption",
    "mass": "MASS",
    "bart": "BART",
    "bilm": "biLM",
    "seq2seq": "sequence-to-sequence",
    "closed-book": "closed book",
    "read-gold": "right passage given",
    "read-random": "random passage given",
    "retrieve-bm25": "BM25",
    "retrieve-frozen": "frozen retriever",
    "retrieve-learned": "learned retriever",
}
_VARIANTS = {
    "null-share": "with the null share only",
    "cold": "without warm start",
    "stale": "with a stale index",
    "random-token": "and random tokens masked",
    "random-span": "and random spans masked",
    "same-wording": "in shared words",
    "pairs": "about two entities",
    "token-level": "summed out at tokens",
    "rag-sequence": "that writes",
    "rag-token": "that writes, by token",
    "exchange-both": "with both parts trained",
    "exchange-reader": "with its reader trained",
    "exchange-retriever": "with its retriever trained",
    "exchange-neither": "with neither part trained",
}
"""Variants of models with passages."""
_SLOTS = {"retrieve-learned": 2}  # for names whose next free colour is too close to another
_DASHES = ((1, 0), (9, 3), (3, 2), (12, 3, 3, 3), (6, 2, 1, 2), (14, 5), (2, 4), (8, 2, 2, 2, 2, 2))
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Style and name of a chart's line."""

    key: str
    label: str
    slot: int
    second_slot: int | None = None  # for a pair of models: its line has two colours
    style: int | None = None  # overrides the slot's dash and mark
    solid: bool = False  # never dashed, whatever the style

    @property
    def color(self) -> str:
        return f"var(--series-{self.slot})"

    @property
    def second_color(self) -> str | None:
        return None if self.second_slot is None else f"var(--series-{self.second_slot})"

    @property
    def dash(self) -> tuple[int, ...]:
        return (1, 0) if self.solid or self.second_slot is not None else _DASHES[self._style % len(_DASHES)]

    @property
    def shape(self) -> str:
        return _SHAPES[self._style % len(_SHAPES)]

    @property
    def _style(self) -> int:
        return own_style(self.slot) if self.style is None else self.style


def own_style(slot: int) -> int:
    """Index of a slot's dash and mark; similar colours get different ones."""
    for family, slots in enumerate(FAMILIES.values()):
        if slot in slots:
            return family + 3 * slots.index(slot)
    return slot


def objective_label(objective: str, variant: str = "") -> str:
    """The objective's name in running text, with its variant."""
    label = _LABELS.get(objective, objective)
    stated = _VARIANTS.get(variant) if objective in further_objectives() else None
    return f"{label} {stated or 'with ' + variant.replace('-', ' ')}" if variant else label


def order_of(objective: str) -> float:
    """Position of an objective's line: in registry order, then by family, then the rest."""
    objective = _SAME.get(objective, objective)
    if objective in OBJECTIVES:
        return list(OBJECTIVES).index(objective)
    if objective in further_objectives():
        return 500 + list(further_objectives()).index(objective)
    hue = _hue(objective)
    return 1000 + (list(FAMILIES).index(hue) if hue else len(FAMILIES))


def _hue(objective: str) -> str:
    """The family that gives an objective its hue, as declared or from its name; "" if unknown."""
    known = OBJECTIVES.get(objective)
    words = (family for family, words in _FAMILY_WORDS.items() if any(word in objective for word in words))
    family = known.family if known else next(words, "")
    return _HUES.get(family, family)


def _own_slot(objective: str) -> int | None:
    """A registered objective's fixed slot: a shade of its hue, by its position in the registry."""
    objective = _SAME.get(objective, objective)
    if objective not in OBJECTIVES:
        return _SLOTS.get(objective)
    hue = _hue(objective)
    shades = FAMILIES[hue]
    return shades[[name for name in OBJECTIVES if _hue(name) == hue].index(objective) % len(shades)]


def assign_slots(objectives: list[str], several: bool) -> list[int]:
    """Assign slots: the objective's own, else one of its family's, else the next free one.

    With `several`, repeated objectives are variants in the same colour; otherwise each line has its own.
    """
    taken: list[int] = []
    owned = {name: _own_slot(name) for name in objectives}
    known: dict[str, int] = {}
    for name in objectives:
        slot = known.get(name) if several else None
        if slot is None and (slot := owned[name]) in (None, *taken):
            wanted = [each for each in _slots_for(name, several) if each not in taken]
            free = [each for each in wanted if each not in owned.values()] or wanted
            slot = free[0] if free else len(taken) % NUM_SLOTS
            if several and name in OBJECTIVES and slot not in (own := FAMILIES[_hue(name)]):
                slot = min(own, key=taken.count)  # more members than shades: reuse one, with another mark
        assert slot is not None
        known[name] = slot
        taken.append(slot)
    return taken


def _slots_for(objective: str, several: bool) -> list[int]:
    """Slots of the objective's family, then all others; for external models, the most distinct colours first."""
    own = FAMILIES.get(_hue(objective), ()) if several else ()
    return [*own, *(range(8) if not several else _OTHERS), *range(8, NUM_SLOTS)]
