"""Whether a state's neighbours have the same tag: a syntactic category, a part of speech, a relation."""

from typing import ClassVar

import pandas as pd

from infoflow.flow import TokenSample
from infoflow.results import Column, TableSchema, estimate_columns

from ._token_pools import SETTINGS, AbstractTokenPools, tag_key

TAG_NEIGHBOURS = TableSchema(
    name="tag_neighbours",
    version=3,
    description="Fraction of the nearest occurrences of the same token whose word has the same tag.",
    made_by="it needs a corpus with tags, such as grammar, a CoNLL-U treebank or a .tagged file, and a plan that "
    "does not leave it out",
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings"),
        Column(name="tag", dtype="string", unit="", description="column of the corpus, such as ccg_left or upos"),
        *estimate_columns(
            "fraction",
            "fraction of neighbours with the same tag",
            "random neighbours: Σp² within a token, averaged in the same way",
        ),
        *SETTINGS,
        Column(name="subword", dtype="string", unit="", description="which token of a word carries its tag"),
    ),
)


class TagNeighbours(AbstractTokenPools):
    """How much syntax a layer adds to a token: `within_token_agreement` with its word's tag as label.

    Every tag column of the corpus is used. A word's tag is carried by its first subword, or its last; other subwords
    and words without a tag are left out. Arguments are those of `AbstractTokenPools`.

    Source: [@voita2019evolution], k = 50, with CCG categories and their left and right parts.
    """

    table: ClassVar[TableSchema] = TAG_NEIGHBOURS

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        if not sample.tags:
            return pd.DataFrame(columns=self.table.column_names)
        rows = [
            {**self.row(sample, layer, scores[tag_key(tag)]), "tag": tag, "subword": self.subword}
            for layer, scores in enumerate(self.scores(sample))
            for tag in sample.tags
            if tag_key(tag) in scores
        ]
        return self.frame(sample, rows, "their tag")
