"""The tables of findings and of their comparison over scale, and what the comparison keeps of each run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from infoflow.foundation import UserError
from infoflow.results import END, Column, RunFolder, TableSchema


def _text(name: str, description: str) -> Column:
    return Column(name, "string", "", description)


def _number(name: str, description: str) -> Column:
    return Column(name, "float64", "see unit", description)


FINDINGS_TABLE = TableSchema(
    name="findings",
    version=5,
    description="Published claims, each tested on this run: effect, interval, control and verdict.",
    columns=(
        _text("id", "group and number of the claim"),
        _text("claim", "the claim in plain words"),
        _text("model", "name of the external model; empty: the models of a study"),
        _text("architecture", "architecture of the models that the claim was tested on"),
        Column(
            "update",
            "int64",
            "updates",
            "updates that the models were trained for; -1: all. Untrained controls have the same architecture",
        ),
        _text("verdict", "holds, fails, undetermined (interval includes the threshold) or not testable here"),
        _number("effect", "estimate of the condition that decides the verdict; NaN where nothing was measured"),
        _number("low", "lower end of the effect's 95% interval: see covers"),
        _number("high", "upper end of its 95% interval"),
        _text("covers", "what the interval covers: seeds and sentences, sentences (one seed), or seeds; empty: none"),
        _number("threshold", "value that the interval must lie beyond; the reason gives the side"),
        _text("unit", "unit of effect, interval, threshold and control"),
        _number("control", "the same number in the control, where the effect should be absent: see control_name"),
        _text("control_name", "what the control is"),
        _text("published", "the source's own numbers"),
        _text(
            "source",
            "where the claim was published; if it begins with “infoflow: ours”, the claim is ours and goes beyond "
            "the source",
        ),
        _text(
            "source_read",
            "how much of the source was read: whole, numbers only, abstract or second hand; empty: no source",
        ),
        _text("reason", "what decided the verdict, in one or two sentences"),
        _text("tables", "the tables that were read, comma separated"),
        Column("seeds", "int64", "seeds", "number of seeds behind the effect"),
        Column(
            "seeds_needed",
            "int64",
            "seeds",
            "approximate number of seeds with this spread that would decide the claim; above 1000: no number would; 0: "
            "decided, or unknown",
        ),
        Column("effects", "list<float64>", "see unit", "the effect of each seed alone, in the order of the seeds"),
        _text("note", "every condition and every control with its numbers, separated by newlines"),
    ),
)


FINDINGS_OVER_SCALE = TableSchema(
    name="findings_over_scale",
    description="Published claims, each tested on every run of a grid of scales, at the end of training and at each "
    "checkpoint; one row per condition of a claim. A claim has one `followed` condition per run and update.",
    columns=(
        Column("id", "string", "", "group and number of the claim"),
        Column("claim", "string", "", "the claim in plain words"),
        Column("architecture", "string", "", "family of the blocks of the models"),
        Column("run", "string", "", "name of the run's folder"),
        Column("corpus", "string", "", "what its models were trained on"),
        Column("width", "int64", "units", "width of the states"),
        Column("layers", "int64", "layers", "layers of the stack; of an encoder-decoder, those of the encoder"),
        Column("decoder_layers", "int64", "layers", "layers of an encoder-decoder's decoder"),
        Column("update", "int64", "updates", "updates of training; -1: all. Checkpoints are measured on less text"),
        Column("tokens", "float64", "tokens", "source tokens that the claim's models had read by that update"),
        Column("updates", "float64", "updates", "updates of the whole training"),
        Column("parameters", "float64", "parameters", "mean over the claim's models, as are the next two columns"),
        Column("flops", "float64", "operations", "operations of the whole training; NaN: not counted"),
        Column("cpu_seconds", "float64", "s", "CPU time of the whole training; NaN: not recorded"),
        Column(
            "condition", "string", "", "condition of the claim that the effect belongs to; empty: nothing was measured"
        ),
        Column("followed", "bool", "", "whether this condition decides the claim's verdict in most runs"),
        Column("decides", "bool", "", "whether this condition decides the verdict in this row"),
        Column("verdict", "string", "", "verdict on the claim, from all its conditions: see findings"),
        Column("effect", "float64", "see unit", "estimate of the condition"),
        Column("low", "float64", "see unit", "lower end of its 95% interval"),
        Column("high", "float64", "see unit", "upper end of its 95% interval"),
        Column("seed_error", "float64", "see unit", "standard error from the choice of seeds; NaN: unknown (one seed)"),
        Column("sentence_error", "float64", "see unit", "standard error from sentences, beyond `seed_error`"),
        Column("threshold", "float64", "see unit", "value that the effect must lie beyond"),
        Column("above", "bool", "", "whether the claim says that the effect lies above the threshold"),
        Column("published", "float64", "see unit", "the effect according to the source; NaN: it gives no number"),
        Column("unit", "string", "", "unit of the effect"),
        Column("seeds", "int64", "seeds", "number of seeds behind the effect"),
        Column("effects", "list<float64>", "see unit", "the effect of each seed alone, in the order of the seeds"),
        Column("reason", "string", "", "what decided the verdict, or why there is none"),
    ),
)


_RUN = Column("run", "string", "", "name of the run that this row comes from")

FINDINGS_BY_RUN = replace(
    FINDINGS_TABLE,
    name="findings_by_run",
    version=2,
    description="Published claims, each tested on every compared run at the end of its training runs.",
    columns=(*FINDINGS_TABLE.columns, _RUN),
)

FINDINGS_AT_SCALE = replace(
    FINDINGS_TABLE,
    declare=False,
    description="Published claims, each with its verdict on the largest run that can test it and the change of its "
    "effect over all runs.",
    columns=(
        *FINDINGS_TABLE.columns,
        _RUN,
        Column("trend", "string", "", "trend of the followed condition: see findings_over_scale and trends"),
    ),
)


OVER_SCALE = "over-scale"
"""The kind of run folder that holds a comparison."""
_CLAIM = ["id", "architecture"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class JudgedRun:
    """What a comparison over scale keeps of one run, enough to repeat the comparison without the run's tables."""

    entry: Mapping[str, Any]  # the run's part of the comparison's run.json: `ScaleRun.entry`

    rows: pd.DataFrame  # its part of `FINDINGS_OVER_SCALE`

    findings: pd.DataFrame  # its part of `FINDINGS_BY_RUN`

    @property
    def name(self) -> str:
        return str(self.entry["run"])

    @property
    def weights(self) -> dict[str, str]:
        return dict(self.entry.get("weights", {}))

    @property
    def plan(self) -> Mapping[str, Any]:
        return self.entry.get("plan", {})

    @property
    def has_course(self) -> bool:
        """Whether the run has findings at checkpoints, which count as scales too."""
        return bool((self.rows["update"] != END).any())

    def costs(self) -> list[float]:
        """Training cost of the claim's models for each of its findings: tokens times parameters."""
        ends = self.rows[self.rows["update"] == END].drop_duplicates(_CLAIM).set_index(_CLAIM)
        cost = (ends["tokens"] * ends["parameters"]).fillna(0.0)
        return [float(cost[id, family]) for id, family in self.findings[_CLAIM].itertuples(index=False)]


def judged_runs(folder: RunFolder) -> list[JudgedRun]:
    again = "Compare its studies again: infoflow over-scale."
    entries = folder.read().get("runs")
    if not isinstance(entries, list) or not all(isinstance(one, dict) and "run" in one for one in entries):
        raise UserError(f"{folder.path} is damaged: its run.json does not name the runs that were compared. {again}")
    frames = {}
    for schema in (FINDINGS_OVER_SCALE, FINDINGS_BY_RUN):
        if schema.name not in folder.tables:
            raise UserError(f"{folder.path} has no table {schema.name}. {again}")
        stored = folder.tables.stored(schema.name)
        if stored.schema.version != schema.version or set(stored.frame) != set(schema.column_names):
            raise UserError(f"{folder.path} was compared by another version of infoflow. {again}")
        effects = [list(each) for each in stored.frame["effects"]]  # not arrays, since they come from a file
        frames[schema.name] = schema.conform(stored.frame.assign(effects=effects))
    scale, findings = frames[FINDINGS_OVER_SCALE.name], frames[FINDINGS_BY_RUN.name]
    found = []
    for entry in entries:
        rows = scale[scale["run"] == entry["run"]]
        if rows.empty:
            raise UserError(f"{folder.path} is damaged: it holds no findings of {entry['run']}. {again}")
        found.append(JudgedRun(entry=entry, rows=rows, findings=findings[findings["run"] == entry["run"]]))
    return found
