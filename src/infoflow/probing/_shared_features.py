"""One pass for all probes of a model on a corpus: they share the states that the first one collects."""

from weakref import WeakKeyDictionary, finalize

import numpy as np

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, Reader
from infoflow.foundation import digest, new_scratch_folder

from ._features import Pooling, WordFeatures, collect_features

_KEPT: "WeakKeyDictionary[Reader, tuple[str, WordFeatures]]" = WeakKeyDictionary()


def shared_features(
    reader: Reader, corpus: Corpus, rows: np.ndarray, pooling: Pooling, options: PassOptions
) -> WordFeatures:
    """`collect_features` in a temporary file; the latest features of the reader's corpus live as long as the reader.

    Args:
        reader: Reader of the model.
        corpus: Corpus to read: the reader's, or another.
        rows: Rows of the corpus.
        pooling: How several tokens become the state of a word.
        options: Options of the pass.
    """
    key = digest([corpus.digest, np.unique(rows).tolist(), pooling, options.key])
    kept = _KEPT.get(reader)
    if kept is not None and kept[0] == key:
        return kept[1]
    folder, remove = new_scratch_folder()
    try:
        features = collect_features(reader.model, corpus, rows, folder=folder, pooling=pooling, options=options)
    except BaseException:
        remove()
        raise
    finalize(features.states, remove)
    if corpus.digest == reader.corpus.digest:
        _KEPT[reader] = key, features
    return features
