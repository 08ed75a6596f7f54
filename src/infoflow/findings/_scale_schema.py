"""The tables of a comparison over scale."""

from dataclasses import replace

from infoflow.results import Column, TableSchema

from ._schema import FINDINGS_TABLE

FINDINGS_OVER_SCALE = TableSchema(
    name="findings_over_scale",
    version=1,
    description="Published claims, each tested on every run of a grid of scales, at the end of training and at each "
    "checkpoint; one row per condition of a claim. A claim has one `followed` condition per run and "
    "update.",
    columns=(
        Column(name="id", dtype="string", unit="", description="room and number of the claim"),
        Column(name="claim", dtype="string", unit="", description="the claim in plain words"),
        Column(name="architecture", dtype="string", unit="", description="family of the blocks of the models"),
        Column(name="run", dtype="string", unit="", description="name of the run's folder"),
        Column(name="corpus", dtype="string", unit="", description="what its models were trained on"),
        Column(name="width", dtype="int64", unit="units", description="of the states"),
        Column(
            name="layers",
            dtype="int64",
            unit="layers",
            description="of a stack; of an encoder beside a decoder, its own",
        ),
        Column(name="decoder_layers", dtype="int64", unit="layers", description="of a decoder beside an encoder"),
        Column(
            name="update",
            dtype="int64",
            unit="updates",
            description="how many the models had; -1: all. Checkpoints are measured in less text",
        ),
        Column(
            name="tokens",
            dtype="float64",
            unit="tokens",
            description="of the source that the claim's models had read until then",
        ),
        Column(name="updates", dtype="float64", unit="updates", description="of the whole training"),
        Column(
            name="parameters",
            dtype="float64",
            unit="parameters",
            description="mean over the claim's models, as the next two",
        ),
        Column(name="flops", dtype="float64", unit="operations", description="of the whole training; NaN: not counted"),
        Column(name="cpu_seconds", dtype="float64", unit="s", description="of the whole training; NaN: not on record"),
        Column(
            name="condition",
            dtype="string",
            unit="",
            description="condition of the claim that the effect belongs to; empty: nothing was measured",
        ),
        Column(
            name="followed",
            dtype="bool",
            unit="",
            description="the claim's condition that decides its verdict in most runs",
        ),
        Column(name="decides", dtype="bool", unit="", description="this condition decides the verdict here"),
        Column(
            name="verdict", dtype="string", unit="", description="of the claim, by all its conditions: see findings"
        ),
        Column(name="effect", dtype="float64", unit="see unit", description="estimate of the condition"),
        Column(name="low", dtype="float64", unit="see unit", description="lower end of its 95% interval"),
        Column(name="high", dtype="float64", unit="see unit", description="upper end of its 95% interval"),
        Column(
            name="seed_error",
            dtype="float64",
            unit="see unit",
            description="standard error by the choice of seeds; NaN: not known (one seed)",
        ),
        Column(
            name="sentence_error",
            dtype="float64",
            unit="see unit",
            description="the same by sentences, beyond what the spread of seeds holds",
        ),
        Column(name="threshold", dtype="float64", unit="see unit", description="what the effect must lie beyond"),
        Column(name="above", dtype="bool", unit="", description="the claim says above; false: below"),
        Column(
            name="published",
            dtype="float64",
            unit="see unit",
            description="the same number by the source's own; NaN: it gives none",
        ),
        Column(name="unit", dtype="string", unit="", description="unit of the effect"),
        Column(name="seeds", dtype="int64", unit="seeds", description="number of seeds behind the effect"),
        Column(
            name="effects",
            dtype="list<float64>",
            unit="see unit",
            description="the effect of each seed alone, in the order of the seeds",
        ),
        Column(name="reason", dtype="string", unit="", description="what decided the verdict, or why there is none"),
    ),
)


_RUN = Column(name="run", dtype="string", unit="", description="name of the run that this row is of")

FINDINGS_BY_RUN = replace(
    FINDINGS_TABLE,
    name="findings_by_run",
    version=2,
    description="Published claims, each tested on every compared run at the end of its trainings.",
    columns=(*FINDINGS_TABLE.columns, _RUN),
)

FINDINGS_AT_SCALE = replace(
    FINDINGS_TABLE,
    declare=False,
    description="Published claims, each as tested on the largest run that can test it, and how its effect changes over "
    "all runs.",
    columns=(
        *FINDINGS_TABLE.columns,
        _RUN,
        Column(
            name="trend",
            dtype="string",
            unit="",
            description="of the condition that is followed: see the tables findings_over_scale, trends",
        ),
    ),
)
