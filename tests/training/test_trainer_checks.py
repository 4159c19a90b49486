"""What the training would meet late is met when the trainer is made."""

import sys

import pytest

from tests.training.cases import make_trainer
from tests.training.teacher_cases import make_numbered_rows, make_teacher


def test_a_cache_without_ids_of_the_examples(tmp_path):
    output, settings = tmp_path / "output", {"teacher_cache_dir": str(tmp_path / "cache"), "hidden_weight": 0.0}
    with pytest.raises(ValueError, match="no column 'example_id', which teacher_cache_dir needs"):
        make_trainer(output, settings=settings, teachers=[make_teacher()])
    assert not output.exists() and not (tmp_path / "cache").exists()
    make_trainer(output, settings=settings, teachers=[make_teacher()], train_dataset=make_numbered_rows(8))
    make_trainer(output, settings=settings, teachers=[make_teacher()], train_dataset=None)


def test_a_library_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchjd", None)
    output = tmp_path / "output"
    with pytest.raises(ImportError, match="gradient_conflicts='pcgrad' needs `torchjd`: pip install"):
        make_trainer(output, settings={"gradient_conflicts": "pcgrad"})
    assert not output.exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_weight": -1.0}, "hidden_weight=-1.0"),
        ({"sampling": "all"}, "sampling='all'"),
        ({"percentile_clipping": 200}, "percentile_clipping=200"),
        ({"teacher_mixing": "validation"}, "is about teachers"),
        ({"metric_for_best_model": "medium_loss"}, "metric_for_best_model='medium_loss' is not evaluated"),
    ],
)
def test_arguments_that_are_changed_are_checked_before_the_next_training(tmp_path, settings, message):
    trainer = make_trainer(tmp_path, settings={"max_steps": 1})
    for name, value in settings.items():
        setattr(trainer.args, name, value)
    with pytest.raises(ValueError, match=message):
        trainer.train()
