import pytest

from hf_elastic.hub.details import TrainingDetails, is_hub_id
from hf_elastic.training.data_fingerprint import DataFingerprint
from hf_elastic.training.provenance import RunRecord


def test_mappings_and_nothing_are_read():
    details = TrainingDetails.read({"dataset": "BBC News", "settings": {"epochs": 3}})
    assert details == TrainingDetails(dataset="BBC News", settings={"epochs": 3})
    assert TrainingDetails.read(details) is details
    assert TrainingDetails.read(None) == TrainingDetails()


def test_an_unknown_key_is_named_with_the_possible_ones():
    with pytest.raises(ValueError, match=r"Unknown training detail 'licence': possible are \['name', .*'license'"):
        TrainingDetails.read({"licence": "mit"})


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"license": 3}, TypeError, "license=3: expected text, got int"),
        ({"language": ["en", 3]}, TypeError, r"language=\['en', 3\]: expected text"),
        ({"dataset": " "}, ValueError, "dataset=' ' is blank: leave it out"),
        ({"base_model": "./my model"}, ValueError, "base_model='./my model' is not a Hub id"),
        ({"dataset_id": "a/b/c"}, ValueError, "dataset_id='a/b/c' is not a Hub id"),
        (
            {"settings": {"epochs": None}},
            TypeError,
            r"settings\['epochs'\]=None: expected text, a number or a boolean",
        ),
        ({"settings": {"patience": float("inf")}}, ValueError, r"settings\['patience'\]=inf is not finite"),
        ({"settings": {3: 3}}, TypeError, r"settings\[3\]=3"),
        ({"run": 3}, ValueError, "This is no record of a training"),
        ({"run": {"seed": 1, "data": {"train": {"texts": []}}}}, ValueError, "no record of a training: .*texts"),
        ({"dataset_config": 3}, TypeError, "dataset_config=3: expected text, got int"),
        ({"other_splits": [3]}, TypeError, r"other_splits=\[3\]: expected numbers by split, size and metric"),
        ({"other_splits": {"test": {"tiny": {"f1": "high"}}}}, TypeError, "other_splits=.*expected numbers by split"),
        (
            {"other_splits": {"test": {"tiny": {"f1": float("nan")}}}},
            ValueError,
            r"other_splits\['test'\]\['tiny'\]\['f1'\]=nan is not finite",
        ),
        ({"settings": [3]}, TypeError, r"settings=\[3\]: expected a mapping"),
    ],
)
def test_unusable_values(values, error, message):
    with pytest.raises(error, match=message):
        TrainingDetails(**values)


def test_hub_ids():
    assert is_hub_id("bert-base-uncased") and is_hub_id("org/model")
    assert not is_hub_id("/models/bert") and not is_hub_id("a/b/c")


def test_details_come_back_from_beside_a_supernet(tmp_path):
    assert TrainingDetails.load(tmp_path) is None
    run = RunRecord(seed=1, data={"train": DataFingerprint(rows=3)}, arguments={"optim": None})
    others = {"validation": {"tiny": {"f1": 0.5}}}
    details = TrainingDetails(
        dataset="BBC News", language=["en"], settings={"epochs": 3, "seed": 1}, other_splits=others, run=run
    )
    details.save(tmp_path)
    assert TrainingDetails.load(tmp_path) == details


@pytest.mark.parametrize("content", ["{", '{"dataset": 3}', '{"data": "x"}', "[]"])
def test_a_damaged_file_of_details_is_named(content, tmp_path):
    (tmp_path / "training_details.json").write_text(content)
    with pytest.raises(ValueError, match="training_details.json holds no training details: .*Remove it"):
        TrainingDetails.load(tmp_path)
