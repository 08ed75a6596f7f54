"""The table `evidence_flow`: the edges, tokens and blocks through which an answer travels from evidence to mask."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from transformers import PreTrainedModel

from infoflow.corpus import FactWorld
from infoflow.foundation import UserError
from infoflow.models import Model

from ..models import Library, RetrievalModel
from ._asked import READ_KINDS, asked_by_kind, looked_at
from ._inputs import Document, FactInputs
from ._knock_out import forbidden_rows, knock_outs, removals
from ._readings import reader_of
from ._tables import EVIDENCE_FLOW
from ._tracing import mention_noise, subject_noise, tracing_rows

_MENTIONS = "tracing every mention"
FLOW_METHODS = ("knock-out", "removal", "tracing", _MENTIONS)
"""Forbidden attention edges; a removed key token; noise with one output restored; noise on all mentions."""


def evidence_flow(
    reader: RetrievalModel | PreTrainedModel,
    world: FactWorld,
    tokenizer: object,
    *,
    kinds: Sequence[str] = READ_KINDS,
    documents: Sequence[Document] = ("gold", "none"),
    methods: Sequence[str] = FLOW_METHODS,
    facts: int = 128,
    seed: int = 0,
    batch: int = 64,
    library: Library | None = None,
) -> pd.DataFrame:
    r"""What an answer loses without some attention, and what one restored output regains.

    | method                | what is done                                                              |
    |-----------------------|---------------------------------------------------------------------------|
    | knock-out             | edges (q, k) are forbidden in all heads, in one block or from one upward  |
    | removal               | no token looks at one token, in one block or in all                       |
    | tracing               | noise on the subject's embeddings, one FFN or attention output restored   |
    | tracing every mention | the same with noise wherever the passage names the subject                |

    | method    | value                                             | baseline                        |
    |-----------|---------------------------------------------------|---------------------------------|
    | knock-out | lost P@1, and by how many nats −log p rises       | as many random edges of the row |
    | removal   | the same                                          | a random word of the row        |
    | tracing   | probability, regained; `noise`: lost by the noise | a random word; other words      |

    Heads are redundant, so one block alone loses little: prefer the knock-out from a block upward. For an object of two
    tokens, the last one is removed and restored; at the mask, all masks are. Noise has 3 standard deviations of the
    word embeddings, in question and evidence; restored outputs come from the run without noise. A passage about one
    entity names the subject in every sentence, and "tracing" leaves sentences that do not answer unchanged; if there
    are none, "tracing every mention" has no rows.

    Every number is given for all facts of a kind (`weight` −1) and for each exposure. Knock-outs of a passage without
    the answer (random, or retrieved by mistake) are a control.

    Args:
        reader: A masked LM, or a `RetrievalModel`, which also has the document retrieved.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts.
        documents: Documents to use; "none" has no evidence, so its rows are about the subject and the mask only. Kinds
            of facts without such a document have no row.
        methods: Subset of the four.
        facts: Maximum number of facts per kind.
        seed: Seeds the choice of facts, random documents, edges and words, and the noise.
        batch: Rows per forward pass, each of them for several edits at a time.
        library: Its index replaces one built here for each kind; see `question_candidates`.

    Raises:
        UserError: The reader is not a masked LM, no fact is left, or a document or method is unknown.

    Source: knock-outs [@geva2023dissecting]; removal [@voita2019evolution]; tracing [@meng2022locating].
    """
    if strange := [method for method in methods if method not in FLOW_METHODS]:
        raise UserError(f"methods must be among {', '.join(FLOW_METHODS)}. Got {strange[0]}.")
    model, rows = looked_at(reader_of(reader)), list[dict[str, Any]]()
    for asked in asked_by_kind(reader, world, tokenizer, kinds, documents, facts, seed, library):
        for document in filter(asked.has, documents):
            inputs = asked.inputs(document)
            for method in methods:
                rows += _rows({"document": document, "method": method}, model, inputs, seed, batch)
    return EVIDENCE_FLOW.conform(pd.DataFrame(rows, columns=pd.Index(EVIDENCE_FLOW.column_names)))


def _rows(keys: dict[str, Any], model: Model, inputs: FactInputs, seed: int, batch: int) -> list[dict[str, Any]]:
    if keys["method"].startswith("tracing"):
        noise = subject_noise(model, inputs, seed)
        if keys["method"] == _MENTIONS:
            every = mention_noise(model, inputs, seed)
            if (every.any(axis=2) == noise.any(axis=2)).all():
                return []
            noise = every
        return tracing_rows(keys, model, inputs, noise, seed, batch)
    tried = knock_outs if keys["method"] == "knock-out" else removals
    return forbidden_rows(keys, model, inputs, tried(inputs, len(model.anatomy.reads.layers), seed), batch)
