"""Tables of subjects that the core or several subjects read."""

from ._schema import Column, TableSchema, estimate_columns

PROBE_SCORES = TableSchema(
    name="probe_scores",
    version=4,
    description="How well a probe trained on the frozen states of a layer predicts the labels of a task on unseen "
    "sentences; the control task gives random labels to word types.",
    made_by="a plan with tasks in [probing] makes it",
    columns=(
        Column("task", "string", "", "name of the task"),
        Column("unit", "string", "", "what is labelled: token, span, pair or sentence"),
        Column("probe", "string", "", "linear; mlp: with one hidden layer"),
        Column("stack", "string", "", "encoder or decoder: the one that reads the text"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column(
            "labels",
            "string",
            "",
            "task; control: every word type has one label, drawn from the task's distribution; for "
            "arcs, one head, drawn from the word itself, the first and the last word",
        ),
        Column(
            "words", "string", "", "all; seen, unseen: test examples whose type is, or is not, in the training part"
        ),
        Column(
            "metric",
            "string",
            "",
            "accuracy; macro_f1: F1 averaged over the classes of the test part; selectivity: accuracy on "
            "the task minus accuracy on the control",
        ),
        Column("share", "float64", "", "share of the training sentences that the probe saw"),
        Column("training", "int64", "examples", "number of examples that the task's probe saw"),
        Column("capacity", "int64", "parameters", "of one probe"),
        Column("dropout", "float64", "", "dropout on the input of the probe's last layer"),
        Column("weight_decay", "float64", "", "weight decay of the probe"),
        Column(
            "corrupted",
            "float64",
            "",
            "share of the examples whose types get the control's label; the others keep the task's",
        ),
        *estimate_columns(
            "share of examples; for selectivity, difference of shares",
            "the metric, mean over the probe's seeds",
            "the most frequent label of the training part",
            "test examples",
        ),
        Column(
            "untaught", "int64", "examples", "test examples whose label the training part lacks: they count as errors"
        ),
        Column("seed_sd", "float64", "as value", "standard deviation over the probe's seeds"),
        Column("seeds", "int64", "", "number of probes averaged over"),
    ),
)
RETRIEVAL_SCORES = TableSchema(
    name="retrieval_scores",
    version=2,
    description="How well passages are found: one row per system, group of queries, metric and cut-off. hit: share of "
    "queries with a relevant passage among the first k; recall: share of the relevant passages that are found; mrr: "
    "mean of 1 / rank of the first one; collapse: entropy of the passages found over all queries, as a share of the "
    "entropy of all passages; nothing_found: share of queries without any passage; em, f1: scores of the answers. For "
    "a study's models: training_p1: P@1 on training queries with the model's own candidates; learned: 1 where it "
    "exceeds a guess by more than .05.",
    made_by="a plan with [retrieval] on = true makes it",
    columns=(
        Column("system", "string", "", "bm25, dense, ...; random: passages drawn; oracle: relevant passages first"),
        Column("queries", "string", "", "which queries: all, a kind of fact, ..."),
        Column("metric", "string", "", "see above"),
        Column("k", "int64", "passages", "number of first passages that count; 0: all that were found"),
        *estimate_columns("share", "mean over queries", "the same for passages drawn at random", "queries"),
    ),
)
QUERY_LEAKAGE = TableSchema(
    name="query_leakage",
    description="Test questions that also occur among the training queries: one row for each of the first ten.",
    columns=(
        Column("questions", "int64", "questions", "number of test questions"),
        Column("leaked", "int64", "questions", "number of test questions that were asked or answered in training"),
        Column("question", "string", "", "a leaked question; empty: there is none"),
        Column("query", "string", "", "the training query that leaks it"),
    ),
)
RETRIEVAL_LEARNING = TableSchema(
    name="retrieval_learning",
    description="Parts of the log-likelihood at each update of a model with passages, log p(y|x) = reader term − "
    "retriever term: means over the queries that were read with a passage. Also the age of the index and, at a "
    "refresh, the overlap of the stale and the fresh index in the top k of fixed queries.",
    columns=(
        Column("update", "int64", "updates", "number of the update in the run, from 1"),
        Column("queries", "int64", "queries", "number of queries read with a passage in this update"),
        Column("reader_term", "float64", "nats", "posterior mean of log p(y|z,x)"),
        Column("retriever_term", "float64", "nats", "divergence of the posterior over passages from the prior"),
        Column("utility_passage", "float64", "nats", "retrieval utility, averaged over a query's passages"),
        Column("utility_marginal", "float64", "nats", "log p(y|x) minus log p(y|∅,x)"),
        Column("null_prior", "float64", "probability", "prior probability of the null passage"),
        Column("age", "int64", "updates", "age of the index; −1: there is no index"),
        Column("overlap", "float64", "share", "overlap of the stale and the fresh top k; NaN: no refresh"),
    ),
)
