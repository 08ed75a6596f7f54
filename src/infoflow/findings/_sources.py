"""The papers behind the claims."""

BOTTOM_UP = (
    "Voita, Sennrich and Titov 2019, The Bottom-up Evolution of Representations in the Transformer, EMNLP-IJCNLP "
    "(numbers read off its figures)"
)
HEAVY_LIFTING = (
    "Voita, Talbot, Moiseev, Sennrich and Titov 2019, Analyzing Multi-Head Self-Attention: Specialized Heads Do the "
    "Heavy Lifting, the Rest Can Be Pruned, ACL"
)
LESSONS = (
    "Zhang and Bowman 2018, Language Modeling Teaches You More than Translation Does: Lessons Learned Through "
    "Auxiliary Syntactic Task Analysis, BlackboxNLP"
)
GEOMETRY = (
    "Ethayarajh 2019, How Contextual are Contextualized Word Representations?, EMNLP-IJCNLP (numbers of its published "
    "code)"
)
ENCODER_SPACES = (
    "Vázquez, Celikkanat, Creutz and Tiedemann 2021, On the differences between BERT and MT encoder spaces and how to "
    "address them in translation tasks, ACL-IJCNLP Student Research Workshop"
)
CLARK = "Clark, Khandelwal, Levy and Manning 2019, What Does BERT Look At? An Analysis of BERT's Attention, BlackboxNLP"
SIXTEEN_HEADS = "Michel, Levy and Neubig 2019, Are Sixteen Heads Really Better than One?, NeurIPS"
LOSS_CHANGE = (
    "Lan, Liu, Zhou and Yosinski 2019, LCA: Loss Change Allocation for Neural Network Training, NeurIPS (abstract and "
    "published code)"
)
PARAMETER_CONTRIBUTIONS = (
    "Vázquez, Celikkanat, Ravishankar, Creutz and Tiedemann 2022, A Closer Look at Parameter Contributions When "
    "Training "
    "Neural Language and Translation Models, COLING (abstract; numbers and details from the project's slides)"
)
TRANSLATION_DYNAMICS = (
    "Zhu, Li, Liu, Zhao and Shi 2020, Understanding Learning Dynamics for Neural Machine Translation, arXiv 2004.02199 "
    "(abstract)"
)
COMPARISON = (
    "Li, Ji, Mickus, Segonne and Tiedemann 2024, A Comparison of Language Modeling and Translation as Multilingual "
    "Pretraining Objectives, EMNLP (abstract)"
)
ELECTRA_PAPER = (
    "Clark, Luong, Le and Manning 2020, ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators, "
    "ICLR (abstract)"
)
BART_PAPER = (
    "Lewis et al. 2020, BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, "
    "Translation, and Comprehension, ACL (abstract)"
)
ROBERTA = "Liu et al. 2019, RoBERTa: A Robustly Optimized BERT Pretraining Approach, arXiv 1907.11692"
ALBERT_PAPER = (
    "Lan, Chen, Goodman, Gimpel, Sharma and Soricut 2020, ALBERT: A Lite BERT for Self-supervised Learning of Language "
    "Representations, ICLR"
)
SPANBERT_PAPER = (
    "Joshi, Chen, Liu, Weld, Zettlemoyer and Levy 2020, SpanBERT: Improving Pre-training by Representing and "
    "Predicting Spans, TACL"
)
T5_PAPER = "Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, JMLR"
DISTILBERT = (
    "Sanh, Debut, Chaumond and Wolf 2019, DistilBERT, a distilled version of BERT: smaller, faster, cheaper and "
    "lighter, arXiv 1910.01108 (and the README of its code)"
)
SVCCA_PAPER = (
    "Raghu, Gilmer, Yosinski and Sohl-Dickstein 2017, SVCCA: Singular Vector Canonical Correlation Analysis for Deep "
    "Learning Dynamics and Interpretability, NeurIPS (images; as summarised)"
)
CONVERGENCE_DYNAMICS = (
    "Diehl Martinez, Lesci and Buttery 2024, Tending Towards Stability: Convergence Challenges in Small Language "
    "Models, Findings of EMNLP (as summarised; unverified)"
)
CIRCUITS_OVER_TRAINING = (
    "Tigges, Hanna, Yu and Biderman 2024, LLM Circuit Analyses Are Consistent Across Training and Scale, NeurIPS (as "
    "summarised)"
)
SIMILARITY = "Kornblith, Norouzi, Lee and Hinton 2019, Similarity of Neural Network Representations Revisited, ICML"
INDUCTION = "Olsson et al. 2022, In-context Learning and Induction Heads, Transformer Circuits Thread"
CHARACTERISTICS = (
    "Chang, Tu and Bergen 2024, Characterizing Learning Curves During Language Model Pre-Training: Learning, "
    "Forgetting, and Stability, TACL (published code)"
)
SAPHRA = "Saphra and Lopez 2019, Understanding Learning Dynamics of Language Models with SVCCA, NAACL (as summarised)"
SUDDEN_DROPS = (
    "Chen, Shwartz-Ziv, Cho, Leavitt and Saphra 2024, Sudden Drops in the Loss: Syntax Acquisition, Phase "
    "Transitions, and Simplicity Bias in MLMs, ICLR (as summarised)"
)
RAZZHIGAEV = (
    "Razzhigaev et al. 2024, The Shape of Learning: Anisotropy and Intrinsic Dimensions in Transformer-Based Models, "
    "Findings of EACL (as summarised)"
)
FOUR_PHASES = (
    "Fehlauer, Mahowald and Pimentel 2025, Convergence and Divergence of Language Models under Different Random Seeds, "
    "EMNLP (as summarised)"
)
NGRAM_STAGES = (
    "Chang and Bergen 2022 and Belrose et al. 2024 on n-grams early in training; the stages of Pythia models by their "
    "published data"
)
BLEVINS = (
    "Blevins, Gonen and Zettlemoyer 2022, Analyzing the Mono- and Cross-Lingual Pretraining Dynamics of Multilingual "
    "Language Models, EMNLP (as summarised)"
)
OURS = "infoflow: ours, exploratory"
SINKS = "Notes of 2026 on models of a billion parameters (as summarised; unverified)"
TRANSLATION_STAGES = (
    "Voita, Sennrich and Titov 2021, Language Modeling, Lexical Translation, Reordering: The Training Process of NMT "
    "through the Lens of Classical SMT, EMNLP (as summarised; which variant of the reordering score is unverified)"
)
SOURCE_AND_TARGET = (
    "Voita, Sennrich and Titov 2021, Analyzing the Source and Target Contributions to Predictions in Neural Machine "
    "Translation, ACL (as summarised)"
)
PIPELINE = (
    "Tenney, Das and Pavlick 2019, BERT Rediscovers the Classical NLP Pipeline, ACL (numbers of its published code)"
)
DESCRIPTION_LENGTH = (
    "Voita and Titov 2020, Information-Theoretic Probing with Minimum Description Length, EMNLP (published code; its "
    "bits mix nats and bits, ratios do not)"
)
CONTROL_TASKS = "Hewitt and Liang 2019, Designing and Interpreting Probes with Control Tasks, EMNLP-IJCNLP"
STRUCTURAL_PROBE = "Hewitt and Manning 2019, A Structural Probe for Finding Syntax in Word Representations, NAACL"
BERT_SCORE = "Zhang, Kishore, Wu, Weinberger and Artzi 2020, BERTScore: Evaluating Text Generation with BERT, ICLR"
HIERARCHICAL_SYNTAX = (
    "Blevins, Levy and Zettlemoyer 2018, Deep RNNs Encode Soft Hierarchical Syntax, ACL, as Voita's slides tell it of "
    "Transformers (unverified)"
)
SCIBERT_PAPER = "Beltagy, Lo and Cohan 2019, SciBERT: A Pretrained Language Model for Scientific Text, EMNLP-IJCNLP"
LEGAL_BERT_PAPER = (
    "Chalkidis, Fergadiotis, Malakasiotis, Aletras and Androutsopoulos 2020, LEGAL-BERT: The Muppets straight out of "
    "Law School, Findings of EMNLP (recalled, not read)"
)
TUNING_INSIDE = (
    "Merchant, Rahimtoroghi, Pavlick and Tenney 2020, What Happens To BERT Embeddings During Fine-tuning?, BlackboxNLP "
    "(recalled, not read)"
)
FEW_LABELS = (
    "Howard and Ruder 2018, Universal Language Model Fine-tuning for Text Classification, ACL (abstract; recalled)"
)
BERT_PAPER = (
    "Devlin, Chang, Lee and Toutanova 2019, BERT: Pre-training of Deep Bidirectional Transformers for Language "
    "Understanding, NAACL"
)
REALM = (
    "Guu, Lee, Tung, Pasupat and Chang 2020, REALM: Retrieval-Augmented Language Model Pre-Training, ICML (paper and "
    "published code)"
)
RAG = (
    "Lewis et al. 2020, Retrieval-Augmented Generation for Knowledge-Intensive NLP Tasks, NeurIPS (paper and published "
    "code)"
)
MORE_ROOM = (
    "Samuel, Charpentier and Wold 2024, More Room for Language: Investigating the Effect of Retrieval on Language "
    "Models, NAACL (abstract)"
)
RICH_PARAMETERS = (
    "Wadhwa et al. 2024, From RAGs to rich parameters: Probing how language models utilize external knowledge over "
    "parametric information for factual queries (causal LMs that are given)"
)
RETRIEVAL_HEADS = (
    "Wu, Wang, Xiao, Peng and Fu 2024, Retrieval Head Mechanistically Explains Long-Context Factuality (as summarised)"
)
KNOWLEDGE_CONFLICTS = (
    "Longpre et al. 2021, Entity-Based Knowledge Conflicts in Question Answering, EMNLP; Yu, Merullo and Pavlick 2023, "
    "Characterizing Mechanisms for Factual Recall in Language Models, EMNLP (both as summarised)"
)
FACTUAL_RECALL = (
    "infoflow: ours; compare Yu, Merullo and Pavlick 2023, Characterizing Mechanisms for Factual Recall in Language "
    "Models, EMNLP (as summarised)"
)
RARE_FACTS = (
    "Mallen, Asai, Zhong, Das, Khashabi and Hajishirzi 2023, When Not to Trust Language Models, ACL (recalled; "
    "unverified)"
)
DISTILLED_READER = (
    "Izacard and Grave 2021, Distilling Knowledge from Reader to Retriever for Question Answering, ICLR (published "
    "code)"
)
