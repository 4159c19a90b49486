"""Reading, checking, splitting and tokenising labelled text, on real GLUE rows and on files with one fault each."""

from collections import Counter

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from transformers import AutoTokenizer, DataCollatorWithPadding

from hf_elastic.tasks.text_classification import encode, read


def dataset(**columns):
    return Dataset.from_dict(columns)


@pytest.mark.parametrize(
    ("task", "texts", "rows", "names"),
    [
        ("sst2", ("sentence",), (67349, 872), ("negative", "positive")),
        ("mrpc", ("sentence1", "sentence2"), (3668, 408), ("not_equivalent", "equivalent")),
        ("qqp", ("question1", "question2"), (9309, 1000), ("not_duplicate", "duplicate")),
        ("mnli", ("premise", "hypothesis"), (10471, 9815), ("entailment", "neutral", "contradiction")),
        ("stsb", ("sentence1", "sentence2"), (5749, 1500), ()),
    ],
)
def test_glue_tasks_are_read_without_a_hint(glue, task, texts, rows, names):
    data = read(glue / task)
    assert data.text_columns == texts
    assert (len(data.train), len(data.validation)) == rows
    assert data.test is None
    assert data.labels.names == names
    assert data.labels.problem_type == ("single_label_classification" if names else "regression")


def test_the_settings_are_those_a_classification_head_takes(glue):
    assert read(glue / "rte").model_settings == {
        "num_labels": 2,
        "id2label": {0: "entailment", 1: "not_entailment"},
        "label2id": {"entailment": 0, "not_entailment": 1},
        "problem_type": "single_label_classification",
    }
    assert read(glue / "stsb").model_settings["num_labels"] == 1


def test_columns_can_be_named_and_others_are_left_out(csv_file):
    path = csv_file(
        "id,title,body,topic", "1,Cup,Won,sport", "2,Vote,Held,politics", "3,Game,Lost,sport", "4,Bill,On,politics"
    )
    data = read(path, text_columns=["title", "body"], label_column="topic", validation_fraction=0.5)
    assert data.train.column_names == ["title", "body", "topic"]
    assert data.labels.names == ("politics", "sport")
    single = read(path, text_columns="body", label_column="topic", validation_fraction=0.5)
    assert single.text_columns == ("body",)


def test_a_part_is_held_out_where_there_is_no_validation_split(glue):
    rows = Dataset.from_parquet(str(glue / "cola" / "train.parquet"))
    data, again, other = read(rows), read(rows), read(rows, seed=7)
    assert len(data.train) + len(data.validation) == len(rows)
    assert len(data.validation) == pytest.approx(0.1 * len(rows), abs=1)
    share = [Counter(split["label"])[1] / len(split) for split in (data.train, data.validation)]
    assert share[0] == pytest.approx(share[1], abs=1e-3)
    assert data.validation["sentence"][:] == again.validation["sentence"][:]
    assert data.validation["sentence"][:] != other.validation["sentence"][:]


def test_numbers_are_held_out_too(csv_file):
    data = read(csv_file("text,score", *(f"text {i},{i / 10}" for i in range(20))))
    assert (len(data.train), len(data.validation)) == (18, 2)


def test_validation_rows_are_halved_where_there_are_no_test_rows():
    rows = dataset(text=[f"text {i}" for i in range(40)], label=["yes", "no"] * 20)
    splits = DatasetDict(train=rows, validation=rows)
    halved = read(splits).with_test()
    assert Counter(halved.validation["label"]) == Counter(halved.test["label"]) == {0: 10, 1: 10}
    assert sorted([*halved.validation["text"], *halved.test["text"]]) == sorted(rows["text"])
    assert halved.train["text"] == read(splits).train["text"]
    given = read(DatasetDict(train=rows, validation=rows, test=rows))
    assert given.with_test() is given
    single = read(DatasetDict(train=rows, validation=rows.select([0])))
    with pytest.raises(ValueError, match="1 validation rows are too few"):
        single.with_test()


def test_limit_keeps_the_proportions_of_the_labels(glue):
    data = read(glue / "cola")
    small = data.limit(400)
    assert len(small.train) == 400
    assert Counter(small.train["label"])[1] / len(small.train) == pytest.approx(0.7044, abs=0.002)
    assert len(small.validation) == len(data.validation)
    assert data.limit(10**6) is data


def test_a_test_split_without_labels_is_left_out(caplog):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["a", "b"])})
    labelled = Dataset.from_dict({"text": ["x", "y"], "label": [0, 1]}, features=features)
    hidden = Dataset.from_dict({"text": ["z"], "label": [-1]}, features=features)
    assert read(DatasetDict(train=labelled, validation=labelled, test=hidden)).test is None
    with pytest.raises(ValueError, match="Label '-1' in row 0 of the test data"):
        read(DatasetDict(train=labelled, validation=labelled, test=hidden), test="test")


def test_encoding_gives_what_a_collator_takes(glue, minilm):
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    data = read(glue / "wnli").limit(64)
    encoded = encode(data, tokenizer, max_length=24)
    assert set(encoded) == {"train", "validation"}
    assert max(map(len, encoded["train"]["input_ids"])) == 24
    assert encoded["train"]["labels"][:] == data.train["label"][:]
    row = data.validation[0]
    expected = tokenizer(row["sentence1"], row["sentence2"], truncation=True, max_length=24)
    assert encoded["validation"][0] == {**expected, "labels": row["label"]}
    batch = DataCollatorWithPadding(tokenizer)([encoded["train"][i] for i in range(8)])
    assert batch["input_ids"].shape[0] == 8


def test_a_length_beyond_the_model_is_an_error(glue, minilm):
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    with pytest.raises(ValueError, match="max_length=4096: this tokenizer's model takes from 3 to 512 tokens"):
        encode(read(glue / "wnli"), tokenizer, max_length=4096)


TEXTS, LABELS = ["a", "b", "c", "d"], ["x", "y", "x", "y"]


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        (dataset(text=TEXTS, kind=LABELS), {}, "which column holds the labels.*The columns are: text, kind"),
        (
            dataset(text=TEXTS, kind=LABELS),
            {"label_column": "klass"},
            "no column 'klass'. .* text, kind",
        ),
        (
            dataset(text=TEXTS, label=LABELS),
            {"text_columns": "body"},
            "no column 'body'. .* text, label",
        ),
        (dataset(a=TEXTS, b=TEXTS, c=TEXTS, label=LABELS), {}, "which columns hold the texts.*a, b, c, label"),
        (dataset(a=TEXTS, label=LABELS), {"text_columns": ["a", "a", "a"]}, "name one, or the two of a pair"),
        (dataset(text=TEXTS, label=LABELS), {"text_columns": ["text", "label"]}, "a column is named twice"),
        (
            dataset(text=[1, 2, 3, 4], label=LABELS),
            {"text_columns": "text"},
            "train data holds int64, not text",
        ),
        (dataset(text=TEXTS, label=LABELS).select([]), {}, "The train data is empty"),
        (dataset(text=["a", None, "c", None], label=LABELS), {}, "'text' of the train data is null in 2 of 4.*row 1"),
        (dataset(text=TEXTS, label=["x", "y", None, "y"]), {}, "'label' of the train data is null in 1 of 4.*row 2"),
        (dataset(text=TEXTS, label=[0.5, 1.0, float("nan"), 2]), {}, "'label' of the train data is null.*row 2"),
        (dataset(text=TEXTS, label=LABELS), {"num_labels": 5}, "num_labels=5, but column 'label' has 2"),
        (dataset(text=TEXTS, label=LABELS), {"validation_fraction": 0.01}, "4 training rows are too few"),
        (dataset(text=TEXTS, label=LABELS), {"validation_fraction": 1.5}, "fraction of 1.5"),
    ],
)
def test_each_fault_is_one_error_that_says_where(source, settings, message):
    with pytest.raises(ValueError, match=message):
        read(source, **settings)


def test_faults_of_the_other_splits_are_named_by_their_split():
    train = dataset(text=TEXTS, label=LABELS)
    with pytest.raises(ValueError, match="Label 'z' in row 1 of the validation data is none of the 2 labels 'x', 'y'"):
        read(DatasetDict(train=train, validation=dataset(text=["a", "b"], label=["x", "z"])))
    with pytest.raises(ValueError, match="The validation data has no column 'text'. The columns are: body, label"):
        read(DatasetDict(train=train, validation=dataset(body=["a"], label=["x"])))
    with pytest.raises(ValueError, match="The test data is empty"):
        read(DatasetDict(train=train, validation=train, test=train.select([])), test="test")


def test_a_declared_label_that_training_never_shows_is_an_error():
    features = Features({"text": Value("string"), "label": ClassLabel(names=["x", "y", "z"])})
    train = Dataset.from_dict({"text": TEXTS, "label": [0, 1, 0, 1]}, features=features)
    validation = Dataset.from_dict({"text": ["a"], "label": [2]}, features=features)
    with pytest.raises(ValueError, match="validation data has labels that never occur in training: 'z'"):
        read(DatasetDict(train=train, validation=validation))
