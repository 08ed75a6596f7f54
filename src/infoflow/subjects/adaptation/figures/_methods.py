"""Methods paragraphs for the figures of tuned models."""

from infoflow.report._figure import Method

SCORES = Method(
    id="tuned-scores",
    title="Scores of tuned models",
    text="""
    A head of the task is put on a pretrained model, and all weights are trained on labelled examples, or those that the
    method names; the peak learning rate is the one of a small grid that does best on development examples. The score is
    the task's main metric on test examples: accuracy, F1, Matthews' or another correlation, 1 being the best. The same
    is done to the untrained model (from scratch), to frozen features (<i>W</i>·<i>h</i> alone is trained), and, as a
    control, with labels that changed places. A guess needs no model: it gives the answer that is right most often in
    training, or, where a text or an answer from a passage is wanted, the first sentence, whichever does better there.
    Several seeds of tuning are averaged; means over tasks weigh all tasks alike.
    """,
)
WORTH = Method(
    id="tuned-worth",
    title="What pretraining is worth in labelled examples",
    text="""
    Let <i>p</i>(<i>n</i>) and <i>s</i>(<i>n</i>) be the scores of the pretrained and the untrained model tuned on
    <i>n</i> examples, straight lines between the sizes over log <i>n</i>. The gap at <i>n</i> is the size <i>m</i> with
    <i>s</i>(<i>m</i>) = <i>p</i>(<i>n</i>); pretraining is worth <i>m</i> / <i>n</i> times the examples there. Where
    even the largest size does not get the untrained model so far, only a lower bound is told.
    """,
)
INSIDE = Method(
    id="tuned-inside",
    title="Before against after tuning",
    text="""
    Distance of a layer's space: 1 − similarity of its states on the task's test texts before and after tuning, by
    PWCCA (Morcos et al. 2018), linear CKA (Kornblith et al. 2019) or RSA, Spearman's correlation of the similarities of
    pairs of words. Distance of weights: ‖<i>W</i><sub>after</sub> − <i>W</i><sub>before</sub>‖ /
    ‖<i>W</i><sub>before</sub>‖. Attention: Jensen–Shannon divergence of a head's attention before and after. Labels and
    properties of words are read by linear probes from frozen states, as elsewhere on this page.
    """,
)
SWAPS = Method(
    id="tuned-swaps",
    title="Layers taken back",
    text="""
    The lower <i>b</i> blocks (with the embeddings), the upper <i>b</i> blocks or a single one of the tuned model get
    the weights that they had before tuning, the others stay tuned. Taken are the score of the task with the tuned head,
    and the pretraining loss with the head of pretraining, in nats per predicted token. It is an intervention: nothing
    is trained again. What the loss falls by is what those blocks had forgotten.
    """,
)
ALLOCATION = Method(
    id="tuned-allocation",
    title="Who learned the task",
    text="""
    Loss change allocation (Lan et al. 2019): each step of tuning changes the loss by ∇<i>L</i>·Δθ, which is a sum over
    weights, so that every weight has its share, Σ<sub>t</sub> ∂<i>L</i>/∂θ<sub>i</sub> Δθ<sub>i</sub>, integrated along
    the step. Negative: it helped. Shares are of the sum over all weights.
    """,
)
HEADS = Method(
    id="tuned-heads",
    title="Heads before and after tuning",
    text="""
    Confidence: mean over queries of the strongest attention weight. Importance before: what the pretraining loss rises
    by when the head is taken away; after: what the task's loss rises by. Both in nats, of different losses, so that
    they are compared by rank: important is the quarter of the heads that costs most. Kept: in both quarters; gained:
    only after; lost: only before. Two random quarters share a sixteenth of all heads.
    """,
)
