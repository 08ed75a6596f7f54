"""Where tables and datasets hold sentences."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TextColumns:
    """Where a corpus stores its sentences."""

    text_column: str = ""  # column of the sentences, if the corpus and its further parts are tables or datasets
    translation_column: str = ""
    document_column: str = ""  # column of each sentence's document name, for objectives that read documents
    documents: bool = False  # text files separate documents by blank lines; CoNLL-U begins each with # newdoc
