"""What a page does with answers: numbers by name."""

import numpy as np

KINDS = ("masked", "causal", "translation", "grouped", "pruned")
SENTENCE, TRANSLATION = "the old cat sees the dog", "le vieux chat voit le chien"


def question(kind="masked", **fields):
    from infoflow.explorer._asked import asked

    text = {"text": SENTENCE} | ({"translation": TRANSLATION} if kind == "translation" else {})
    return asked({"page": "p"} | ({} if "key" in fields else text) | fields)


def opened(answer):
    from infoflow.explorer._wire import unwired

    return unwired(answer)


def weights(head, arrays, name="weights"):
    """(kind, layer) → what an array of each layer says, as the page unpacks it."""
    found = {}
    for kind in head["view"]["kinds"]:
        size = (len(head["view"]["tokens"][kind["stack"]]), len(head["view"]["tokens"][kind["keys"]]))
        for layer in kind["layers"]:
            raw = np.frombuffer(arrays[f"{kind['id']}/{layer['layer']}/{name}"], np.uint8)
            found[kind["stack"], kind["kind"], layer["layer"]] = raw.reshape(layer["heads"], *size)
    return found
