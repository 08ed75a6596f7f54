"""The objectives in claims, and their names in findings."""

from infoflow.results import Spec

CAUSAL = Spec("causal-lm")
"""Models of causal language modelling."""
MASKED = Spec("masked-lm")
"""Models of masked language modelling."""
TRANSLATION = Spec("translation")
"""Models of translation."""
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
"""Variants of BART with one noise each; the one without a name has both that its authors chose."""

CLOSED_BOOK, READ_GOLD, READ_RANDOM = Spec("closed-book"), Spec("read-gold"), Spec("read-random")
RETRIEVE_BM25, RETRIEVE_FROZEN, RETRIEVE_LEARNED = (
    Spec("retrieve-bm25"),
    Spec("retrieve-frozen"),
    Spec("retrieve-learned"),
)
NULL_SHARE = Spec("closed-book", "null-share")
COLD, STALE = (Spec("retrieve-learned", name) for name in ("cold", "stale"))
RAG_SEQUENCE, RAG_TOKEN = (Spec("retrieve-learned", name) for name in ("rag-sequence", "rag-token"))
RANDOM_TOKENS, RANDOM_SPANS = (Spec("retrieve-learned", name) for name in ("random-token", "random-span"))
SAME_BM25, SAME_FROZEN, SAME_LEARNED = (
    Spec(f"retrieve-{name}", "same-wording") for name in ("bm25", "frozen", "learned")
)
GOLD_PAIRS = Spec("read-gold", "pairs")
EXCHANGED = tuple(Spec("retrieve-learned", f"exchange-{parts}") for parts in ("both", "reader", "retriever", "neither"))
"""Which parts come from the trained model; the others are initial."""

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
    CLOSED_BOOK: "closed-book reader",
    READ_GOLD: "reader of the right passage",
    READ_RANDOM: "reader of random passages",
    RETRIEVE_BM25: "reader with BM25",
    RETRIEVE_FROZEN: "reader with a frozen retriever",
    RETRIEVE_LEARNED: "reader with a learned retriever",
    NULL_SHARE: "reader of the share without passages alone (closed-book+null-share)",
    COLD: "reader with a retriever that was not warmed up",
    STALE: "reader with a stale index",
    RAG_SEQUENCE: "reader that writes",
    RAG_TOKEN: "reader that writes, with passages summed out at each token",
    RANDOM_TOKENS: "reader with random tokens masked",
    RANDOM_SPANS: "reader with random spans masked",
    SAME_BM25: "reader with BM25 in a world of shared words",
    SAME_FROZEN: "reader with a frozen retriever in a world of shared words",
    SAME_LEARNED: "reader with a learned retriever in a world of shared words",
    GOLD_PAIRS: "reader of passages about two entities",
    **{one: f"model of exchanged parts ({one.label})" for one in EXCHANGED},
    **{one: f"BART with {one.variant} alone ({one.label})" for one in BART_NOISES},
}
