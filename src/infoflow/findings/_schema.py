"""The table of findings."""

from infoflow.results import Column, TableSchema


def _text(name: str, description: str) -> Column:
    return Column(name=name, dtype="string", unit="", description=description)


def _number(name: str, description: str) -> Column:
    return Column(name=name, dtype="float64", unit="see unit", description=description)


FINDINGS_TABLE = TableSchema(
    name="findings",
    version=5,
    description="Published claims, each tested on this run: effect, interval, control and verdict.",
    columns=(
        _text("id", "room and number of the claim"),
        _text("claim", "the claim in plain words"),
        _text("model", "name of the external model; empty: the models of a study"),
        _text("architecture", "architecture of the models that it was tested on"),
        Column(
            name="update",
            dtype="int64",
            unit="updates",
            description="how many the models had; -1: all. Controls before training are of the same architecture",
        ),
        _text("verdict", "holds, fails, undetermined (interval includes the threshold) or not testable here"),
        _number("effect", "estimate of the condition that decides the verdict; NaN where nothing was measured"),
        _number("low", "lower end of its 95% interval: see covers"),
        _number("high", "upper end of its 95% interval"),
        _text(
            "covers",
            "what the interval covers: seeds and sentences, sentences (one seed), or seeds; empty: none",
        ),
        _number("threshold", "value that the interval must lie beyond; the reason gives the side"),
        _text("unit", "unit of effect, interval, threshold and control"),
        _number("control", "the same number in the control, where the effect should be absent: see control_name"),
        _text("control_name", "what the control is"),
        _text("published", "the source's own numbers"),
        _text(
            "source",
            "where the claim was published; a source that begins with “ours” was the basis of our claim but does "
            "not state it",
        ),
        _text(
            "source_read",
            "how much of the source was read: whole, numbers only, abstract, second hand; empty: no source",
        ),
        _text("reason", "what decided the verdict, in one or two sentences"),
        _text("tables", "the tables that were read, comma separated"),
        Column(name="seeds", dtype="int64", unit="seeds", description="number of seeds behind the effect"),
        Column(
            name="seeds_needed",
            dtype="int64",
            unit="seeds",
            description="approximate number of seeds with this spread that would decide it; above 1000: no "
            "number would; "
            "0: decided, or unknown",
        ),
        Column(
            name="effects",
            dtype="list<float64>",
            unit="see unit",
            description="the effect of each seed alone, in the order of the seeds",
        ),
        _text("note", "every condition and every control with its numbers, separated by newlines"),
    ),
)
