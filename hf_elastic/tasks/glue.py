"""The tasks of GLUE, with the schemas of `nyu-mll/glue`.

Wang et al. 2019, GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language Understanding,
https://arxiv.org/abs/1804.07461
"""

from functools import partial

from .input_formats import Texts
from .task import Task

HUB_ID = "nyu-mll/glue"
ENTAILMENT = ("entailment", "not_entailment")

_task = partial(Task, benchmark="glue")

TASKS = (
    _task(
        name="cola",
        title="Corpus of Linguistic Acceptability",
        input_format=Texts(("sentence",)),
        label_names=("unacceptable", "acceptable"),
        metrics=("matthews_correlation",),
        test_splits={"test": "CoLA.tsv"},
        submitted_labels=(0, 1),
        settings={"max_length": 64},
        reference="Warstadt et al. 2019, https://arxiv.org/abs/1805.12471",
    ),
    _task(
        name="sst2",
        title="Stanford Sentiment Treebank",
        input_format=Texts(("sentence",)),
        label_names=("negative", "positive"),
        metrics=("accuracy",),
        test_splits={"test": "SST-2.tsv"},
        submitted_labels=(0, 1),
        settings={"max_length": 64},
        reference="Socher et al. 2013, Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank",
    ),
    _task(
        name="mrpc",
        title="Microsoft Research Paraphrase Corpus",
        input_format=Texts(("sentence1", "sentence2")),
        label_names=("not_equivalent", "equivalent"),
        metrics=("accuracy", "f1"),
        test_splits={"test": "MRPC.tsv"},
        submitted_labels=(0, 1),
        reference="Dolan and Brockett 2005, Automatically Constructing a Corpus of Sentential Paraphrases",
    ),
    _task(
        name="stsb",
        title="Semantic Textual Similarity Benchmark",
        input_format=Texts(("sentence1", "sentence2")),
        label_range=(0.0, 5.0),
        metrics=("pearson", "spearman"),
        test_splits={"test": "STS-B.tsv"},
        reference="Cer et al. 2017, https://arxiv.org/abs/1708.00055",
    ),
    _task(
        name="qqp",
        title="Quora Question Pairs",
        input_format=Texts(("question1", "question2")),
        label_names=("not_duplicate", "duplicate"),
        metrics=("accuracy", "f1"),
        test_splits={"test": "QQP.tsv"},
        submitted_labels=(0, 1),
        reference="Iyer, Dandekar and Csernai 2017, First Quora Dataset Release: Question Pairs",
    ),
    _task(
        name="mnli",
        title="Multi-Genre Natural Language Inference",
        input_format=Texts(("premise", "hypothesis")),
        label_names=("entailment", "neutral", "contradiction"),
        metrics=("accuracy",),
        validation_splits=("validation_matched", "validation_mismatched"),
        test_splits={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
        reference="Williams, Nangia and Bowman 2018, https://arxiv.org/abs/1704.05426",
    ),
    _task(
        name="qnli",
        title="Question Natural Language Inference",
        input_format=Texts(("question", "sentence")),
        label_names=ENTAILMENT,
        metrics=("accuracy",),
        test_splits={"test": "QNLI.tsv"},
        reference="Rajpurkar et al. 2016, https://arxiv.org/abs/1606.05250, as Wang et al. 2019 rearranged it",
    ),
    _task(
        name="rte",
        title="Recognizing Textual Entailment",
        input_format=Texts(("sentence1", "sentence2")),
        label_names=ENTAILMENT,
        metrics=("accuracy",),
        test_splits={"test": "RTE.tsv"},
        settings={"max_length": 256},
        reference="Dagan et al. 2006, Bar Haim et al. 2006, Giampiccolo et al. 2007, Bentivogli et al. 2009",
    ),
    _task(
        name="wnli",
        title="Winograd Natural Language Inference",
        input_format=Texts(("sentence1", "sentence2")),
        label_names=("not_entailment", "entailment"),
        metrics=("accuracy",),
        test_splits={"test": "WNLI.tsv"},
        submitted_labels=(0, 1),
        reference="Levesque, Davis and Morgenstern 2012, The Winograd Schema Challenge",
    ),
    _task(
        name="ax",
        title="Diagnostic of natural language inference",
        input_format=Texts(("premise", "hypothesis")),
        label_names=("entailment", "neutral", "contradiction"),
        metrics=("matthews_correlation",),
        train_split=None,
        validation_splits=(),
        test_splits={"test": "AX.tsv"},
        model_of="mnli",
        reference="Wang et al. 2019, https://arxiv.org/abs/1804.07461",
    ),
)
