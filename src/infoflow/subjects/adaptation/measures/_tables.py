"""The tables about tuned models. In studies, the key columns of the model before tuning come first."""

from infoflow.results import Column, TableSchema, estimate_columns

METHODS = ("full", "frozen", "mix", "top", "decay", "lora")
FROZEN_METHODS = ("frozen", "mix")  # train a head on features of the pretrained body
"""Tuning methods: all weights; the head only; head and upper layers; all, lower layers slower; low-rank adapters."""
STRATEGIES = ("as-is", "continued", "task-texts", "scratch")
"""What came before tuning.

General pretraining; then further pretraining on the domain; then on the task's own unlabelled texts; or pretraining on
the domain alone, with its own vocabulary.
"""

TUNED = (
    Column(name="task", dtype="string", unit="", description="name of the task"),
    Column(name="shape", dtype="string", unit="", description="classification, regression, tagging, span, ..."),
    Column(name="strategy", dtype="string", unit="", description="what came before: see STRATEGIES"),
    Column(name="method", dtype="string", unit="", description="full, frozen, mix, top, decay or lora: see METHODS"),
    Column(name="examples", dtype="int64", unit="examples", description="labelled examples that it was tuned on"),
    Column(name="control", dtype="string", unit="", description='"": none; shuffled-labels: labels changed places'),
)
"""Columns that describe the tuning; several seeds of tuning are averaged, or are rows of `tuning_seed`."""
TUNING_SEED = Column(name="tuning_seed", dtype="int64", unit="", description="seed of head, data order and dropout")
"""The column of the seed of one tuning: of its new head, the order of the data and dropout."""
_LAYER = Column(name="layer", dtype="int64", unit="", description="state, 0: embeddings; of the tuned stack")
_STACK = Column(name="stack", dtype="string", unit="", description="encoder or decoder")
_HEAD = (
    _STACK,
    Column(name="kind", dtype="string", unit="", description="self or cross"),
    Column(name="layer", dtype="int64", unit="", description="block, from 0"),
    Column(name="head", dtype="int64", unit="", description="head, from 0"),
)

TASK_SCORES = TableSchema(
    name="tuned_scores",  # a study's `task_scores` are about pretraining
    version=3,
    description="How well tuned models do: one row per metric, part and tuning seed.",
    made_by="a plan with tables [[tune]] makes it",
    columns=(
        *TUNED,
        TUNING_SEED,
        Column(name="part", dtype="string", unit="", description="dev or test"),
        Column(name="metric", dtype="string", unit="", description="accuracy, macro_f1, matthews, pearson, f1, ..."),
        Column(name="main", dtype="bool", unit="", description="whether it is the task's main metric"),
        Column(name="learning_rate", dtype="float64", unit="", description="peak, chosen on dev"),
        Column(name="updates", dtype="int64", unit="updates", description="optimiser steps of tuning"),
        *estimate_columns("score", "the metric, 1 the best", "the best guess without a model", "examples"),
    ),
)
TASK_ANSWERS = TableSchema(
    name="task_answers",
    version=1,
    description="What tuned models answer on some test examples, the same for every model.",
    columns=(
        *TUNED,
        TUNING_SEED,
        Column(name="example", dtype="int64", unit="", description="row of the test part"),
        Column(name="text", dtype="string", unit="", description="what is read, shortened"),
        Column(name="wanted", dtype="string", unit="", description="the right answer"),
        Column(name="said", dtype="string", unit="", description="the model's answer"),
        Column(name="probability", dtype="float64", unit="", description="of the answer, as the model has it"),
        Column(name="right", dtype="bool", unit="", description="whether the answer is right; false of every number"),
    ),
)
TUNING_CHANGE = TableSchema(
    name="tuning_change",
    version=1,
    description="How far tuning moved each layer's space, on the task's test texts.",
    made_by="a plan with tables [[tune]] makes it",
    columns=(
        *TUNED,
        _STACK,
        _LAYER,
        Column(name="measure", dtype="string", unit="", description="pwcca, cka or rsa"),
        *estimate_columns(
            "distance", "1 − similarity of the state before and after tuning", "between two seeds", "words"
        ),
    ),
)
TUNING_WEIGHTS = TableSchema(
    name="tuning_weights",
    version=1,
    description="How far tuning moved the weights.",
    columns=(
        *TUNED,
        TUNING_SEED,
        _STACK,
        Column(name="layer", dtype="int64", unit="", description="block, from 0; -1: embeddings"),
        Column(name="component", dtype="string", unit="", description="as in the anatomy: query, key, mlp_in, ..."),
        Column(name="parameters", dtype="int64", unit="", description="how many weights"),
        Column(name="relative", dtype="float64", unit="", description="norm of the change over norm before"),
        Column(name="cosine", dtype="float64", unit="", description="between the weights before and after"),
    ),
)
TUNING_HEADS = TableSchema(
    name="tuning_heads",
    version=2,
    description="How tuning changed each attention head: its attention, role and importance before and after.",
    made_by="a plan with tables [[tune]] makes it",
    columns=(
        *TUNED,
        *_HEAD,
        Column(name="js", dtype="float64", unit="nats", description="Jensen–Shannon divergence of its attention"),
        Column(name="js_low", dtype="float64", unit="nats", description="lower end of the 95% interval"),
        Column(name="js_high", dtype="float64", unit="nats", description="upper end"),
        Column(name="confidence_before", dtype="float64", unit="", description="mean largest weight, before"),
        Column(name="confidence_after", dtype="float64", unit="", description="after"),
        Column(
            name="role_before", dtype="string", unit="", description='those that it holds by `head_roles`; "": none'
        ),
        Column(name="role_after", dtype="string", unit="", description='likewise; "": none'),
        Column(name="cost_before", dtype="float64", unit="nats", description="pretraining loss without it, less with"),
        *estimate_columns("nats", "task loss of the tuned model without the head, less with it", "0", "examples"),
    ),
)
LABEL_BY_LAYER = TableSchema(
    name="label_by_layer",
    version=4,
    description="In which layer the label can be read, before tuning, after tuning, and in the untrained model.",
    columns=(
        *TUNED,
        _STACK,
        _LAYER,
        Column(name="state", dtype="string", unit="", description="before, after or untrained"),
        Column(name="metric", dtype="string", unit="", description="accuracy of a linear probe; or information"),
        *estimate_columns("share or nats", "of the metric", "majority class; shuffled labels", "examples"),
    ),
)
PROBES_AFTER_TUNING = TableSchema(
    name="probes_after_tuning",
    version=2,
    description="What linguistic probes lose and gain by tuning.",
    columns=(
        *TUNED,
        Column(name="probe", dtype="string", unit="", description="probing task: upos, position, ..."),
        _STACK,
        _LAYER,
        Column(name="state", dtype="string", unit="", description="before or after"),
        *estimate_columns("share", "accuracy of a linear probe", "most frequent class", "test words"),
    ),
)
LAYER_SWAPS = TableSchema(
    name="layer_swaps",
    version=5,
    description="Some layers of the tuned model reset to their weights before tuning: what the task loses, and "
    "what the "
    "pretraining objective regains.",
    made_by="a plan with tables [[tune]] makes it",
    columns=(
        *TUNED,
        Column(
            name="rewound",
            dtype="string",
            unit="",
            description="lower: embeddings and blocks below `blocks` are "
            "from before; upper: the last `blocks` and the norm above; one: block `layer` alone; all; none",
        ),
        Column(name="blocks", dtype="int64", unit="blocks", description="how many blocks are from before"),
        Column(
            name="layer",
            dtype="int64",
            unit="",
            description="the block that alone is from before, from 0, an encoder's before its decoder's; else -1",
        ),
        Column(name="quantity", dtype="string", unit="", description="score: the task's main metric; pretraining-loss"),
        *estimate_columns("score or nats", "of the quantity", "of the model before tuning", "examples or tokens"),
    ),
)
TUNING_ALLOCATION = TableSchema(
    name="tuning_allocation",
    version=1,
    description="Loss change allocation of tuning: which parts learned the task.",
    columns=(
        *TUNED,
        TUNING_SEED,
        _STACK,
        Column(name="layer", dtype="int64", unit="", description="block, from 0; -1: embeddings; -2: the task's head"),
        Column(name="component", dtype="string", unit="", description="as in the anatomy; adapter; task-head"),
        Column(name="parameters", dtype="int64", unit="", description="how many weights"),
        Column(name="value", dtype="float64", unit="nats", description="allocated change of the training loss"),
        Column(name="total", dtype="float64", unit="nats", description="change of the loss over all parameters"),
    ),
)
TASK_PRUNING = TableSchema(
    name="task_pruning",
    version=3,
    description="Score of a tuned model as heads are removed, least important first or at random.",
    columns=(
        *TUNED,
        Column(name="order", dtype="string", unit="", description="importance or random"),
        Column(name="removed", dtype="int64", unit="heads", description="heads taken away"),
        Column(name="heads", dtype="int64", unit="heads", description="heads of the model"),
        *estimate_columns("score", "the task's main metric", "without any removed", "examples"),
    ),
)
DOMAIN_LOSS = TableSchema(
    name="domain_loss",
    version=1,
    description="How well models predict in-domain and general text, before tuning.",
    made_by="a plan with tables [[tune]] and a [domain] makes it",
    columns=(
        Column(name="strategy", dtype="string", unit="", description="as-is, continued or scratch"),
        Column(name="text", dtype="string", unit="", description="domain or general"),
        *estimate_columns("nats per word", "pretraining loss, per word of the text", "frequencies alone", "words"),
    ),
)
TASK_LEAKAGE = TableSchema(
    name="task_leakage",
    version=1,
    description="Test texts of tasks that occur in the models' training data.",
    columns=(
        Column(name="task", dtype="string", unit="", description="name of the task"),
        Column(name="within", dtype="string", unit="", description="pretraining, domain or train"),
        Column(name="texts", dtype="int64", unit="texts", description="distinct test texts"),
        Column(name="same", dtype="int64", unit="texts", description="of them with the same words there"),
        Column(name="near", dtype="int64", unit="texts", description="of them equal to a text there or one word apart"),
    ),
)
