"""English words of the grammar, frequent first; rarer ones are invented."""


def listed(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


ENGLISH: dict[str, tuple[str, ...]] = {
    "noun": listed(
        """man house dog guard river child walk teacher garden cook woman street cat dream friend play doctor
        tree guide city book judge horse window nurse king song bird dance road letter rest farmer table
        pilot door talk ship boy paint girl queen mountain watch village soldier lamp bridge painter box
        church fox lady story market glass island wolf picture visit forest baker chair answer sailor tower
        key writer bottle"""
    ),
    "name": listed(
        """Mary John Anna Peter Clara Paul Emma Tom Lucy David Julia Mark Nora Simon Alice Leo Sarah Felix
        Laura Hugo"""
    ),
    "transitive": listed(
        """see know guard find like watch guide help judge follow love hear paint carry nurse visit remember
        call answer touch teach describe admire build catch fear hide lift push greet"""
    ),
    "intransitive": listed(
        "sleep walk run wait dance talk laugh rest sing dream smile play arrive swim fall work travel cry"
    ),
    "adjective": listed(
        """old small big young good new red quiet white happy black tall poor kind green strong rich blue tired
        brave clever sad dark cold gentle heavy famous strange warm proud"""
    ),
    "frequency": ("often", "never", "always", "rarely", "usually"),
    "manner": listed("quickly quietly slowly happily well badly carefully calmly loudly gladly early late"),
    "degree": ("very", "quite", "too", "rather", "extremely"),
    "preposition": ("in", "near", "with", "behind", "on", "for", "under", "beside", "without", "above"),
}
"""Word lists by class.

`guard`, `walk`, `dream`, `play` and a dozen others are nouns and verbs; `frequency` adverbs come before the verb,
`manner` adverbs after it.
"""

IRREGULAR_PLURALS = {"man": "men", "woman": "women", "child": "children", "wolf": "wolves"}

FUNCTION_WORDS = ("the", "a", "an", "that", "and", "or", "but", ".")

ALL_ENGLISH = frozenset(word for words in ENGLISH.values() for word in words) | {
    *FUNCTION_WORDS,
    *IRREGULAR_PLURALS.values(),
}
