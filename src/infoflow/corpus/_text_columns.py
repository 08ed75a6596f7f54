"""Where tables and datasets hold sentences."""

from dataclasses import dataclass

from infoflow.foundation import OwnWord


@dataclass(frozen=True, kw_only=True, slots=True)
class TextColumns:
    """Where a corpus stores its sentences."""

    text_column: OwnWord = ""  # column of the sentences, if the corpus and its further parts are tables or datasets
    translation_column: OwnWord = ""
    document_column: OwnWord = ""  # column of each sentence's document name, for objectives that read documents
    documents: bool = False  # text files separate documents by blank lines; CoNLL-U begins each with # newdoc
