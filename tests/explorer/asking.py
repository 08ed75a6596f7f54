"""Questions as a page asks them, and what it does with answers: numbers by name.

The one door of the explorer's tests to its inside: `responses`, which keeps fewer readings than an explorer does.
"""

import json
from collections.abc import Iterator, Sequence

import numpy as np

from infoflow.explorer import Explorer
from infoflow.models import Model
from infoflow.subjects.explorer.server._answers import Responses
from infoflow.subjects.explorer.server._readings import ExploredModel, Readings
from infoflow.subjects.explorer.server._request import parsed

KINDS = ("masked", "causal", "translation", "grouped", "pruned")
SENTENCE, TRANSLATION = "the old cat sees the dog", "le vieux chat voit le chien"


def question(kind: str = "masked", **fields) -> dict:
    """A question's JSON."""
    text = {"text": SENTENCE} | ({"translation": TRANSLATION} if kind == "translation" else {})
    return {"page": "p"} | ({} if "key" in fields else text) | fields


class RefusedQuestion(Exception):
    """The explorer answered with an error: its status, and what it says."""


class Asker:
    """Asks an explorer as its page does, without a network."""

    def __init__(self, explorer: Explorer) -> None:
        from starlette.testclient import TestClient

        self.client = TestClient(explorer.app, base_url=f"http://127.0.0.1:{explorer.port}")
        self.client.get("/", params={"token": explorer.address.split("token=")[1]})

    def read(self, asked: dict) -> bytes:
        return self._post("read", asked).content

    def change(self, asked: dict) -> bytes:
        return self._post("change", asked).content

    def blank(self, asked: dict) -> dict:
        return self._post("blank", asked).json()

    def lines(self, asked: dict) -> list[dict]:
        """Rows of a strip or a sweep."""
        return [json.loads(line) for line in self._post("read", asked).text.splitlines()]

    def _post(self, kind: str, asked: dict):
        answer = self.client.post(f"/api/{kind}", json=asked)
        if answer.status_code != 200:
            raise RefusedQuestion(f"{answer.status_code}: {answer.text}")
        return answer


def responses(models: Sequence[Model], most_bytes: int) -> Responses:
    """What answers the questions of `heard`, as the worker's thread calls it; it keeps readings of so many bytes."""
    return Responses(Readings([ExploredModel(number, model) for number, model in enumerate(models)], 128, most_bytes))


def heard(**fields):
    """A question as the explorer has understood it."""
    return parsed(question(**fields))


def opened(answer: bytes) -> tuple[dict, dict[str, bytes]]:
    """The head and the arrays' bytes of an answer, as the page unpacks it."""
    start = 4 + int.from_bytes(answer[:4], "little")
    head = json.loads(answer[4:start])
    return head, dict(_arrays(answer, start, head.pop("arrays")))


def _arrays(answer: bytes, start: int, listed: list) -> Iterator[tuple[str, bytes]]:
    for name, size in listed:
        yield name, answer[start : start + size]
        start += size
    assert start == len(answer)


def weights(head, arrays, name="weights"):
    """(kind, layer) → what an array of each layer says, as the page unpacks it."""
    found = {}
    for kind in head["view"]["kinds"]:
        size = (len(head["view"]["tokens"][kind["stack"]]), len(head["view"]["tokens"][kind["keys"]]))
        for layer in kind["layers"]:
            raw = np.frombuffer(arrays[f"{kind['id']}/{layer['layer']}/{name}"], np.uint8)
            found[kind["stack"], kind["kind"], layer["layer"]] = raw.reshape(layer["heads"], *size)
    return found
