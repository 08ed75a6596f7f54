"""The table `evidence_flow`: by which edges, tokens and blocks an answer gets from the evidence to the mask."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from transformers import PreTrainedModel

from infoflow.corpus import FactWorld
from infoflow.foundation import UserError
from infoflow.models import Model

from ._asked import KINDS, facts_of_kind, looked_at
from ._candidates import limit_of
from ._inputs import Document, FactInputs, fact_inputs
from ._knock_out import forbidden_rows, knock_outs, removals
from ._tables import EVIDENCE_FLOW
from ._tracing import tracing_rows

FLOW_METHODS = ("knock-out", "removal", "tracing")
"""Attention that is forbidden; a token that is no key; noise, and one output restored."""


def evidence_flow(
    reader: PreTrainedModel,
    world: FactWorld,
    tokenizer: object,
    *,
    kinds: Sequence[str] = KINDS,
    documents: Sequence[Document] = ("gold", "none"),
    methods: Sequence[str] = FLOW_METHODS,
    facts: int = 128,
    seed: int = 0,
    batch: int = 64,
) -> pd.DataFrame:
    r"""What an answer loses without some attention, and what one restored output regains.

    | method    | what is done                                                              |
    |-----------|---------------------------------------------------------------------------|
    | knock-out | edges (q, k) are forbidden in all heads, in one block or from one upward  |
    | removal   | no token looks at one token, in one block or in all                       |
    | tracing   | noise on the subject's embeddings, one FFN or attention output restored   |

    | method    | value                                             | baseline                        |
    |-----------|---------------------------------------------------|---------------------------------|
    | knock-out | lost P@1, and by how many nats −log p rises       | as many random edges of the row |
    | removal   | the same                                          | a random word of the row        |
    | tracing   | probability, regained; `noise`: lost by the noise | a random word; other words      |

    Heads are redundant, so one block alone loses little: the knock-out from a block upward is the one to read. Of an
    object of two tokens the last one is removed and restored; at the mask every mask is. Noise has 3 standard
    deviations of the word embeddings, in question and evidence; what is restored is as in the run without noise.

    Args:
        reader: A masked LM.
        world: Whose facts are asked for.
        tokenizer: The world's.
        kinds: Of facts.
        documents: Which ones; "none" has no evidence, so its rows are about the subject and the mask alone.
        methods: Which of the three.
        facts: At most so many of a kind.
        seed: Of the choice of facts, of random documents, edges and words, and of the noise.
        batch: Rows of a forward pass, each of them for several edits at a time.

    Raises:
        UserError: The reader is no masked LM, no fact is left, or a method is unknown.

    Source: knock-outs [@geva2023dissecting]; removal [@voita2019evolution]; tracing [@meng2022locating].
    """
    if strange := [method for method in methods if method not in FLOW_METHODS]:
        raise UserError(f"methods must be among {', '.join(FLOW_METHODS)}. Got {strange[0]}.")
    model, rows = looked_at(reader), list[dict[str, Any]]()
    for kind in kinds:
        chosen = facts_of_kind(world, kind, facts, seed)
        for document in documents:
            inputs = fact_inputs(world, tokenizer, chosen, document, limit=limit_of(reader), seed=seed)
            for method in methods:
                keys = {"facts": kind, "document": document, "method": method}
                rows += _rows(keys, model, inputs, seed, batch)
    return EVIDENCE_FLOW.conform(pd.DataFrame(rows))


def _rows(keys: dict[str, Any], model: Model, inputs: FactInputs, seed: int, batch: int) -> list[dict[str, Any]]:
    if keys["method"] == "tracing":
        return tracing_rows(keys, model, inputs, seed, batch)
    tried = knock_outs if keys["method"] == "knock-out" else removals
    return forbidden_rows(keys, model, inputs, tried(inputs, len(model.anatomy.reads.layers), seed), batch)
