"""Trivial passages: those that a query comes from, which answer it without being understood."""

from collections import defaultdict
from collections.abc import Sequence

from ._passages import Passages


def origins(sentences: Sequence[str], passages: Passages) -> list[list[int]]:
    """Ids of the passages that hold each sentence word for word, white space aside; an empty sentence is in none.

    A masked sentence whose own passage may be read is answered by copying. The text is compared, so that verbatim
    copies in other passages are found too; a question that stands in no passage has no origin. Each sentence is looked
    for where its rarest word is.

    Args:
        sentences: As they were before anything was masked.
        passages: That may be read.
    """
    plain = [" ".join(text.split()) for text in sentences]
    asked = {word for text in plain for word in text.split()}
    places: dict[str, list[int]] = defaultdict(list)
    texts: list[str] = []
    for id, text in enumerate(passages.texts()):
        words = text.split()
        texts.append(f" {' '.join(words)} ")
        for word in asked.intersection(words):
            places[word].append(id)
    found = []
    for text in plain:
        rarest = min((places.get(word, []) for word in text.split()), key=len, default=[])
        found.append([id for id in rarest if f" {text} " in texts[id]])
    return found
