"""The tables of this package."""

from ._schema import Column, TableSchema, estimate_columns

RETRIEVAL_SCORES = TableSchema(
    name="retrieval_scores",
    version=2,
    description="How well passages are found: one row per system, group of queries, metric and cut-off. hit: share of "
    "queries with a relevant passage among the first k; recall: share of the relevant ones found; "
    "mrr: mean "
    "of 1 / rank of the first; collapse: entropy of the passages found over all queries, of the entropy of "
    "all passages; nothing_found: share of queries without any; em, f1: of answers. Of an arm of a study: "
    "training_p1, of its training queries with its own candidates; learned: 1 where that exceeds a "
    "guess by "
    "more than .05.",
    made_by="a plan that says [retrieval] on = true makes it",
    columns=(
        Column(
            name="system",
            dtype="string",
            unit="",
            description="bm25, dense, ...; random: passages drawn; oracle: relevant ones first",
        ),
        Column(name="queries", dtype="string", unit="", description="which queries: all, a kind of fact, ..."),
        Column(name="metric", dtype="string", unit="", description="see above"),
        Column(name="k", dtype="int64", unit="passages", description="how many are looked at; 0: all that were found"),
        *estimate_columns("share", "mean over queries", "the same of passages drawn at random", "queries"),
    ),
)
QUERY_LEAKAGE = TableSchema(
    name="query_leakage",
    version=1,
    description="Test questions that also occur among the training queries: one row for each of the first ten.",
    columns=(
        Column(name="questions", dtype="int64", unit="questions", description="of the test"),
        Column(name="leaked", dtype="int64", unit="questions", description="of them known from training"),
        Column(name="question", dtype="string", unit="", description="one of these; empty: there is none"),
        Column(name="query", dtype="string", unit="", description="the query of training that leaks it"),
    ),
)
RETRIEVAL_LEARNING = TableSchema(
    name="retrieval_learning",
    version=1,
    description="What each update of a model with passages was made of: log p(y|x) = reader term − retriever term, "
    "means over the queries that were read with a passage. With the index's age, and at a refresh how much of its top "
    "k on fixed queries the stale one had already.",
    columns=(
        Column(name="update", dtype="int64", unit="updates", description="of the run, from 1"),
        Column(name="queries", dtype="int64", unit="queries", description="read with a passage in this update"),
        Column(name="reader_term", dtype="float64", unit="nats", description="log p(y|z,x), posterior mean"),
        Column(name="retriever_term", dtype="float64", unit="nats", description="divergence of posterior from prior"),
        Column(name="utility_passage", dtype="float64", unit="nats", description="retrieval utility, mean passage"),
        Column(name="utility_marginal", dtype="float64", unit="nats", description="log p(y|x) over log p(y|∅,x)"),
        Column(name="null_prior", dtype="float64", unit="probability", description="of the null passage"),
        Column(name="age", dtype="int64", unit="updates", description="of the index; −1: there is none"),
        Column(name="overlap", dtype="float64", unit="share", description="of stale and fresh top k; NaN: no refresh"),
    ),
)
