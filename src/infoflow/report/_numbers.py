"""Numbers in words: rounded to the precision of their interval, with a true minus sign."""

import math

from ._samples import Estimate


def decimals(low: float, high: float, value: float = 1.0) -> int:
    """Decimals that keep one significant digit of the interval's half-width (two if that digit is 1).

    Without an interval: three significant digits of `value`.
    """
    half = (high - low) / 2
    if not math.isfinite(half) or half <= 0:
        size = abs(value) if math.isfinite(value) and value else 1.0
        return min(max(2 - math.floor(math.log10(size)), 0), 4)
    exponent = math.floor(math.log10(half))
    leading = half / 10**exponent
    return min(max(-exponent + (1 if leading < 2 else 0), 0), 6)


def number(value: float, places: int | None = None) -> str:
    """`value` with that many decimals and thousands separators; "–" for a missing value.

    Without `places`: at most three significant digits, no trailing zeros.
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:,.{decimals(math.nan, math.nan, value) if places is None else places}f}"
    if places is None and "." in text:
        text = text.rstrip("0").rstrip(".")
    if not text.strip("-0.,"):
        text = text.lstrip("-")
    return text.replace("-", "−")


def two_digits(value: float) -> str:
    """`value` to two significant digits, for values without an interval or rough sizes."""
    return number(float(f"{value:.2g}"))


def estimate_text(estimate: Estimate, unit: str = "") -> str:
    """`1.33 nats (95% interval 1.28 to 1.37)`, or only the number if there is no interval."""
    places = decimals(estimate.low, estimate.high, estimate.value)
    text = f"{number(estimate.value, places)}{_spaced(unit)}"
    if not estimate.has_interval:
        return text
    return f"{text} ({number(estimate.low, places)} to {number(estimate.high, places)})"


def size_text(estimate: Estimate, unit: str = "") -> str:
    """Like `estimate_text`, for a change whose verb gives the direction: without signs."""
    if estimate.value >= 0:
        return estimate_text(estimate, unit)
    return estimate_text(estimate.negated(), unit)


def count_text(count: float) -> str:
    """`92,397`, or `3.0 million` from a million up."""
    if count is None or not math.isfinite(count):
        return "–"
    return f"{count / 1e6:,.1f} million" if count >= 1e6 else f"{count:,.0f}"


def duration_text(seconds: float) -> str:
    """`12 s`, `8 min`, `1 h 12 min`."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def counted(number: int, noun: str) -> str:
    """Count with its noun, such as "1 run", "2 runs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(items: list[str]) -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def _spaced(unit: str) -> str:
    return f" {unit}" if unit else ""
