"""One pass for all probes of a model on a corpus: they share the states that the first one collects."""

import shutil
import tempfile
from pathlib import Path
from weakref import WeakKeyDictionary, finalize

import numpy as np

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, Reader
from infoflow.foundation import digest

from ._features import Pooling, WordFeatures, collect_features

_KEPT: "WeakKeyDictionary[Reader, tuple[str, WordFeatures]]" = WeakKeyDictionary()


def shared_features(
    reader: Reader, corpus: Corpus, rows: np.ndarray, pooling: Pooling, options: PassOptions
) -> WordFeatures:
    """`collect_features` in a file that goes with them; the latest of the reader's own corpus stay as long as it does.

    Args:
        reader: Of the model.
        corpus: What is read: the reader's, or another.
        rows: Of the corpus.
        pooling: What stands for a word of several tokens.
        options: As of the pass.
    """
    key = digest([corpus.digest, np.unique(rows).tolist(), pooling, options.key])
    kept = _KEPT.get(reader)
    if kept is not None and kept[0] == key:
        return kept[1]
    folder = Path(tempfile.mkdtemp(prefix="infoflow-"))
    try:
        features = collect_features(reader.model, corpus, rows, folder=folder, pooling=pooling, options=options)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finalize(features.states, shutil.rmtree, folder, ignore_errors=True)
    if corpus.digest == reader.corpus.digest:
        _KEPT[reader] = key, features
    return features
