"""probing:P-5. The layer in which similarity of texts is judged best."""

from .._finding import Untested
from .._sources import BERT_SCORE

FINDING = Untested(
    id="probing:P-5",
    claim="BERTScore agrees with people best in a layer below the top.",
    source=BERT_SCORE,
    published="best layers: BERT-base 9 of 12, BERT-large 18 of 24, RoBERTa-large 17 of 24; but BART-base 6 of 6",
    why="it takes pairs of sentences with human judgements beside a run: `infoflow.probing.pearson_by_layer` on a "
    "model and such pairs tells it (experiments/probing)",
)
