"""A few rows of every task of GLUE and SuperGLUE, written by hand with the columns and label ids of the Hub.

The features are written here again, and not read from the table of tasks, so that a mistake in the table shows.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

# Label names in the order of the Hub's ids; none for a regression and for ReCoRD, which has no column `label`.
LABEL_NAMES: dict[tuple[str, str], tuple[str, ...]] = {
    ("glue", "cola"): ("unacceptable", "acceptable"),
    ("glue", "sst2"): ("negative", "positive"),
    ("glue", "mrpc"): ("not_equivalent", "equivalent"),
    ("glue", "stsb"): (),
    ("glue", "qqp"): ("not_duplicate", "duplicate"),
    ("glue", "mnli"): ("entailment", "neutral", "contradiction"),
    ("glue", "qnli"): ("entailment", "not_entailment"),
    ("glue", "rte"): ("entailment", "not_entailment"),
    ("glue", "wnli"): ("not_entailment", "entailment"),
    ("glue", "ax"): ("entailment", "neutral", "contradiction"),
    ("super_glue", "boolq"): ("False", "True"),
    ("super_glue", "cb"): ("entailment", "contradiction", "neutral"),
    ("super_glue", "copa"): ("choice1", "choice2"),
    ("super_glue", "multirc"): ("False", "True"),
    ("super_glue", "record"): (),
    ("super_glue", "rte"): ("entailment", "not_entailment"),
    ("super_glue", "wic"): ("False", "True"),
    ("super_glue", "wsc"): ("False", "True"),
    ("super_glue", "wsc.fixed"): ("False", "True"),
    ("super_glue", "axb"): ("entailment", "not_entailment"),
    ("super_glue", "axg"): ("entailment", "not_entailment"),
}
SPLITS = ("train", "validation", "test")
_OTHER_SPLITS: dict[tuple[str, str], tuple[str, ...]] = {
    ("glue", "mnli"): ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"),
    ("glue", "ax"): ("test",),
    ("super_glue", "axb"): ("test",),
    ("super_glue", "axg"): ("test",),
}
# The Hub has the labels of these test splits.
_OPEN_TESTS = {("super_glue", "axb"), ("super_glue", "axg")}


def splits_of(benchmark: str, name: str) -> tuple[str, ...]:
    """Gives the splits that the Hub has of a task."""
    return _OTHER_SPLITS.get((benchmark, name), SPLITS)


def rows_of(benchmark: str, name: str, split: str = "train") -> list[dict[str, Any]]:
    """Gives the rows of a split: the same ones of all splits, with hidden labels where the Hub hides them."""
    assert split in splits_of(benchmark, name), split
    rows = deepcopy(_ROWS[benchmark, name])
    if split.startswith("test") and (benchmark, name) not in _OPEN_TESTS:
        for row in rows:
            if name == "record":
                row["answers"] = []
            else:
                row["label"] = -1.0 if name == "stsb" else -1
    return rows


def dataset_of(benchmark: str, name: str, split: str = "train") -> Any:
    """Gives the rows of a split as a data set with the Hub's features."""
    import datasets

    return datasets.Dataset.from_list(rows_of(benchmark, name, split), features=_features(benchmark, name))


def write_task(folder: Path, benchmark: str, name: str) -> Path:
    """Writes `<folder>/<benchmark>/<name>/<split>.parquet` for every split, and gives the last folder."""
    task_folder = folder / benchmark / name
    task_folder.mkdir(parents=True)
    for split in splits_of(benchmark, name):
        dataset_of(benchmark, name, split).to_parquet(task_folder / f"{split}.parquet")
    return task_folder


def real_rows(glue: Path, benchmark: str, name: str, split: str = "train") -> Any:
    """Reads real rows beside the folder that the fixture `glue` gives, and skips the test where there are none."""
    import datasets

    path = glue.parent / benchmark / name / f"{split}.parquet"
    if not path.is_file():
        pytest.skip(f"no real rows of {benchmark} {name}, {split}")
    return datasets.load_dataset("parquet", data_files={split: str(path)})[split]


def _features(benchmark: str, name: str) -> Any:
    import datasets

    integer, text = datasets.Value("int32"), datasets.Value("string")
    texts, integers = datasets.List(text), datasets.List(integer)
    special = {
        "label": datasets.ClassLabel(names=list(LABEL_NAMES[benchmark, name]))
        if LABEL_NAMES[benchmark, name]
        else None,
        "entities": texts,
        "answers": texts,
        "entity_spans": {"text": texts, "start": integers, "end": integers},
    }
    names = list(LABEL_NAMES[benchmark, name])
    special["label"] = datasets.ClassLabel(names=names) if names else datasets.Value("float32")
    features = {}
    for column, value in _ROWS[benchmark, name][0].items():
        if column == "idx" and isinstance(value, dict):
            features[column] = dict.fromkeys(value, integer)
        else:
            features[column] = special.get(column, text if isinstance(value, str) else integer)
    return datasets.Features(features)


def _table(*rows: tuple[Any, ...], columns: str, idx: bool = True) -> list[dict[str, Any]]:
    """Rows from their values, numbered from 0."""
    named = [dict(zip(columns.split(), row, strict=True)) for row in rows]
    return [{**row, "idx": i} for i, row in enumerate(named)] if idx else named


_NLI = (
    ("A dog runs along the beach.", "An animal is outside.", 0),
    ("A dog runs along the beach.", "The dog is chasing a ball.", 1),
    ("A dog runs along the beach.", "The dog is asleep at home.", 2),
    ("Two women are singing on a stage.", "People are making music.", 0),
    ("Two women are singing on a stage.", "The women are sisters.", 1),
    ("Two women are singing on a stage.", "The stage is empty.", 2),
)
_RTE = (
    ("The company opened an office in Oslo last spring.", "The company has an office in Oslo.", 0),
    ("Rain is forecast for the whole of Sunday.", "It rained on Saturday.", 1),
    ("Marie Curie won the Nobel Prize twice.", "Marie Curie won a Nobel Prize.", 0),
    ("The bridge was closed for repairs in May.", "The bridge collapsed.", 1),
)
_WSC = _table(
    ("The trophy does not fit in the case because it is too big.", 0, 8, "The trophy", "it", 1),
    ("The trophy does not fit in the case because it is too big.", 6, 8, "the case", "it", 0),
    ("Anna thanked Lucy for the help she had given.", 0, 6, "Anna", "she", 0),
    ("Anna thanked Lucy for the help she had given.", 2, 6, "Lucy", "she", 1),
    columns="text span1_index span2_index span1_text span2_text label",
)
_STORM = "A storm reached Lisbon on Friday. Schools closed. By noon, 300 trees had fallen."
_BAKER = "Tom is a baker. His sister Ada sells the bread. They live above the shop."
_MULTIRC = (
    (
        0,
        0,
        _STORM,
        "When did the storm reach Lisbon?",
        ("On Friday", "On Sunday", "During the night"),
        (1, 0, 0),
    ),
    (0, 1, _STORM, "What did the storm do?", ("It closed a port", "It felled trees"), (0, 1)),
    (1, 2, _BAKER, "Who sells the bread?", ("Tom's sister",), (1,)),
)
_RECORD_PASSAGES = (
    (
        "Maria Lopez beat Jane Smith in the final in Paris.\n@highlight\nLopez had lost to Smith in London",
        ["Maria Lopez", "Jane Smith", "Paris", "Lopez", "Smith", "London"],
    ),
    (
        "The Danube flooded parts of Vienna. Mayor Karl Huber asked the army for help.\n@highlight\nHuber thanks army",
        ["Danube", "Vienna", "Karl Huber", "Huber"],
    ),
)
_RECORD_QUERIES = (
    (0, 0, '"I have waited for this since London," said @placeholder.', ["Maria Lopez", "Lopez"]),
    (0, 1, "The final was played on clay, as always in @placeholder.", ["Paris"]),
    (1, 2, "@placeholder said that the soldiers would stay for a week.", ["Karl Huber", "Huber"]),
    (1, 3, "By Monday the @placeholder was back in its bed.", ["Danube"]),
)


def _wic_row(word: str, sentence1: str, form1: str, sentence2: str, form2: str, label: int) -> tuple[Any, ...]:
    """A row of WiC, with the places of the word's forms."""
    start1, start2 = sentence1.index(form1), sentence2.index(form2)
    return word, sentence1, sentence2, start1, start2, start1 + len(form1), start2 + len(form2), label


def _record_row(passage: int, query: int, text: str, answers: list[str]) -> dict[str, Any]:
    """A row of ReCoRD, with one span of each entity."""
    article, entities = _RECORD_PASSAGES[passage]
    starts = [article.index(entity) for entity in entities]
    return {
        "passage": article,
        "query": text,
        "entities": entities,
        "entity_spans": {
            "text": entities,
            "start": starts,
            "end": [start + len(entity) for start, entity in zip(starts, entities, strict=True)],
        },
        "answers": answers,
        "idx": {"passage": passage, "query": query},
    }


def _multirc_rows() -> list[dict[str, Any]]:
    """The rows of MultiRC, whose answers are numbered through the whole split."""
    rows: list[dict[str, Any]] = []
    for paragraph, question, text, asked, answers, labels in _MULTIRC:
        for answer, label in zip(answers, labels, strict=True):
            idx = {"paragraph": paragraph, "question": question, "answer": len(rows)}
            rows.append({"paragraph": text, "question": asked, "answer": answer, "idx": idx, "label": label})
    return rows


_ROWS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("glue", "cola"): _table(
        ("The cat sat on the mat.", 1),
        ("The cat sat the mat on.", 0),
        ("She has been reading all day.", 1),
        ("She have being read all day.", 0),
        ("Who did you see?", 1),
        columns="sentence label",
    ),
    ("glue", "sst2"): _table(
        ("a warm and funny film ", 1),
        ("dull from the first minute to the last ", 0),
        ("it never finds its feet ", 0),
        ("a joy to watch ", 1),
        columns="sentence label",
    ),
    ("glue", "mrpc"): _table(
        ("Shares rose 3 % on Monday .", "On Monday , the shares gained 3 % .", 1),
        ("Shares rose 3 % on Monday .", "Shares fell on Tuesday .", 0),
        ("The mayor resigned after the vote .", "After the vote , the mayor stepped down .", 1),
        ("The mayor resigned after the vote .", "The vote was held on Sunday .", 0),
        columns="sentence1 sentence2 label",
    ),
    ("glue", "stsb"): _table(
        ("A man plays a guitar.", "A man is playing a guitar.", 5.0),
        ("A man plays a guitar.", "A woman plays a violin.", 1.75),
        ("A child is eating soup.", "The stock market fell.", 0.0),
        ("A child is eating soup.", "A kid eats some soup.", 4.6),
        ("A plane lands.", "A plane takes off.", 2.2),
        columns="sentence1 sentence2 label",
    ),
    ("glue", "qqp"): _table(
        ("How do I learn French?", "What is the best way to learn French?", 1),
        ("How do I learn French?", "Where is French spoken?", 0),
        ("Why is the sky blue?", "What makes the sky blue?", 1),
        ("Why is the sky blue?", "Why is the sea salty?", 0),
        columns="question1 question2 label",
    ),
    ("glue", "mnli"): _table(*_NLI, columns="premise hypothesis label"),
    ("glue", "qnli"): _table(
        ("Where was Ada Lovelace born?", "Ada Lovelace was born in London in 1815.", 0),
        ("Where was Ada Lovelace born?", "Her notes were published in 1843.", 1),
        ("How long is the tunnel?", "The tunnel is nine miles long.", 0),
        ("How long is the tunnel?", "The tunnel was dug by hand.", 1),
        columns="question sentence label",
    ),
    ("glue", "rte"): _table(*_RTE, columns="sentence1 sentence2 label"),
    ("glue", "wnli"): _table(
        ("The trophy does not fit in the case because it is too big.", "The trophy is too big.", 1),
        ("The trophy does not fit in the case because it is too big.", "The case is too big.", 0),
        ("Anna thanked Lucy for the help she had given.", "Lucy had given help.", 1),
        ("Anna thanked Lucy for the help she had given.", "Anna had given help.", 0),
        columns="sentence1 sentence2 label",
    ),
    ("glue", "ax"): _table(*_NLI, columns="premise hypothesis label"),
    ("super_glue", "boolq"): _table(
        ("is the moon larger than the earth", "Moon -- The Moon is about a quarter of Earth in diameter.", 0),
        ("does the moon orbit the earth", "Moon -- The Moon is Earth's only natural satellite.", 1),
        ("do bees make honey", "Honey -- Honey is made by several species of bees.", 1),
        ("is honey made by wasps alone", "Honey -- Honey is made by several species of bees.", 0),
        columns="question passage label",
    ),
    ("super_glue", "cb"): _table(
        ("He knew that the shop was shut. He went home.", "the shop was shut", 0),
        ("I do not think that she will come.", "she will come", 1),
        ("Did he say that the train was late?", "the train was late", 2),
        ("They forgot that it was Sunday.", "it was Sunday", 0),
        columns="premise hypothesis label",
    ),
    ("super_glue", "copa"): _table(
        ("The glass broke.", "It fell to the floor.", "It was full of milk.", "cause", 0),
        ("It began to rain.", "The sun came out.", "I opened my umbrella.", "effect", 1),
        ("The baby cried.", "The baby was hungry.", "The baby was asleep.", "cause", 0),
        ("I missed the bus.", "I was early for work.", "I was late for work.", "effect", 1),
        columns="premise choice1 choice2 question label",
    ),
    ("super_glue", "multirc"): _multirc_rows(),
    ("super_glue", "record"): [_record_row(*query) for query in _RECORD_QUERIES],
    ("super_glue", "rte"): _table(*_RTE, columns="premise hypothesis label"),
    ("super_glue", "wic"): _table(
        _wic_row("bank", "We sat on the bank of the river.", "bank", "The bank lent us money.", "bank", 0),
        _wic_row("run", "She runs every morning.", "runs", "He ran to the station.", "ran", 1),
        _wic_row("light", "Turn off the light.", "light", "The light in the hall is on.", "light", 1),
        _wic_row("cold", "The soup is cold.", "cold", "He caught a cold.", "cold", 0),
        columns="word sentence1 sentence2 start1 start2 end1 end2 label",
    ),
    ("super_glue", "wsc"): _WSC,
    ("super_glue", "wsc.fixed"): _WSC,
    ("super_glue", "axb"): _table(*_RTE, columns="sentence1 sentence2 label"),
    # Two rows that follow one another differ in the pronoun's gender alone.
    ("super_glue", "axg"): _table(
        ("The nurse told the visitor that she could leave at six.", "The nurse could leave at six.", 1),
        ("The nurse told the visitor that he could leave at six.", "The nurse could leave at six.", 1),
        ("The pilot thanked the guest because she had helped.", "The guest had helped.", 0),
        ("The pilot thanked the guest because he had helped.", "The guest had helped.", 0),
        columns="premise hypothesis label",
    ),
}
