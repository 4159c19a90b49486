"""Arguments about learning from others are told where there is nobody to learn from."""

import pytest

from hf_elastic.training.source_checks import check_use_of_sources
from hf_elastic.training.teacher_checks import list_teachers
from tests.training.cases import make_arguments, make_trainer
from tests.training.teacher_cases import make_teacher

OF_TEACHERS = [
    {"teacher_mixing": "validation"},
    {"teacher_mixing": "confidence"},
    {"teacher_cache_dir": "cache"},
    {"teacher_dtype": "bfloat16"},
    {"layer_map": {3: 99}},
]
OF_ANY_SOURCE = [
    {"relation_weight": 3.0},
    {"hidden_weight": 1.0},
    {"detachment_probability": 0.5},
    {"temperature": 2.0},
    {"output_loss": "mse"},
    {"layer_map": "last"},
    {"distillation_weight": 0.8, "distillation_schedule": "linear", "distillation_weight_end": 0.3},
]
ALONE = [{"inplace_distillation": False}, {"sampling": "one_per_step"}]


@pytest.mark.parametrize("settings", OF_TEACHERS)
def test_arguments_about_teachers_without_any(tmp_path, settings):
    output, name = tmp_path / "output", next(iter(settings))
    with pytest.raises(ValueError, match=f"{name}=.* is about teachers, and there are none"):
        make_trainer(output, settings=settings)
    assert not output.exists()
    check_use_of_sources(list_teachers([make_teacher()]), make_arguments(output, **settings))


@pytest.mark.parametrize("alone", ALONE)
@pytest.mark.parametrize("settings", OF_ANY_SOURCE)
def test_arguments_about_learning_from_nobody(tmp_path, caplog, settings, alone):
    def told(teachers, **others):
        caplog.clear()
        check_use_of_sources(list_teachers(teachers), make_arguments(tmp_path, **settings, **others))
        return " ".join(record.getMessage() for record in caplog.records)

    message = told([], **alone)
    assert all(f"{name}=" in message for name in settings) and "nothing to learn from but the labels" in message
    assert not told([make_teacher()], **alone) and not told([])


@pytest.mark.parametrize("alone", ALONE)
def test_what_is_off_or_as_by_default_may_be(tmp_path, alone):
    make_trainer(tmp_path, settings={**alone, "hidden_weight": 0.0, "relation_weight": 0.0, "temperature": 1.0})
    make_trainer(tmp_path, settings=alone)
