"""Documents of random tokens, encoded: what windows and pairs are cut from."""

import numpy as np
from training.tiny import VOCABULARY

from infoflow.corpus import Encoded
from infoflow.training import PairRows, TrainingData, WindowRows


def running_text(num: int = 30, seed: int = 0, longest: int = 9) -> tuple[Encoded, np.ndarray]:
    """Sentences of `num` documents, some longer than others, and the document of each."""
    generator = np.random.default_rng(seed)
    documents = np.repeat(np.arange(num), generator.integers(2, 9, size=num))
    lengths = generator.integers(1, longest + 1, size=len(documents)) + 2
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = generator.integers(5, VOCABULARY.size, size=offsets[-1]).astype(np.int32)
    special = np.zeros(offsets[-1], dtype=bool)
    special[offsets[:-1]] = special[offsets[1:] - 1] = True
    ids[offsets[:-1]], ids[offsets[1:] - 1] = VOCABULARY.start, VOCABULARY.end
    encoded = Encoded(
        offsets=offsets,
        flat_ids=ids,
        flat_words=None,
        flat_spans=None,
        flat_special=special,
        sentence_ids=np.arange(len(documents)) + 3,
        num_truncated=0,
        max_length=longest + 2,
    )
    return encoded, documents


def window_data() -> TrainingData:
    return TrainingData(source=WindowRows(*running_text(), 24, VOCABULARY), vocabulary=VOCABULARY)


def segment_data(**options) -> TrainingData:
    rows = PairRows(*running_text(), 24, VOCABULARY, **{"copies": 2, "kind": "order", **options})
    return TrainingData(source=rows, vocabulary=VOCABULARY)
