"""The papers behind the claims, and how much of each was read."""

from functools import partial
from typing import Literal

SourceRead = Literal["whole", "numbers only", "abstract", "second hand"]
"""How much of a source was read.

In this order: its text; only its figures, tables, published code or data; only its abstract; or only reports of it,
by others, on slides or from memory.
"""


class Source(str):
    """Where a claim was published.

    A claim is marked as ours if its source was not read or says less than the claim.
    """

    read: SourceRead

    def __new__(cls, work: str, read: SourceRead, *, ours: bool = False) -> "Source":
        ours_too = (ours or read == "second hand") and not work.startswith("infoflow: ours, after ")
        source = super().__new__(cls, f"infoflow: ours, after {work}" if ours_too else work)
        source.read = read
        return source

    @property
    def beyond(self) -> "Source":
        """This source for a claim of ours that goes beyond it."""
        return Source(self, self.read, ours=True)


_read = partial(Source, read="whole")
_numbers = partial(Source, read="numbers only")
_abstract = partial(Source, read="abstract")
_reported = partial(Source, read="second hand")

OURS = "infoflow: ours, exploratory"
BOTTOM_UP = _numbers(
    "Voita, Sennrich and Titov 2019, The Bottom-up Evolution of Representations in the Transformer, EMNLP-"
    "IJCNLP (numbers read off its figures)"
)
HEAVY_LIFTING = _numbers(
    "Voita, Talbot, Moiseev, Sennrich and Titov 2019, Analyzing Multi-Head Self-Attention: Specialized Heads "
    "Do the Heavy Lifting, the Rest Can Be Pruned, ACL"
)
LESSONS = _abstract(
    "Zhang and Bowman 2018, Language Modeling Teaches You More than Translation Does: Lessons Learned Through"
    " Auxiliary Syntactic Task Analysis, BlackboxNLP"
)
LESSONS_ON_WORDS = _abstract(f"{LESSONS} (word identity: from memory)", ours=True)
GEOMETRY = _numbers(
    "Ethayarajh 2019, How Contextual are Contextualized Word Representations?, EMNLP-IJCNLP (numbers of its "
    "published code)"
)
ENCODER_SPACES = _reported(
    "Vázquez, Celikkanat, Creutz and Tiedemann 2021, On the differences between BERT and MT encoder spaces "
    "and how to address them in translation tasks, ACL-IJCNLP Student Research Workshop"
)
CLARK = _numbers(
    "Clark, Khandelwal, Levy and Manning 2019, What Does BERT Look At? An Analysis of BERT's Attention, BlackboxNLP"
)
SIXTEEN_HEADS = _abstract(
    "Michel, Levy and Neubig 2019, Are Sixteen Heads Really Better than One?, NeurIPS (numbers as others "
    "summarise its tables)"
)
HEADS_OVER_TASKS = _abstract(f"{SIXTEEN_HEADS}, where domains of one task are compared", ours=True)
LOSS_CHANGE = _abstract(
    "Lan, Liu, Zhou and Yosinski 2019, LCA: Loss Change Allocation for Neural Network Training, NeurIPS (and "
    "its published code)"
)
LOSS_CHANGE_RECALLED = _reported(
    "Lan, Liu, Zhou and Yosinski 2019, LCA: Loss Change Allocation for Neural Network Training, NeurIPS"
)
PARAMETER_CONTRIBUTIONS = _abstract(
    "Vázquez, Celikkanat, Ravishankar, Creutz and Tiedemann 2022, A Closer Look at Parameter Contributions "
    "When Training Neural Language and Translation Models, COLING"
)
CONTRIBUTIONS_ON_SLIDES = _reported(f"{PARAMETER_CONTRIBUTIONS} (as reported on the project's slides)")
TRANSLATION_DYNAMICS = _abstract(
    "Zhu, Li, Liu, Zhao and Shi 2020, Understanding Learning Dynamics for Neural Machine Translation, arXiv 2004.02199"
)
COMPARISON = _abstract(
    "Li, Ji, Mickus, Segonne and Tiedemann 2024, A Comparison of Language Modeling and Translation as "
    "Multilingual Pretraining Objectives, EMNLP (where architectures are stacks, not families of blocks)",
    ours=True,
)
ELECTRA_PAPER = _abstract(
    "Clark, Luong, Le and Manning 2020, ELECTRA: Pre-training Text Encoders as Discriminators Rather Than "
    "Generators, ICLR"
)
BART_PAPER = _abstract(
    "Lewis et al. 2020, BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, "
    "Translation, and Comprehension, ACL"
)
ROBERTA = _reported("Liu et al. 2019, RoBERTa: A Robustly Optimized BERT Pretraining Approach, arXiv 1907.11692")
ALBERT_PAPER = _abstract(
    "Lan, Chen, Goodman, Gimpel, Sharma and Soricut 2020, ALBERT: A Lite BERT for Self-supervised Learning of"
    " Language Representations, ICLR (which does not name next-sentence prediction)",
    ours=True,
)
SPANBERT_PAPER = _numbers(
    "Joshi, Chen, Liu, Weld, Zettlemoyer and Levy 2020, SpanBERT: Improving Pre-training by Representing and "
    "Predicting Spans, TACL (the README of its code)"
)
T5_PAPER = _reported(
    "Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, JMLR"
)
DISTILBERT = _numbers(
    "Sanh, Debut, Chaumond and Wolf 2019, DistilBERT, a distilled version of BERT: smaller, faster, cheaper "
    "and lighter, arXiv 1910.01108 (the README of its code)"
)
SVCCA_PAPER = _reported(
    "Raghu, Gilmer, Yosinski and Sohl-Dickstein 2017, SVCCA: Singular Vector Canonical Correlation Analysis "
    "for Deep Learning Dynamics and Interpretability, NeurIPS (images)"
)
CONVERGENCE_DYNAMICS = _abstract(
    "Diehl Martinez, Lesci and Buttery 2024, Tending Towards Stability: Convergence Challenges in Small "
    "Language Models, Findings of EMNLP"
)
CIRCUITS_OVER_TRAINING = _abstract(
    "Tigges, Hanna, Yu and Biderman 2024, LLM Circuit Analyses Are Consistent Across Training and Scale, NeurIPS"
)
SIMILARITY = _reported(
    "Kornblith, Norouzi, Lee and Hinton 2019, Similarity of Neural Network Representations Revisited, ICML"
)
INDUCTION = _read("Olsson et al. 2022, In-context Learning and Induction Heads, Transformer Circuits Thread")
CHARACTERISTICS = _numbers(
    "Chang, Tu and Bergen 2024, Characterizing Learning Curves During Language Model Pre-Training: Learning, "
    "Forgetting, and Stability, TACL"
)
SAPHRA_AND_OURS = _abstract(
    "Saphra and Lopez 2019, Understanding Learning Dynamics of Language Models with SVCCA, NAACL (that "
    "dependencies and coreference follow is not in it)",
    ours=True,
)
SUDDEN_DROPS = _abstract(
    "Chen, Shwartz-Ziv, Cho, Leavitt and Saphra 2024, Sudden Drops in the Loss: Syntax Acquisition, Phase "
    "Transitions, and Simplicity Bias in MLMs, ICLR"
)
RAZZHIGAEV = _reported(
    "Razzhigaev et al. 2024, The Shape of Learning: Anisotropy and Intrinsic Dimensions in Transformer-Based "
    "Models, Findings of EACL"
)
FOUR_PHASES = _abstract(
    "Fehlauer, Mahowald and Pimentel 2025, Convergence and Divergence of Language Models under Different "
    "Random Seeds, EMNLP"
)
NGRAM_STAGES = _numbers(
    "Chang and Bergen 2022 and Belrose et al. 2024 on n-grams early in training; the stages of Pythia models "
    "by their published data"
)
BLEVINS = _reported(
    "Blevins, Gonen and Zettlemoyer 2022, Analyzing the Mono- and Cross-Lingual Pretraining Dynamics of "
    "Multilingual Language Models, EMNLP"
)
TRANSLATION_STAGES = _abstract(
    "Voita, Sennrich and Titov 2021, Language Modeling, Lexical Translation, Reordering: The Training Process of NMT "
    "through the Lens of Classical SMT, EMNLP (we do not know which variant of the reordering score it uses)"
)
SOURCE_AND_TARGET = _reported(
    "Voita, Sennrich and Titov 2021, Analyzing the Source and Target Contributions to Predictions in Neural "
    "Machine Translation, ACL"
)
PIPELINE = _numbers(
    "Tenney, Das and Pavlick 2019, BERT Rediscovers the Classical NLP Pipeline, ACL (numbers of its published code)"
)
DESCRIPTION_LENGTH = _numbers(
    "Voita and Titov 2020, Information-Theoretic Probing with Minimum Description Length, EMNLP (its "
    "published code, whose bits mix nats and bits; its ratios do not)"
)
CONTROL_TASKS = _reported("Hewitt and Liang 2019, Designing and Interpreting Probes with Control Tasks, EMNLP-IJCNLP")
STRUCTURAL_PROBE = _reported(
    "Hewitt and Manning 2019, A Structural Probe for Finding Syntax in Word Representations, NAACL"
)
BERT_SCORE = _numbers(
    "Zhang, Kishore, Wu, Weinberger and Artzi 2020, BERTScore: Evaluating Text Generation with BERT, ICLR"
)
HIERARCHICAL_SYNTAX = _reported(
    "Blevins, Levy and Zettlemoyer 2018, Deep RNNs Encode Soft Hierarchical Syntax, ACL, as Voita's slides report it "
    "for Transformers"
)
SCIBERT_PAPER = _reported(
    "Beltagy, Lo and Cohan 2019, SciBERT: A Pretrained Language Model for Scientific Text, EMNLP-IJCNLP"
)
LEGAL_BERT_PAPER = _reported(
    "Chalkidis, Fergadiotis, Malakasiotis, Aletras and Androutsopoulos 2020, LEGAL-BERT: The Muppets straight"
    " out of Law School, Findings of EMNLP"
)
TUNING_INSIDE = _abstract(
    "Merchant, Rahimtoroghi, Pavlick and Tenney 2020, What Happens To BERT Embeddings During Fine-tuning?, BlackboxNLP"
)
TUNING_FORGETS = TUNING_INSIDE.beyond
FEW_LABELS = _reported("Howard and Ruder 2018, Universal Language Model Fine-tuning for Text Classification, ACL")
BERT_PAPER = _reported(
    "Devlin, Chang, Lee and Toutanova 2019, BERT: Pre-training of Deep Bidirectional Transformers for "
    "Language Understanding, NAACL"
)
REALM = _read("Guu, Lee, Tung, Pasupat and Chang 2020, REALM: Retrieval-Augmented Language Model Pre-Training, ICML")
RAG = _read("Lewis et al. 2020, Retrieval-Augmented Generation for Knowledge-Intensive NLP Tasks, NeurIPS")
MORE_ROOM = _abstract(
    "Samuel, Charpentier and Wold 2024, More Room for Language: Investigating the Effect of Retrieval on "
    "Language Models, NAACL"
)
RICH_PARAMETERS = _read(
    "Wadhwa et al. 2024, From RAGs to rich parameters: Probing how language models utilize external knowledge"
    " over parametric information for factual queries (pretrained causal LMs)"
)
RETRIEVAL_HEADS = _reported(
    "Wu, Wang, Xiao, Peng and Fu 2024, Retrieval Head Mechanistically Explains Long-Context Factuality"
)
KNOWLEDGE_CONFLICTS = _reported(
    "Longpre et al. 2021, Entity-Based Knowledge Conflicts in Question Answering, EMNLP; Yu, Merullo and "
    "Pavlick 2023, Characterizing Mechanisms for Factual Recall in Language Models, EMNLP"
)
FACTUAL_RECALL = _reported(
    "Yu, Merullo and Pavlick 2023, Characterizing Mechanisms for Factual Recall in Language Models, EMNLP"
)
RARE_FACTS = _reported("Mallen, Asai, Zhong, Das, Khashabi and Hajishirzi 2023, When Not to Trust Language Models, ACL")
DISTILLED_READER = _numbers(
    "Izacard and Grave 2021, Distilling Knowledge from Reader to Retriever for Question Answering, ICLR"
)
