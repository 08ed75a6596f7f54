"""Single test examples: the prediction of each layer's probe, and the gold label."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Int

from infoflow.flow import PassOptions, Reader
from infoflow.foundation import hash64_array, running_words
from infoflow.results import Column, TableSchema

from ._examples import Part, ProbeTask
from ._probe_measure import Probe
from ._probe_scores import ProbePredictions

PROBE_EXAMPLES = TableSchema(
    name="probe_examples",
    version=1,
    description="Test examples of a task, at most one per sentence, chosen by a hash of their text, and the "
    "predictions "
    "of each layer's probes for them. They are chosen before anything is trained and are the same for all "
    "models. They are illustrations, not findings.",
    columns=(
        Column(name="task", dtype="string", unit="", description="what is asked"),
        Column(name="unit", dtype="string", unit="", description="what is labelled: token, span, pair or sentence"),
        Column(name="probe", dtype="string", unit="", description="linear; mlp: with one hidden layer"),
        Column(name="stack", dtype="string", unit="", description="encoder or decoder: the one that reads the text"),
        Column(name="example", dtype="int64", unit="", description="number of the example, in the order of hashes"),
        Column(name="text", dtype="string", unit="", description="the sentence, its words parted by spaces"),
        *(
            Column(name=f"{span}_{end}", dtype="int64", unit="words", description=told)
            for span, of in (("first", "what is labelled"), ("second", "of a pair, the other span; -1: none"))
            for end, told in (("start", f"first word of {of}"), ("end", f"behind the last word of {of}"))
        ),
        Column(name="gold", dtype="string", unit="", description="the label that is right"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings"),
        Column(name="said", dtype="string", unit="", description="the label that most of the probes give"),
        Column(name="right", dtype="float64", unit="share of probes", description="that give the right label"),
        Column(name="seeds", dtype="int64", unit="", description="how many probes were asked"),
    ),
)

MOST_EXAMPLES = 60
"""Maximum number of examples of a task."""


class ProbeExamples(Probe):
    """Predictions of each layer's probes for single test examples: which become right only from some layer on.

    The probes are those of `Probe` with the same settings; both measures share one training.

    Arguments are those of `Probe`.
    """

    table: ClassVar[TableSchema] = PROBE_EXAMPLES

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        found = self.on_all(reader, options)
        told = None if found is None else found.answered
        rows = (
            [] if found is None or told is None else self._rows(found.task, told.answers["task"], reader.source_stack)
        )
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _rows(self, task: ProbeTask, answers: ProbePredictions, stack: str) -> Iterator[dict[str, Any]]:
        part, names = task.test, task.names
        facts = {"task": task.name, "unit": task.unit, "probe": self.probe, "stack": stack}
        for number, place in enumerate(chosen_examples(part, MOST_EXAMPLES).tolist()):
            one = {**facts, "example": number, **_shown(part, place), "gold": names[part.examples.label[place]]}
            for layer, said in enumerate(answers.said[:, :, place]):
                told = {"layer": layer, "said": names[np.bincount(said).argmax()], "seeds": len(said)}
                yield {**one, **told, "right": float((said == part.examples.label[place]).mean())}


def chosen_examples(part: Part, most: int) -> Int[np.ndarray, " chosen"]:
    """At most this many examples, one per sentence, by a hash of sentence and position: indices into the part."""
    examples = part.examples
    ids = part.corpus.content_ids[examples.sentence].astype(np.uint64)
    spans = [examples.first, *([] if examples.second is None else [examples.second])]
    for number in np.concatenate(spans, axis=1).astype(np.uint64).T:  # wraps around, as hashes do
        ids = ids * np.uint64(1_000_003) + number
    order = np.argsort(hash64_array(("probe-shown",), ids), kind="stable")
    _, first = np.unique(examples.sentence[order], return_index=True)
    return order[np.sort(first)[:most]]


def _shown(part: Part, place: int) -> dict[str, Any]:
    """The example's sentence and spans."""
    examples, sentence = part.examples, part.corpus[int(part.examples.sentence[place])]
    words = running_words(sentence.text) if sentence.words is None else sentence.words
    second = (-1, -1) if examples.second is None else examples.second[place]
    spans = {"first": examples.first[place], "second": second}
    ends = {
        f"{span}_{end}": int(at) for span, own in spans.items() for end, at in zip(("start", "end"), own, strict=True)
    }
    return {"text": " ".join(" ".join(word.split()) or "·" for word in words), **ends}
