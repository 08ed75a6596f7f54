"""The objectives that claims speak of, and what findings call them."""

from infoflow.results import Spec

CAUSAL, MASKED, TRANSLATION = Spec("causal-lm"), Spec("masked-lm"), Spec("translation")
TOKEN_DROPOUT = Spec("translation", "token-dropout")
OBJECTIVES = (CAUSAL, MASKED, TRANSLATION)

STATIC = Spec("masked-lm", "static")
NEXT_SENTENCE, NEXT_SENTENCE_STATIC = Spec("masked-lm-nsp"), Spec("masked-lm-nsp", "static")
SENTENCE_ORDER, SPANBERT = Spec("masked-lm-sop"), Spec("spanbert")
ELECTRA, ELECTRA_SELECTED = Spec("electra"), Spec("electra", "selected")
DISTILLATION = Spec("distillation")
DECODER_LM, DENOISE_FULL, DENOISE_MASK = Spec("seq2seq-lm"), Spec("denoise-full"), Spec("denoise-mask")
REPLACE_SPANS, DROP_TOKENS = Spec("replace-spans"), Spec("drop-tokens")
DESHUFFLING, BART = Spec("deshuffling"), Spec("bart")
BART_NOISES = tuple(Spec("bart", noise) for noise in ("masking", "deletion", "infilling", "permutation", "rotation"))
"""Variants of BART with one noise each; without a name, both that its authors chose."""

NAMES = {
    CAUSAL: "causal LM",
    MASKED: "masked LM",
    TRANSLATION: "translation encoder",
    TOKEN_DROPOUT: "translation encoder trained with token dropout",
    STATIC: "masked LM with static masks",
    NEXT_SENTENCE: "masked LM with next-sentence prediction",
    NEXT_SENTENCE_STATIC: "masked LM with next-sentence prediction and static masks",
    SENTENCE_ORDER: "masked LM with sentence order",
    SPANBERT: "SpanBERT",
    ELECTRA: "ELECTRA",
    ELECTRA_SELECTED: "ELECTRA with its loss on selected tokens alone (electra+selected)",
    DISTILLATION: "distilled masked LM",
    DECODER_LM: "LM of a decoder beside an empty encoder",
    DENOISE_FULL: "denoising encoder",
    DENOISE_MASK: "encoder that denoises masks",
    REPLACE_SPANS: "encoder that denoises replaced spans",
    DROP_TOKENS: "encoder that denoises dropped tokens",
    DESHUFFLING: "deshuffling encoder",
    BART: "BART",
    **{one: f"BART with {one.variant} alone ({one.label})" for one in BART_NOISES},
}
