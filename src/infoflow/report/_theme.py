"""Colours and type of all figures: charts use CSS variables, so light, dark and print need no redrawing."""

import re
from typing import Any

# Series colours by slot (see `_series`), distinguishable with any colour vision, or else by dash and mark. They were
# optimised under three colour vision deficiencies: maximal distances within a family, and to all others.
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
    stops = [[int(color[index : index + 2], 16) for index in (1, 3, 5)] for color in anchors]
    shades = {}
    for step in range(RANK_STEPS):
        place = step / (RANK_STEPS - 1) * (len(stops) - 1)
        low = min(int(place), len(stops) - 2)
        mixed = [round(a + (b - a) * (place - low)) for a, b in zip(stops[low], stops[low + 1], strict=True)]
        shades[f"rank-{step}"] = "#" + "".join(f"{value:02x}" for value in mixed)
    return shades


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


def on_paper(text: str) -> str:
    """The SVG or JSON text with every CSS variable replaced by its light colour."""
    return coloured(text, LIGHT)


def coloured(text: str, palette: dict[str, str]) -> str:
    """The text with every CSS variable replaced by its colour."""
    return re.sub(r"var\(--([a-z0-9-]+)\)", lambda match: palette.get(match[1], match[0]), text)


def css_variables(palette: dict[str, str]) -> str:
    """`--ink:#1d2228;…` for a style sheet."""
    return "".join(f"--{name}:{color};" for name, color in palette.items())
