"""Methods paragraphs for the figures of probes."""

from .._figure import Method

PROBES = Method(
    id="probes",
    title="Probes",
    text="""
    The model is frozen; a classifier is trained on the vectors of one layer at a time: linear,
    softmax(<i>Wh</i><sub>l</sub> + <i>b</i>), or with a hidden layer, stopped by its loss on other sentences. Words are
    means of their tokens; parts share no sentence. Accuracy is measured on test sentences and averaged over seeds of
    the probe. Its controls are the majority class, which is always the most frequent label; layer 0; the same probe on
    the same architecture with random weights (Zhang and Bowman 2018); and a control task (Hewitt and Liang 2019), which
    gives every type of word one label drawn from those of the task, so that only memorising types solves it.
    Selectivity is accuracy(task) − accuracy(control).
    """,
)


CODELENGTH = Method(
    id="probe-codelength",
    title="Description length",
    text="""
    Bits in which the labels <i>y</i> can be sent to someone who has the vectors (Voita and Titov 2020). Online code:
    <i>t</i><sub>1</sub> log<sub>2</sub> <i>K</i> − Σ<sub>i</sub> log<sub>2</sub> <i>p</i><sub>θi</sub>(block
    <i>i</i> + 1), with a fresh probe θ<sub>i</sub> trained on the blocks before it. Variational code: KL(posterior ‖
    prior) of a Bayesian probe, its model part, and the cross-entropy of the labels, its data part. Compression is
    <i>N</i> log<sub>2</sub> <i>K</i> / bits for <i>N</i> labels of <i>K</i> classes: 1 where vectors carry no
    information. All in bits; the authors' code adds nats to bits, so that its numbers are higher.
    """,
)

DEPTH = Method(
    id="probe-depth",
    title="Edge probes, mixing weights and cumulative scores",
    text="""
    One probe per task reads all layers at once, through Σ<sub>l</sub> <i>s</i><sub>l</sub> <i>h</i><sub>l</sub> with
    <i>s</i> = softmax(<i>a</i>) trained (Tenney et al. 2019). Centre of gravity: Σ <i>l s</i><sub>l</sub>.
    <i>K</i>(<i>s</i>) = KL(<i>s</i> ‖ uniform), in bits: 0 for equal weights, log<sub>2</sub>(<i>L</i> + 1) for one
    layer alone. Cumulative probes see layers 0 to <i>l</i> only; Δ<sub>l</sub> = score(<i>l</i>) − score(<i>l</i> − 1);
    expected layer: Σ <i>l</i> Δ<sub>l</sub> / Σ Δ<sub>l</sub>, with negative Δ kept. It is ill-defined where
    layers gain little in all (less than 2 points) or more than a fifth of all change is loss, and may then lie outside
    the model.
    """,
)

TREES = Method(
    id="probe-trees",
    title="Structural probe",
    text="""
    A matrix <i>B</i> is trained so that ‖<i>B</i>(<i>h</i><sub>i</sub> − <i>h</i><sub>j</sub>)‖² is the number of edges
    between words <i>i</i> and <i>j</i> of the dependency tree, another so that ‖<i>Bh</i><sub>i</sub>‖² is a word's
    depth (Hewitt and Manning 2019). UUAS: the share of gold edges in the minimum spanning tree of predicted distances,
    without punctuation. Spearman's correlation of predicted and gold distances is averaged within sentences of each
    length, then over lengths. Root: the word of least predicted depth.
    """,
)

PAIRS = Method(
    id="minimal-pairs",
    title="Minimal pairs",
    text="""
    (1 / <i>P</i>) Σ<sub>p</sub> [<i>s</i><sub>l</sub>(acceptable) &gt; <i>s</i><sub>l</sub>(other)], a tie counts half.
    <i>s</i><sub>l</sub> is the log-probability of the whole sentence where every token is predicted from layer
    <i>l</i> by the model's own output (logit lens); for masked LMs, it is the pseudo-log-likelihood, which masks each
    token in turn (Salazar et al. 2020). Pairs as in BLiMP (Warstadt et al. 2020). Nothing is trained.
    """,
)

FACTS = Method(
    id="facts-filled-in",
    title="Facts filled in",
    text="""
    P@1: the share of facts (subject, relation, object) whose object is the most likely token for the blank in the
    relation's prompt. Candidates are the objects of all facts that are one token in every model (Petroni et al. 2019).
    At layer <i>l</i> the state of the blank goes through the model's own output (logit lens). Log-probabilities are
    averaged over a family's prompts (Jiang et al. 2020). "All relations": the mean over relations. Nothing is trained.
    """,
)

BERT_SCORES = Method(
    id="bert-score",
    title="BERTScore by layer",
    text="""
    Each token of one text is matched with the token of the other whose vector of layer <i>l</i> has the highest cosine
    with its own. Recall is the mean over the reference's tokens, precision over the candidate's,
    <i>F</i> = 2<i>PR</i> / (<i>P</i> + <i>R</i>) (Zhang et al. 2020). Tokens such as [CLS] do not count. Random pairs
    combine two different scored texts; rescaled scores are (<i>s</i> − <i>b</i>) / (1 − <i>b</i>) with the mean
    <i>b</i> of random pairs in the same layer. Agreement is Pearson's correlation of <i>F</i> with the scores that
    people gave the same pairs; "permuted scores" are these in random order. Intervals resample pairs.
    """,
)
