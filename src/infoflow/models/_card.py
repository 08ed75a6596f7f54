"""The card (README.md) of a model's folder: what the model is, its scores, and four lines that run it."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData, metadata_load
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from infoflow._transformers import PreTrainedModel
from infoflow.foundation import in_markdown

_AUTO = (  # class, task on the model hub, and transformers' list of model classes by architecture
    ("AutoModelForSeq2SeqLM", "text2text-generation", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM"),
    ("AutoModelForCausalLM", "text-generation", "MODEL_FOR_CAUSAL_LM"),
    ("AutoModelForMaskedLM", "fill-mask", "MODEL_FOR_MASKED_LM"),
    ("AutoModelForSequenceClassification", "text-classification", "MODEL_FOR_SEQUENCE_CLASSIFICATION"),
    ("AutoModelForTokenClassification", "token-classification", "MODEL_FOR_TOKEN_CLASSIFICATION"),
    ("AutoModelForQuestionAnswering", "question-answering", "MODEL_FOR_QUESTION_ANSWERING"),
    ("AutoModelForMultipleChoice", "multiple-choice", "MODEL_FOR_MULTIPLE_CHOICE"),
    ("AutoModelForPreTraining", "feature-extraction", "MODEL_FOR_PRETRAINING"),
    ("AutoModel", "feature-extraction", "MODEL"),
)
_OWN = "infoflow-"  # model types of `_own_models`
_ADDRESS = "https://huggingface.co/docs/hub/model-cards"


def model_card(
    module: PreTrainedModel,
    tokenizer: Any = None,
    *,
    title: str = "",
    text: str = "",
    scores: Sequence[str] = (),
    tags: Sequence[str] = (),
    results: Sequence[Mapping[str, Any]] = (),
    known: Mapping[str, Any] | None = None,
    code: bool = False,
    own_weights: bool = True,
) -> str:
    """The card's text; the model hub reads its front matter.

    Args:
        module: The model. If it was loaded, the model it was loaded from is its base.
        tokenizer: Tokenizer of its input; without one the example reads token ids.
        title: The heading; default: the class.
        text: What the model is, in Markdown.
        scores: Lines of Markdown.
        tags: Tags for the model hub, besides `infoflow`.
        results: Scores for the model hub: `data`, `metric`, `value`, and `note`, which states their interval.
        known: `language`, `license` and `datasets` of the text that the model was trained on, as far as known.
        code: Whether the folder has a file of Python code with the model's class.
        own_weights: Whether the weights were trained; otherwise language and licence are those of the base.
    """
    auto, task = auto_class(module)
    title, base = title or type(module).__name__, _base(module)
    facts = {**(known or {}), **({} if own_weights else base)}
    data = ModelCardData(
        base_model=base.get("base_model"),
        datasets=facts.get("datasets"),
        language=facts.get("language"),
        license=facts.get("license"),
        library_name="transformers",
        pipeline_tag=None if task == "other" else task,
        tags=["infoflow", *tags],
        metrics=list(dict.fromkeys(str(one["metric"]) for one in results)) or None,
        model_name=title if results else None,
        eval_results=[_result(task, **one) for one in results] or None,
    )
    lines = [
        "---",
        data.to_yaml(),
        "---",
        "",
        f"# {in_markdown(title)}",
        "",
        *([text, ""] if text else []),
        "In this folder:",
        "",
        "```python",
        *_example(auto, task, module, tokenizer, code),
        "```",
        "",
        *(["## Scores", "", *scores, ""] if scores else []),
        *_before_publishing(facts),
    ]
    return "\n".join(lines)


def _result(task: str, data: str, metric: str, value: float, note: str) -> EvalResult:
    return EvalResult(
        task_type=task,
        dataset_type=re.sub(r"[^\w./-]+", "-", data),
        dataset_name=data,
        metric_type=metric,
        metric_name=f"{metric}, {note}",
        metric_value=value,
    )


def _before_publishing(facts: Mapping[str, Any]) -> list[str]:
    """What the card's owner has to add."""
    names = {"license": "licence", "language": "language"}
    if missing := [word for name, word in names.items() if not facts.get(name)]:
        depend, them = ("depends", "it") if len(missing) == 1 else ("depend", "them")
        return [
            f"The {' and '.join(missing)} {depend} on the text that the model was trained on: add {them} before you "
            f"publish it ([model cards]({_ADDRESS})).",
            "",
        ]
    return ["The licence is that of the text that the model was trained on: name its authors when you publish it.", ""]


def _base(module: PreTrainedModel) -> dict[str, Any]:
    """The hub model from which this one was loaded, or what the card in its folder says about it.

    A folder's name means nothing on the hub, so the card names the model from which the folder was made.
    """
    source = str(getattr(module.config, "_name_or_path", "") or "")
    if os.path.exists(source):  # noqa: PTH110 (Path.exists raises if a name is too long)
        return _stated(Path(source) / "README.md")
    return {"base_model": source} if _is_hub_name(source) else {}


def _stated(card: Path) -> dict[str, Any]:
    """Base model, language and licence as a card states them; the card may come from anybody."""
    try:
        data = (metadata_load(card) if card.is_file() else None) or {}
    except Exception:  # YAML and encodings have errors of their own: a card that cannot be read says nothing
        return {}
    checks = {"base_model": _is_hub_name, "language": _is_text, "license": _is_text}
    return {name: data[name] for name, check in checks.items() if check(data.get(name))}


def _is_text(value: Any) -> bool:
    several = value if isinstance(value, list) else [value]
    return bool(several) and all(isinstance(one, str) and one for one in several)


def _is_hub_name(name: Any) -> bool:
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return bool(name)


def auto_class(module: PreTrainedModel) -> tuple[str, str]:
    """The class of transformers that loads a model's folder, and its task on the model hub."""
    model_type, name = getattr(module.config, "model_type", ""), type(module).__name__
    from transformers.models.auto import modeling_auto  # slow import

    known = ((auto, task, getattr(modeling_auto, f"{names}_MAPPING_NAMES")) for auto, task, names in _AUTO)
    return next(((auto, task) for auto, task, names in known if names.get(model_type) == name), (name, "other"))


def _example(auto: str, task: str, module: PreTrainedModel, tokenizer: Any, code: bool) -> list[str]:
    """Four lines that run in the folder."""
    trust = ", trust_remote_code=True" if code else ""
    if tokenizer is None:
        return [
            "import torch",
            f"from transformers import {auto}",
            f'model = {auto}.from_pretrained("."{trust})',
            "print(model(torch.tensor([[1, 2, 3]]))[0].shape)",
        ]
    parts = [module.config, *(getattr(module.config, name, None) for name in ("encoder", "decoder"))]
    if any(str(getattr(one, "model_type", "")).startswith(_OWN) for one in parts):
        return [
            "from infoflow.models import load_model  # transformers does not know this class",
            'model = load_model(".")',
            "print(model, model.tokenizer)",
        ]
    head = [
        f"from transformers import {auto}, AutoTokenizer",
        f'tokenizer, model = AutoTokenizer.from_pretrained("."), {auto}.from_pretrained("."{trust})',
    ]
    if task in ("text-generation", "text2text-generation"):
        inputs = f'tokenizer({_start(task, tokenizer)}, return_tensors="pt")'
        written = "print(tokenizer.decode(output[0], skip_special_tokens=True))"
        return [*head, f"output = model.generate(**{inputs}, max_new_tokens=20)", written]
    texts = '["The cat sleeps."]'
    if task == "fill-mask" and tokenizer.mask_token is not None:
        texts = f'["The cat {tokenizer.mask_token} on the sofa."]'
    inputs = f'inputs = tokenizer({texts}, return_tensors="pt")'
    if task == "multiple-choice":
        inputs = 'inputs = tokenizer(["The cat sleeps."], return_tensors="pt").convert_to_tensors("pt", True)'
    last = {
        "fill-mask": "print(tokenizer.decode(model(**inputs).logits[0].argmax(-1)))",
        "text-classification": "print(model.config.id2label, model(**inputs).logits)",
        "token-classification": "print(model.config.id2label, model(**inputs).logits[0].argmax(-1))",
    }
    return [*head, inputs, last.get(task, "print(model(**inputs)[0].shape)")]


def _start(task: str, tokenizer: Any) -> str:
    """Arguments of a tokenizer for the beginning of a text, so that no end token is added."""
    ids = tokenizer("a")["input_ids"]
    if task == "text2text-generation" or ids[-1] not in tokenizer.all_special_ids:
        return '"The cat sleeps."' if task == "text2text-generation" else '"The cat"'
    first = tokenizer.decode(ids[:1]) if ids[0] in tokenizer.all_special_ids else ""
    return f'"{first} The cat", add_special_tokens=False'
