"""Other tasks as text generation, for models that only write: inputs and answers in words."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.corpus import Corpus, Sentence
from infoflow.foundation import UserError

from ._choice import right_places
from ._task import Shape, TaskData

NO_ANSWER = "no answer"
"""The target if a passage does not contain the answer."""


def as_text(data: TaskData) -> TaskData:
    """The task as generation: `text` is the input in words, `translation` the answer in words.

    | shape          | text                                               | to write                        |
    |----------------|----------------------------------------------------|---------------------------------|
    | classification | the text, or `first: … second: …`                  | the label                       |
    | regression     | likewise                                           | the number, to the nearest 0.2  |
    | choice         | `question: … choices: (1) … (2) … context: …`      | the right choice                |
    | span           | `question: … context: …`                           | the answer, or "no answer"      |

    `Generation.prefix` names the task, such as "sentiment: ". Models are selected by exact match.

    Raises:
        UserError: The task is tagging or has an unknown shape.

    Source: [@raffel2020exploring].
    """
    if data.shape == "generation":
        return data
    if data.shape not in (*_WAYS, "choice"):
        raise UserError(
            f"A task of the shape {data.shape} cannot be turned into text generation. Got {data.name}.\n"
            f"Possible shapes: {', '.join(_WAYS)}, choice. For tagging use a model with a token classification head."
        )
    parts = {part: _written(getattr(data, part), data.shape) for part in ("train", "dev", "test")}
    return replace(data, shape="generation", labels=(), options={"main": "exact_match"}, **parts)


def _written(corpus: Corpus, shape: Shape) -> Corpus:
    if shape == "choice":
        asked = [_chosen(*each) for each in zip(corpus, right_places(corpus).tolist(), strict=True)]
    else:
        asked = [_WAYS[shape](sentence) for sentence in corpus]
    columns: dict[str, Any] = {
        "text": [text for text, _ in asked],
        "translation": [answers[0] for _, answers in asked],
        "references": [answers[1:] for _, answers in asked],
    }
    frame = pd.DataFrame(columns)
    return Corpus.from_frame(frame, translation="translation", references="references", name=f"{corpus.name} as text")


def _classified(sentence: Sentence) -> tuple[str, list[str]]:
    return _texts(sentence), [str(sentence.label)]


def _measured(sentence: Sentence) -> tuple[str, list[str]]:
    return _texts(sentence), [f"{round(float(str(sentence.label)) * 5) / 5:.1f}"]


def _chosen(sentence: Sentence, right: int) -> tuple[str, list[str]]:
    choices = sentence.choices or []
    listed = " ".join(f"({number}) {choice}" for number, choice in enumerate(choices, start=1))
    return f"question: {sentence.question} choices: {listed} context: {sentence.text}", [choices[right]]


def _answered(sentence: Sentence) -> tuple[str, list[str]]:
    text = f"question: {sentence.question} context: {sentence.text}"
    return text, list(dict.fromkeys(sentence.answers or [])) or [NO_ANSWER]


def _texts(sentence: Sentence) -> str:
    return sentence.text if sentence.second is None else f"first: {sentence.text} second: {sentence.second}"


_WAYS: dict[Shape, Callable[[Sentence], tuple[str, list[str]]]] = {
    "classification": _classified,
    "regression": _measured,
    "span": _answered,
}
