"""The table `alignment`."""

from typing import Literal

from infoflow.results import Column, TableSchema, estimate_columns

Kind = Literal["aligned", "unaligned", "shuffled", "regulariser only", "implicit", "target"]
"""The subject of a row of the table `alignment`: a mapped space, or a control."""

ALIGNMENT = TableSchema(
    name="alignment",
    version=2,
    description="How close one encoder is to another's space, on words of sentences that no map was fitted on. mse: "
    "squared distance of mapped words to their counterparts, per dimension; retrieval forward, backward: "
    "share of words that find their counterpart among all by CSLS, source to target and back; rsa, pwcca: "
    "similarity of the two spaces; average similarity, self-similarity: mean cosine of random "
    "words, and of "
    "the occurrences of a word; average similarity gap, self-similarity gap: mean distance of that curve "
    "over layers to the target's; bleu: of the encoder under the target's decoder.",
    made_by="a plan with masked-lm and translation, and [alignment] on = true, makes it",
    columns=(
        Column(name="source_model", dtype="string", unit="", description="model whose encoder is mapped"),
        Column(name="target_model", dtype="string", unit="", description="model whose encoder's space is the target"),
        Column(
            name="kind",
            dtype="string",
            unit="",
            description="aligned: encoder and map trained on the words' links; unaligned: the encoder as it was, under "
            "the best linear map; shuffled: trained on links to words of other sentences; regulariser only: trained "
            "without links; implicit: the encoder after fine-tuning under the target's decoder, with the best linear "
            "map; target: the target model itself",
        ),
        Column(
            name="states",
            dtype="string",
            unit="",
            description="mapped: top-layer states after the map; encoder: the encoder's own states, before the map",
        ),
        Column(
            name="layer",
            dtype="int64",
            unit="layer",
            description="state 0..L of the encoder (0 = embeddings); −1: all layers together",
        ),
        Column(name="metric", dtype="string", unit="", description="what is measured, see above"),
        Column(
            name="least",
            dtype="int64",
            unit="occurrences",
            description="of self-similarity: words with fewer are left out; 0 for other metrics",
        ),
        *estimate_columns(
            "see metric: squared units, share, correlation, cosine, percent",
            "the score",
            "mse: of the mean vector; retrieval: chance; rsa, pwcca: shuffled words; similarities: an isotropic space; "
            "gaps: of an isotropic space; bleu: of the source copied",
            "words; sentences for bleu",
        ),
        Column(name="signature", dtype="string", unit="", description="sacreBLEU's signature; empty for other metrics"),
    ),
)
