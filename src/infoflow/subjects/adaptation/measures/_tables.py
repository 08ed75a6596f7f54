"""The tables about tuned models. In studies, the key columns of the model before tuning come first."""

from infoflow.results import Column, TableSchema, estimate_columns

METHODS = ("full", "frozen", "mix", "top", "decay", "lora")
"""In this order, they tune all weights; the head; the head on a mix of layers; the head and upper layers; all weights,
lower layers more slowly; adapters.
"""
FROZEN_METHODS = ("frozen", "mix")  # train a head on features of the pretrained body
STRATEGIES = ("as-is", "continued", "task-texts", "scratch")
"""Pretraining before tuning.

In this order: general pretraining only; further pretraining on the domain; further pretraining on the task's own
unlabelled texts (after the domain, if that is a phase); pretraining on the domain alone, with its own vocabulary.
"""

TUNED = (
    Column("task", "string", "", "name of the task"),
    Column("shape", "string", "", "classification, regression, tagging, span, ..."),
    Column("strategy", "string", "", "pretraining before tuning: see STRATEGIES"),
    Column("method", "string", "", "full, frozen, mix, top, decay or lora: see METHODS"),
    Column("examples", "int64", "examples", "labelled examples that the model was tuned on"),
    Column("control", "string", "", '"": none; shuffled-labels: labels are permuted'),
)
"""Columns that describe the tuning; tuning seeds are either averaged, or rows with the column `tuning_seed`."""
TUNING_SEED = Column("tuning_seed", "int64", "", "seed of head, data order and dropout")
"""The column with the seed of one tuning, for its new head, the order of the data and dropout."""
_LAYER = Column("layer", "int64", "", "state of the tuned stack, 0: embeddings")
_STACK = Column("stack", "string", "", "encoder or decoder")
_HEAD = (
    _STACK,
    Column("kind", "string", "", "self or cross"),
    Column("layer", "int64", "", "block, from 0"),
    Column("head", "int64", "", "head, from 0"),
)

TASK_SCORES = TableSchema(
    name="tuned_scores",  # a study's table `task_scores` is about pretraining
    version=3,
    description="Scores of tuned models: one row per metric, part and tuning seed.",
    made_by="a plan with tables [[tune]] makes it",
    columns=(
        *TUNED,
        TUNING_SEED,
        Column("part", "string", "", "dev or test"),
        Column("metric", "string", "", "accuracy, macro_f1, matthews, pearson, f1, ..."),
        Column("main", "bool", "", "whether it is the task's main metric"),
        Column("learning_rate", "float64", "", "peak learning rate, chosen on dev"),
        Column("updates", "int64", "updates", "optimiser steps of tuning"),
        *estimate_columns("score", "the metric; 1 is best", "the best guess without a model", "examples"),
    ),
)
TASK_ANSWERS = TableSchema(
    name="task_answers",
    description="What tuned models answer on some test examples, the same for every model.",
    columns=(
        *TUNED,
        TUNING_SEED,
        Column("example", "int64", "", "row of the test part"),
        Column("text", "string", "", "text that the model reads, shortened"),
        Column("wanted", "string", "", "the right answer"),
        Column("said", "string", "", "the model's answer"),
        Column("probability", "float64", "", "the model's probability of the answer"),
        Column("right", "bool", "", "whether the answer is right; false for every number"),
    ),
)
TUNING_CHANGE = TableSchema(
    name="tuning_change",
    description="How far tuning moved each layer's space, on the task's test texts.",
    made_by="a plan with tables [[tune]] makes it",
    columns=(
        *TUNED,
        _STACK,
        _LAYER,
        Column("measure", "string", "", "pwcca, cka or rsa"),
        *estimate_columns(
            "distance", "1 − similarity of the state before and after tuning", "distance between two seeds", "words"
        ),
    ),
)
TUNING_WEIGHTS = TableSchema(
    name="tuning_weights",
    description="How far tuning moved the weights.",
    columns=(
        *TUNED,
        TUNING_SEED,
        _STACK,
        Column("layer", "int64", "", "block, from 0; -1: embeddings"),
        Column("component", "string", "", "as in the anatomy: query, key, mlp_in, ..."),
        Column("parameters", "int64", "", "how many weights"),
        Column("relative", "float64", "", "norm of the change, divided by the norm before"),
        Column("cosine", "float64", "", "cosine between the weights before and after"),
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
        Column("js", "float64", "nats", "Jensen–Shannon divergence of its attention before and after"),
        Column("js_low", "float64", "nats", "lower end of the 95% interval"),
        Column("js_high", "float64", "nats", "upper end"),
        Column("confidence_before", "float64", "", "mean largest attention weight before tuning"),
        Column("confidence_after", "float64", "", "the same after tuning"),
        Column("role_before", "string", "", 'roles of the head before tuning, by `head_roles`; "": none'),
        Column("role_after", "string", "", 'roles after tuning; "": none'),
        Column("cost_before", "float64", "nats", "pretraining loss without the head minus with it"),
        *estimate_columns("nats", "task loss of the tuned model without the head minus with it", "0", "examples"),
    ),
)
LABEL_BY_LAYER = TableSchema(
    name="label_by_layer",
    version=5,
    description="In which layer the label can be read, before tuning, after tuning, and in the untrained model.",
    columns=(
        *TUNED,
        _STACK,
        _LAYER,
        Column("state", "string", "", "before, after or untrained"),
        Column("metric", "string", "", "accuracy of a linear probe, or information"),
        *estimate_columns("share or nats", "value of the metric", "majority class; shuffled labels", "examples"),
    ),
)
PROBES_AFTER_TUNING = TableSchema(
    name="probes_after_tuning",
    version=2,
    description="What linguistic probes lose and gain by tuning.",
    columns=(
        *TUNED,
        Column("probe", "string", "", "probing task: upos, position, ..."),
        _STACK,
        _LAYER,
        Column("state", "string", "", "before or after"),
        *estimate_columns("share", "accuracy of a linear probe", "most frequent class", "test words"),
    ),
)
LAYER_SWAPS = TableSchema(
    name="layer_swaps",
    version=5,
    description="What the task loses, and what the pretraining objective regains, if some layers of the tuned model "
    "are reset to their weights before tuning.",
    made_by="a plan with tables [[tune]] makes it",
    columns=(
        *TUNED,
        Column(
            "rewound",
            "string",
            "",
            "what is reset; lower: the embeddings and the first `blocks`; "
            "upper: the last `blocks` and the norm above them; one: block `layer` alone; all; none",
        ),
        Column("blocks", "int64", "blocks", "how many blocks are reset"),
        Column(
            "layer",
            "int64",
            "",
            "the only block that is reset, from 0, an encoder's before its decoder's; otherwise -1",
        ),
        Column("quantity", "string", "", "score: the task's main metric; pretraining-loss"),
        *estimate_columns("score or nats", "value of the quantity", "model before tuning", "examples or tokens"),
    ),
)
TUNING_ALLOCATION = TableSchema(
    name="tuning_allocation",
    description="Loss change allocation of tuning: which parts learned the task.",
    columns=(
        *TUNED,
        TUNING_SEED,
        _STACK,
        Column("layer", "int64", "", "block, from 0; -1: embeddings; -2: the task's head"),
        Column("component", "string", "", "as in the anatomy; adapter; task-head"),
        Column("parameters", "int64", "", "how many weights"),
        Column("value", "float64", "nats", "allocated change of the training loss"),
        Column("total", "float64", "nats", "change of the loss over all parameters"),
    ),
)
TASK_PRUNING = TableSchema(
    name="task_pruning",
    version=3,
    description="Score of a tuned model as heads are removed, least important first or at random.",
    columns=(
        *TUNED,
        Column("order", "string", "", "importance or random"),
        Column("removed", "int64", "heads", "number of removed heads"),
        Column("heads", "int64", "heads", "number of heads of the model"),
        *estimate_columns("score", "the task's main metric", "score with all heads", "examples"),
    ),
)
DOMAIN_LOSS = TableSchema(
    name="domain_loss",
    description="How well models predict in-domain and general text, before tuning.",
    made_by="a plan with tables [[tune]] and a [domain] makes it",
    columns=(
        Column("strategy", "string", "", "as-is, continued or scratch"),
        Column("text", "string", "", "domain or general"),
        *estimate_columns("nats per word", "pretraining loss per word of the text", "unigram frequencies", "words"),
    ),
)
TASK_LEAKAGE = TableSchema(
    name="task_leakage",
    description="Test texts of tasks that occur in the models' training data.",
    columns=(
        Column("task", "string", "", "name of the task"),
        Column("within", "string", "", "pretraining, domain or train"),
        Column("texts", "int64", "texts", "distinct test texts"),
        Column("same", "int64", "texts", "number of test texts that occur there with the same words"),
        Column("near", "int64", "texts", "number of test texts equal to a text there or one word apart"),
    ),
)
