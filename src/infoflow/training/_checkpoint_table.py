"""The table of the checkpoints themselves."""

from infoflow.results import Column, TableSchema

_NATS = "nats per token"

CHECKPOINTS = TableSchema(
    name="checkpoints",
    version=1,
    description="The checkpoints of a training: their origin and what they record about themselves.",
    over_training=True,
    columns=(
        Column(name="name", dtype="string", unit="", description="its folder or revision"),
        Column(name="revision", dtype="string", unit="", description='repository@branch on the hub; "": a folder'),
        Column(name="commit", dtype="string", unit="", description='of the repository; "": a folder'),
        Column(name="sha256", dtype="string", unit="", description="of its files of weights, in the order of names"),
        Column(name="bytes", dtype="int64", unit="bytes", description="of its files of weights"),
        Column(name="dtype", dtype="string", unit="", description="of most of its stored weights; read as float32"),
        Column(
            name="lr", dtype="float64", unit="", description="learning rate as recorded by its training; NaN: unknown"
        ),
        Column(
            name="training_loss", dtype="float64", unit=_NATS, description="as recorded by its training; NaN: unknown"
        ),
        Column(
            name="validation_loss", dtype="float64", unit=_NATS, description="as recorded by its training; NaN: unknown"
        ),
        Column(
            name="sample_loss",
            dtype="float64",
            unit=_NATS,
            description="on a few of the sentences, uncorrupted, the same at each checkpoint; NaN: no token",
        ),
        Column(
            name="skipped",
            dtype="float64",
            unit="updates",
            description="updates that its training had skipped so far, as recorded; NaN: unknown",
        ),
        Column(
            name="excluded", dtype="bool", unit="", description="left out of the other tables, see checkpoint_checks"
        ),
    ),
)
