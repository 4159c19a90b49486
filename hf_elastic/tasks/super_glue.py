"""The tasks of SuperGLUE, with the schemas of `aps/super_glue`.

Wang et al. 2019, SuperGLUE: A Stickier Benchmark for General-Purpose Language Understanding Systems,
https://arxiv.org/abs/1905.00537
"""

from functools import partial

from .glue import ENTAILMENT
from .input_formats import Answers, Choices, Entities, Texts
from .marked_spans import MarkedMentions, MarkedWords
from .task import Task

HUB_ID = "aps/super_glue"
_NO_YES = ("False", "True")

# A few hundred rows give too few steps in a few passes.
_FEW_ROWS = {"batch_size": 16, "finetune_epochs": 5.0, "cotrain_epochs": 5.0}

_task = partial(Task, benchmark="super_glue")
_WSC = {
    "title": "Winograd Schema Challenge",
    "input_format": MarkedMentions(),
    "label_names": _NO_YES,
    "metrics": ("accuracy",),
    "test_splits": {"test": "WSC.jsonl"},
    "settings": _FEW_ROWS,
    "reference": "Levesque, Davis and Morgenstern 2012, The Winograd Schema Challenge",
}

TASKS = (
    _task(
        name="boolq",
        title="Boolean Questions",
        input_format=Texts(("question", "passage")),
        label_names=_NO_YES,
        metrics=("accuracy",),
        test_splits={"test": "BoolQ.jsonl"},
        submitted_labels=("false", "true"),
        settings={"max_length": 256},
        reference="Clark et al. 2019, https://arxiv.org/abs/1905.10044",
    ),
    _task(
        name="cb",
        title="CommitmentBank",
        input_format=Texts(("premise", "hypothesis")),
        label_names=("entailment", "contradiction", "neutral"),
        metrics=("accuracy", "f1_macro"),
        test_splits={"test": "CB.jsonl"},
        settings={"max_length": 256, **_FEW_ROWS},
        reference="De Marneffe, Simons and Tonhauser 2019, The CommitmentBank",
    ),
    _task(
        name="copa",
        title="Choice of Plausible Alternatives",
        input_format=Choices(),
        label_names=("choice1", "choice2"),
        metrics=("accuracy",),
        test_splits={"test": "COPA.jsonl"},
        submitted_labels=(0, 1),
        settings={"max_length": 64, **_FEW_ROWS},
        reference="Roemmele, Bejan and Gordon 2011, Choice of Plausible Alternatives",
    ),
    _task(
        name="multirc",
        title="Multi-Sentence Reading Comprehension",
        input_format=Answers(),
        label_names=_NO_YES,
        metrics=("f1_answers", "exact_match"),
        test_splits={"test": "MultiRC.jsonl"},
        submitted_labels=(0, 1),
        settings={"max_length": 512},
        reference="Khashabi et al. 2018, Looking Beyond the Surface",
    ),
    _task(
        name="record",
        title="Reading Comprehension with Commonsense Reasoning",
        input_format=Entities(),
        label_names=_NO_YES,
        label_column="answers",
        metrics=("f1", "exact_match"),
        test_splits={"test": "ReCoRD.jsonl"},
        settings={"max_length": 512},
        reference="Zhang et al. 2018, https://arxiv.org/abs/1810.12885",
    ),
    _task(
        name="rte",
        title="Recognizing Textual Entailment",
        input_format=Texts(("premise", "hypothesis")),
        label_names=ENTAILMENT,
        metrics=("accuracy",),
        test_splits={"test": "RTE.jsonl"},
        settings={"max_length": 256},
        reference="Dagan et al. 2006, Bar Haim et al. 2006, Giampiccolo et al. 2007, Bentivogli et al. 2009",
    ),
    _task(
        name="wic",
        title="Words in Context",
        input_format=MarkedWords(),
        label_names=_NO_YES,
        metrics=("accuracy",),
        test_splits={"test": "WiC.jsonl"},
        submitted_labels=("false", "true"),
        reference="Pilehvar and Camacho-Collados 2019, https://arxiv.org/abs/1808.09121",
    ),
    _task(name="wsc", **_WSC),
    _task(name="wsc.fixed", form_of="wsc", **_WSC),
    _task(
        name="axb",
        title="Broad-coverage diagnostic",
        input_format=Texts(("sentence1", "sentence2")),
        label_names=ENTAILMENT,
        metrics=("matthews_correlation",),
        train_split=None,
        validation_splits=(),
        test_splits={"test": "AX-b.jsonl"},
        model_of="rte",
        reference="Wang et al. 2019, https://arxiv.org/abs/1905.00537",
    ),
    _task(
        name="axg",
        title="Winogender diagnostic",
        input_format=Texts(("premise", "hypothesis")),
        label_names=ENTAILMENT,
        metrics=("accuracy", "gender_parity"),
        train_split=None,
        validation_splits=(),
        test_splits={"test": "AX-g.jsonl"},
        model_of="rte",
        reference="Rudinger et al. 2018, https://arxiv.org/abs/1804.09301",
    ),
)
