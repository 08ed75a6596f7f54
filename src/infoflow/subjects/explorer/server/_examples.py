"""Example sentences, in words that the model knows."""

from infoflow.foundation import running_words
from infoflow.models import Model

_GROUPS = (
    (
        "The keys to the old cabinet are on the table.",
        "She gave him the book because he asked for it.",
        "The cat that the dog chased sleeps in the garden.",
    ),
    ("the old cat sees the dog", "the red house sleeps", "a big dog likes the cat"),
    (
        "Die Schlüssel zu dem alten Schrank liegen auf dem Tisch.",
        "Der Hund, den die Katze sieht, schläft im Garten.",
        "Sie gab ihm das Buch, weil er danach fragte.",
    ),
    (
        "Les clés de la vieille armoire sont sur la table.",
        "Le chat que le chien regarde dort dans le jardin.",
        "Elle lui a donné le livre parce qu'il l'avait demandé.",
    ),
)


def examples(model: Model) -> tuple[str, ...]:
    """Three example sentences: those with the fewest tokens, where an unknown token counts as ten."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        return ("5 6 7 8", "5 6 7 8 9 5 6 7", "9 8 7 6 5")
    unknown = tokenizer.unk_token_id

    def cost(sentences: tuple[str, ...]) -> float:
        ids = [token for text in sentences for token in tokenizer(text)["input_ids"]]
        words = sum(len(running_words(text)) for text in sentences)
        return (len(ids) + 9 * sum(token == unknown for token in ids if unknown is not None)) / words

    return min(_GROUPS, key=cost)
