"""How a model reads texts: tokenizer, language and prefix options of every command that takes a model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from infoflow.models import Model


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Tokenizer, languages and prefix."""

    tokenizer: Annotated[
        str | None, Parameter(help="Folder or hub name of the tokenizer. Default: the one saved with the weights.")
    ] = None
    source_language: Annotated[
        str | None,
        Parameter(show_default=False, help="Language code of the texts, for multilingual models, such as fra_Latn."),
    ] = None
    target_language: Annotated[
        str | None, Parameter(show_default=False, help="Language code of a multilingual model's output.")
    ] = None
    prefix: Annotated[
        str | None,
        Parameter(show_default=False, help='Text prepended to each input, such as "translate English to German:".'),
    ] = None

    @property
    def marks(self) -> dict[str, str]:
        """Languages and prefix, as the library takes them."""
        return {
            "source_language": self.source_language or "",
            "target_language": self.target_language or "",
            "prefix": self.prefix or "",
        }

    def load(self, model: str, device: str | None) -> "Model":
        """The model of that name or folder."""
        from infoflow.models import load_model

        return load_model(model, self.tokenizer, device or "auto", **self.marks)
