"""Methods paragraphs for the figures of retrieval."""

from infoflow.report._figure import Method

KNOWN = Method(
    id="retrieval-known",
    title="Questions about facts, with and without a document",
    text="""
    Readers with the same initial weights, questions, masks and order are trained to fill in the objects of facts of a
    generated world; they differ in the passages they may read. Facts are trained (1, 4 or 16 times as often as the
    rarest), held out (in a passage, but in no training question) or withheld (nowhere: chance). Tests use wordings
    that do not occur in training. The answer is the most likely of the relation's <i>m</i> objects; a fact's stored
    bits are log<sub>2</sub> <i>m</i> + log<sub>2</sub> <i>p</i>(<i>o</i>), read without a passage. Elicited: the same
    after 200 updates on such questions about a quarter of the entities, tested on the others. A chance model has 0
    bits.
    """,
)
ENTERS = Method(
    id="retrieval-enters",
    title="Where an answer can be read",
    text="""
    <i>P</i><sub>l</sub>, the probability of the right object that a lens reads from state <i>l</i> at the mask. With
    <i>g</i><sub>l</sub> = <i>P</i><sub>l</sub>(passage) − <i>P</i><sub>l</sub>(no passage), half is the first state
    with <i>g</i><sub>l</sub> ≥ <i>g</i><sub>L</sub>/2, and the centre is Σ <i>l</i>·(<i>g</i><sub>l</sub> −
    <i>g</i><sub>l−1</sub>) / Σ (<i>g</i><sub>l</sub> − <i>g</i><sub>l−1</sub>), including downward steps; both are
    undefined where <i>g</i><sub>L</sub> is below .05. The passage is the right one, or the one that the reader ranks
    first. For memory, the gain is <i>P</i><sub>l</sub> without a passage minus a guess. Controls: the untrained
    model, a guess among the relation's objects, and withheld facts.
    """,
)
FLOW = Method(
    id="retrieval-flow",
    title="Attention knocked out, heads removed",
    text="""
    In all heads of a block and of all blocks above it, the tokens left of the arrow may not attend to those right of
    it (evidence: the passage; object: the answer in it). The value is the share of right answers that is lost; the
    control knocks out as many random edges of the same row. The copy score of a head is the share of questions in
    which its largest weight from the mask lies on the answer in the passage while the model gives that answer. Heads
    are removed in the order of that score; the control removes as many other heads, in five draws.
    """,
)
FOUND = Method(
    id="retrieval-found",
    title="Search, and what the reader makes of it",
    text="""
    hit@1 is the share of questions whose first passage holds the fact; control: passages drawn at random. π is the
    softmax of the retriever's scores over the candidates and the empty passage ∅, ρ the posterior given the answer.
    log <i>p</i>(<i>y</i>|<i>x</i>) = Σ ρ log <i>p</i>(<i>y</i>|<i>z</i>, <i>x</i>) − KL(ρ ‖ π): reader term minus
    retriever term. Retrieval utility is log <i>p</i>(<i>y</i>|<i>z</i>, <i>x</i>) − log <i>p</i>(<i>y</i>|∅,
    <i>x</i>); overlap is the share of a stale index's passages that a fresh one finds too. The memorisation ratio is
    <i>p</i><sub>old</sub> / (<i>p</i><sub>old</sub> + <i>p</i><sub>document</sub>) on passages that contradict a
    trained fact.
    """,
)
LEARNED = Method(
    id="retrieval-learned",
    title="Loss change of retriever and reader",
    text="""
    <i>A</i><sub>i</sub> = Δ<sub>i</sub> ∫ ∂<sub>i</sub><i>L</i>(<i>θ</i> + <i>s</i>Δ) d<i>s</i> between the weights
    before and after some updates, added up over a part of the model; Σ<sub>i</sub> <i>A</i><sub>i</sub> is the change
    of the loss. <i>L</i> = −log Σ<sub><i>z</i></sub> π(<i>z</i>) <i>p</i>(<i>y</i>|<i>z</i>, <i>x</i>) per masked
    token of fixed training queries, whose candidates <i>z</i> are the right passage, the best others by BM25 and ∅,
    the same in all variants and at all updates: with a model's own search, the candidates would change with its
    weights and the loss would jump. A closed book reads only ∅. “What weighs passages” is the scale of fixed scores
    and the score of ∅. After Lan et al. (2019) and Guu et al. (2020).
    """,
)
COURSE = Method(
    id="retrieval-course",
    title="Answers at kept updates",
    text="""
    At evenly spaced updates, the weights are kept, an index is built from them, and the same questions are asked.
    Log-likelihood: log <i>p</i>(<i>y</i>|<i>x</i>) with the passage summed out; retrieval utility: that minus log
    <i>p</i>(<i>y</i>|∅, <i>x</i>). Which of the two predicts later answers? Each, on trained facts, is correlated
    (Spearman) with the share of right answers about held-out facts at the next kept update, over all readers of a
    seed that read passages. Control: the updates of each training in random order. After Guu et al. (2020), appendix
    D.
    """,
)
ANSWERED = Method(
    id="retrieval-answered",
    title="Questions about real text",
    text="""
    Readers are trained to fill in the answers to questions about passages, one mask per token; they differ in the
    passages they may read. Each mask gets the word with the largest Σ<sub><i>z</i></sub> π(<i>z</i>)
    <i>p</i>(<i>w</i>|<i>z</i>, <i>x</i>); with a single passage, the word with the largest
    <i>p</i>(<i>w</i>|<i>z</i>, <i>x</i>). An answer is exact if it equals a right one apart from case, punctuation
    and articles (as in SQuAD's script). The right passage is the one that the question was asked about; a long
    passage is cut around its answers. Control: the most frequent right answer, given to all questions.
    """,
)
