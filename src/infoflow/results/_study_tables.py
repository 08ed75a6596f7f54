"""Tables about the models of a run: the data and cost of each, and whether it learned its task.

They are a layer below the measures, since measures, claims and figures all read them.
"""

from ._schema import Column, TableSchema, estimate_columns
from ._subject import KEYS

TASK_SCORES = TableSchema(
    name="task_scores",
    version=4,
    description="How well each model does the task it was trained for, on unseen sentences.",
    light=True,
    columns=(
        Column(name="split", dtype="string", unit="", description="part of the corpus: validation or test"),
        Column(
            name="metric",
            dtype="string",
            unit="",
            description="loss (nats per predicted token; of several terms the weighted sum, and `loss of …` for each), "
            "perplexity (exp of the loss), bleu (sacreBLEU, percent), rougeL (of what the decoder writes, 0 to 1); "
            "`… accuracy` (share of pairs judged rightly), `… AUC` (probability that a replaced token is told from "
            "another, a true pair of words from a drawn one)",
        ),
        *estimate_columns(
            "nats, 1 or percent",
            "the score",
            "the same score without context: unigram frequencies of the training text (loss, perplexity), "
            "what the encoder reads copied (bleu, rougeL; for text without spaces also one sentence for all), "
            "the more frequent answer (accuracy), a half (AUC)",
        ),
        Column(name="signature", dtype="string", unit="", description="sacreBLEU's signature; empty for losses"),
    ),
)

GIVEN_SCORES = TableSchema(
    name="given_scores",
    version=1,
    description="How well each external model predicts the tokens of the sentences that it is measured on.",
    columns=(
        Column(name="metric", dtype="string", unit="", description="loss"),
        *estimate_columns(
            "nats per token",
            "cross-entropy of the model's predictions; NaN where it has no head that predicts tokens",
            "entropy of these tokens' own frequencies",
            "tokens",
        ),
    ),
)

TRAINING_RUNS = TableSchema(
    name="training_runs",
    version=1,
    description="What each model was trained on, and what that cost.",
    columns=(
        *KEYS,
        Column(name="updates", dtype="int64", unit="updates", description="optimiser steps"),
        Column(name="source_tokens", dtype="int64", unit="tokens", description="source tokens read, padding excluded"),
        Column(name="target_tokens", dtype="int64", unit="tokens", description="target tokens read by a decoder"),
        Column(name="supervised_tokens", dtype="int64", unit="tokens", description="tokens that the loss looked at"),
        Column(name="seconds", dtype="float64", unit="s", description="wall time of training, interruptions excluded"),
        Column(name="cpu_seconds", dtype="float64", unit="s", description="CPU time of the whole training"),
        Column(name="parameters", dtype="int64", unit="", description="number of parameters"),
        Column(name="validation_loss", dtype="float64", unit="nats/token", description="loss on the validation part"),
    ),
)

LEARNING_CURVES = TableSchema(
    name="learning_curves",
    version=1,
    description="Training loss over time; each value is the mean over the updates since the previous one. "
    "Measured with "
    "dropout and the objective's own noise, so it lies above the loss of the finished model.",
    over_training=True,
    columns=(
        *KEYS,
        Column(name="step", dtype="int64", unit="updates", description="last optimiser step of the mean"),
        Column(name="source_tokens", dtype="int64", unit="tokens", description="source tokens read until then"),
        Column(name="value", dtype="float64", unit="nats per token", description="mean training loss"),
    ),
)

MATCH = TableSchema(
    name="match",
    version=1,
    description="What a comparison of models holds fixed, and what it does not.",
    made_by="infoflow study on the run's folder makes it, without training again",
    columns=(
        *KEYS,
        Column(name="parameters", dtype="int64", unit="", description="of all that was trained or taught it"),
        Column(name="measured_parameters", dtype="int64", unit="", description="of the part that is measured"),
        Column(
            name="flops",
            dtype="float64",
            unit="operations",
            description="of the whole training, forward and backward: matrix products and attention, counted on the "
            "training's own batches (`count_training_flops`)",
        ),
        Column(
            name="flops_error",
            dtype="float64",
            unit="operations",
            description="standard error of flops, which are counted on some of the updates",
        ),
        Column(name="updates", dtype="int64", unit="updates", description="optimiser steps"),
        Column(name="source_tokens", dtype="int64", unit="tokens", description="read by the stack that reads the text"),
        Column(name="target_tokens", dtype="int64", unit="tokens", description="read by a decoder beside an encoder"),
        Column(name="supervised_tokens", dtype="int64", unit="tokens", description="that the loss looked at"),
        Column(
            name="drawn_weights",
            dtype="int64",
            unit="",
            description="random initial weights of the measured part; biases, norms and what starts equal are left out",
        ),
        Column(
            name="matched_weights",
            dtype="int64",
            unit="",
            description="of these, equal bit for bit to the initial weights of a masked LM with BERT's blocks and the "
            "same seed",
        ),
        Column(name="initialisation", dtype="string", unit="", description="whether first weights match, and why"),
    ),
)

RETRIEVAL_RUNS = TableSchema(
    name="retrieval_runs",
    version=1,
    description="How each reader was trained, what it cost, and whether it learned.",
    columns=(
        *KEYS,
        Column(name="updates", dtype="int64", unit="updates", description="optimiser steps"),
        Column(name="learning_rate", dtype="float64", unit="", description="of the reader, at its peak"),
        Column(name="query_tokens", dtype="int64", unit="tokens", description="of queries, padding excluded"),
        Column(name="targets", dtype="int64", unit="tokens", description="masked tokens that the loss looked at"),
        Column(name="seconds", dtype="float64", unit="s", description="wall time of training"),
        Column(name="cpu_seconds", dtype="float64", unit="s", description="CPU time of the whole training"),
        Column(name="parameters", dtype="int64", unit="", description="of reader and retriever"),
        Column(name="training_p1", dtype="float64", unit="share", description="of training queries answered rightly"),
        Column(name="chance", dtype="float64", unit="share", description="of a guess among the relation's objects"),
        Column(name="learned", dtype="bool", unit="", description="whether it answers .05 more than a guess"),
    ),
)
