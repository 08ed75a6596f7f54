"""Marks that look one way where a test of their datum or of the page's parameters holds, and another way elsewhere.

Altair's `when` says the same, but looks its result up in the whole schema of Vega-Lite each time that it is used, which
takes longer than all the rest of a chart.
"""

import altair as alt


def opacity_if(test: str, then: float, otherwise: float) -> alt.OpacityValue:
    """The opacity `then` where the expression `test` holds."""
    return alt.OpacityValue(otherwise, condition=[{"test": test, "value": then}])


def color_if(test: str, then: str, otherwise: str | alt.Color) -> alt.ColorValue | alt.Color:
    """The colour `then` where the expression `test` holds, else another colour or that of a scale."""
    if isinstance(otherwise, str):
        return alt.ColorValue(otherwise, condition=[{"test": test, "value": then}])
    color = otherwise.copy()
    color["condition"] = {"test": test, "value": then}
    return color
