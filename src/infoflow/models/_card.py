"""The card (README.md) of a model's folder: what the model is, its scores, and four lines that run it."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto as registry

_AUTO = (  # class, task on the model hub, names of model classes by architecture
    ("AutoModelForSeq2SeqLM", "text2text-generation", registry.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
    ("AutoModelForCausalLM", "text-generation", registry.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    ("AutoModelForMaskedLM", "fill-mask", registry.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    (
        "AutoModelForSequenceClassification",
        "text-classification",
        registry.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    ),
    (
        "AutoModelForTokenClassification",
        "token-classification",
        registry.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    ),
    ("AutoModelForQuestionAnswering", "question-answering", registry.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES),
    ("AutoModelForMultipleChoice", "multiple-choice", registry.MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES),
    ("AutoModelForPreTraining", "feature-extraction", registry.MODEL_FOR_PRETRAINING_MAPPING_NAMES),
    ("AutoModel", "feature-extraction", registry.MODEL_MAPPING_NAMES),
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
    code: bool = False,
) -> str:
    """The card's text.

    Args:
        module: The model.
        tokenizer: Tokenizer of its input; without one the example reads token ids.
        title: The heading; default: the class.
        text: What the model is, in Markdown.
        scores: Lines of Markdown.
        tags: For the model hub, besides `infoflow`.
        code: Whether the folder has a file of Python code with the model's class.
    """
    auto, task = auto_class(module)
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {task}",
        "tags:",
        *(f"- {tag}" for tag in ("infoflow", *tags)),
        "---",
        "",
        f"# {title or type(module).__name__}",
        "",
        *([text, ""] if text else []),
        "In this folder:",
        "",
        "```python",
        *_example(auto, task, module, tokenizer, code),
        "```",
        "",
        *(["## Scores", "", *scores, ""] if scores else []),
        "The licence and the language depend on the text that the model was trained on: add them before you publish it "
        f"([model cards]({_ADDRESS})).",
        "",
    ]
    return "\n".join(lines)


def auto_class(module: PreTrainedModel) -> tuple[str, str]:
    """The class of transformers that loads a model's folder, and its task on the model hub."""
    model_type, name = getattr(module.config, "model_type", ""), type(module).__name__
    return next(((auto, task) for auto, task, names in _AUTO if names.get(model_type) == name), (name, "other"))


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
    if any(str(one.model_type).startswith(_OWN) for one in (module.config, *_parts(module.config))):
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


def _parts(config: Any) -> list[Any]:
    """Configurations of an encoder-decoder's two models."""
    return [
        getattr(config, name) for name in ("encoder", "decoder") if hasattr(getattr(config, name, None), "model_type")
    ]


def _start(task: str, tokenizer: Any) -> str:
    """Arguments of a tokenizer for the beginning of a text, without the token that ends it."""
    ids = tokenizer("a")["input_ids"]
    if task == "text2text-generation" or ids[-1] not in tokenizer.all_special_ids:
        return '"The cat sleeps."' if task == "text2text-generation" else '"The cat"'
    first = tokenizer.decode(ids[:1]) if ids[0] in tokenizer.all_special_ids else ""
    return f'"{first} The cat", add_special_tokens=False'
