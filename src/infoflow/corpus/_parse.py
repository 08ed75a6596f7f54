"""Parse trees for plain text, from a spaCy parser."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from infoflow.foundation import UserError, as_written, digest, missing_extra

from ._columns import Row
from ._corpus import Corpus
from ._store import store

PARSER = "en_core_web_sm"
"""The default spaCy pipeline of `--parse`."""
_VERSION = 2
_COLUMNS = ("words", "upos", "head", "deprel")
_ROOT = -1


def parse_corpus(corpus: Corpus, parser: str = PARSER) -> Corpus:
    """The sentences of `corpus` with words, upos, head and deprel from a spaCy pipeline.

    Each line remains one sentence, even if the parser finds several roots. The relations are the pipeline's own: those
    of spaCy's English models are ClearNLP's (dobj, pobj, prep), which resemble Clark's Stanford dependencies, not UD's.
    `parser` is the name or folder of a pipeline with a tagger and a parser. Translations and documents are kept.

    Raises:
        UserError: spaCy (extra `[parse]`) or the pipeline is not installed, or the pipeline has no parser.

    Source for this use of the relations: [@clark2019].
    """
    if find_spec("spacy") is None:
        raise missing_extra("Parsing a corpus", "spaCy", "parse")
    spacy = import_module("spacy")
    pipeline = _load(spacy, parser)
    kept = ("text", *(name for name in ("translation", "document") if name in corpus.columns), *_COLUMNS)
    version = f"{pipeline.meta.get('name')}-{pipeline.meta.get('version')}"
    key = digest([_VERSION, "parsed", corpus.digest, version, spacy.__version__])
    return Corpus(store(_rows(corpus, pipeline), kept, corpus.name, key), corpus.name)


def _load(spacy: Any, parser: str) -> Any:
    try:
        pipeline = spacy.load(parser, exclude=["ner", "lemmatizer"])
    except OSError as error:
        raise UserError(
            f"spaCy finds no pipeline {as_written(parser)}. Install one (python -m spacy download {PARSER}), or use "
            "the name or folder of another."
        ) from error
    if "parser" not in pipeline.pipe_names:
        raise UserError(
            f"The spaCy pipeline {as_written(parser)} has no parser. It has {', '.join(pipeline.pipe_names)}."
        )
    return pipeline


def _rows(corpus: Corpus, pipeline: Any) -> Iterator[Row | None]:
    sentences = ((each.text, {"translation": each.translation, "document": each.document}) for each in corpus)
    for document, fields in pipeline.pipe(sentences, as_tuples=True, batch_size=256):
        tokens = [token for token in document if not token.is_space]
        if not tokens:
            yield None
            continue
        place = {token.i: index for index, token in enumerate(tokens)}
        yield {
            "text": document.text,
            **fields,
            "words": [token.text for token in tokens],
            "upos": [token.pos_ for token in tokens],
            # A root is its own head; a token attached to white space becomes a root.
            "head": [_ROOT if token.head.i == token.i else place.get(token.head.i, _ROOT) for token in tokens],
            "deprel": ["root" if token.dep_ == "ROOT" else token.dep_ for token in tokens],
        }
