"""Trivial passages: those that a query comes from, which answer it without being understood."""

from collections import defaultdict
from collections.abc import Sequence

from infoflow.foundation import running_words

from ._passages import Passages


def origins(sentences: Sequence[str], passages: Passages) -> list[list[int]]:
    """Ids of the passages that contain each sentence word for word, ignoring white space; none for an empty sentence.

    A masked sentence whose own passage may be read can be answered by copying. Texts are compared, so verbatim copies
    in other passages are found too; a question that occurs in no passage has no origin. The search for a sentence is
    limited to passages with its rarest word.

    Args:
        sentences: Before masking.
        passages: The passages that may be read.
    """
    plain = [" ".join(running_words(text)) for text in sentences]
    asked = {word for text in plain for word in text.split()}
    places: dict[str, list[int]] = defaultdict(list)
    texts: list[str] = []
    for id, text in enumerate(passages.texts()):
        words = running_words(text)
        texts.append(f" {' '.join(words)} ")
        for word in asked.intersection(words):
            places[word].append(id)
    found = []
    for text in plain:
        rarest = min((places.get(word, []) for word in text.split()), key=len, default=[])
        found.append([id for id in rarest if f" {text} " in texts[id]])
    return found
