"""A teacher that cannot teach is an error when the trainer is made."""

from pathlib import Path

import pytest
import transformers
from transformers import BertConfig, BertForSequenceClassification

from hf_elastic import SubnetConfig
from hf_elastic.training.teacher_checks import (
    check_teacher_cache,
    check_teacher_columns,
    check_teachers,
    list_teachers,
)
from hf_elastic.training.teachers import Teacher
from tests.conftest import TINY
from tests.training.cases import make_arguments, make_model, make_rows, make_trainer
from tests.training.teacher_cases import make_teacher, make_tokenizer, save_teacher


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


def make_bert(class_name: str = "BertForSequenceClassification", **settings) -> transformers.PreTrainedModel:
    return getattr(transformers, class_name)(BertConfig(**{**TINY, "num_labels": 3, **settings}))


def test_teacher_that_is_no_model(output):
    with pytest.raises(TypeError, match=r"teachers\[0\] is a str.*from_pretrained"):
        make_trainer(output, teachers=["bert-base-uncased"])


def test_teacher_that_is_not_in_a_list(output):
    for given in (make_bert(), Teacher(make_bert())):
        with pytest.raises(TypeError, match=rf"teachers is a {type(given).__name__}.*teachers=\[teacher\]"):
            make_trainer(output, teachers=given)


def test_teacher_that_is_trained(output):
    model = make_model("classification")
    with pytest.raises(ValueError, match="is the model that is trained.*Give a copy"):
        make_trainer(output, model=model, teachers=[model])
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_labels": 4}, "num_labels=4, the model 3. Give a teacher of the same task"),
        ({"vocab_size": 120}, "vocab_size=120, the model 99. Give a teacher with the same tokenizer"),
        ({"max_position_embeddings": 32}, "max_position_embeddings=32, the model 64.*at least as many positions"),
    ],
)
def test_teacher_of_another_shape(output, settings, message):
    with pytest.raises(ValueError, match=r"teachers\[1\] has " + message):
        make_trainer(output, teachers=[make_bert(), make_bert(**settings)])
    assert not output.exists()


@pytest.mark.parametrize("inputs", [None, "own_"])
def test_teacher_of_another_kind_of_task(output, inputs):
    model, several = make_model("classification"), "multi_label_classification"
    rows = [{**row, "own_input_ids": row["input_ids"]} for row in make_rows("classification", 4)]
    for ours, theirs in ((None, several), ("single_label_classification", None), (several, several)):
        model.config.problem_type = ours
        teacher = Teacher(make_bert(problem_type=theirs), inputs=inputs)
        make_trainer(output, model=model, teachers=[teacher], train_dataset=rows)
    model.config.problem_type = "single_label_classification"
    with pytest.raises(ValueError, match=f"problem_type='{several}', the model 'single_label_.*same task"):
        make_trainer(output, model=model, teachers=[teacher], train_dataset=rows)


def test_wider_teacher_without_alignment(output):
    trainer = make_trainer(
        output, teachers=[make_bert(hidden_size=64)], settings={"hidden_weight": 0.0, "max_steps": 1}
    )
    trainer.train()


@pytest.mark.parametrize(
    ("case", "teacher"),
    [
        ("classification", "BertModel"),
        ("classification", "BertForQuestionAnswering"),
        ("classification", "BertForTokenClassification"),
        ("token_classification", "BertForSequenceClassification"),
        ("masked_lm", "BertForPreTraining"),
    ],
)
def test_teacher_with_another_head(output, case, teacher):
    head = {"classification": "ForSequence", "token_classification": "ForToken", "masked_lm": "ForMasked"}[case]
    with pytest.raises(TypeError, match=rf"teachers\[0\] is a {teacher}, .*AutoModel{head}"):
        make_trainer(output, case, teachers=[make_bert(teacher)])


def test_teacher_with_adapters_or_of_a_class_of_ones_own(output):
    class BertForMultiLabelSequenceClassification(BertForSequenceClassification):
        pass

    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(make_bert(), peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"], r=2))
    own = BertForMultiLabelSequenceClassification(make_bert().config)
    make_trainer(output, teachers=[adapted, own])


def test_teacher_with_the_classes_in_another_order(output):
    names = ["negative", "neutral", "positive"]
    model = make_model("classification")
    model.config.id2label = dict(enumerate(names))
    for same in ([name.upper() for name in names], ["a", "b", "c"], ["LABEL_0", "LABEL_1", "LABEL_2"]):
        make_trainer(output, model=model, teachers=[make_bert(id2label=dict(enumerate(same)))])
    with pytest.raises(
        ValueError, match=r"order \['positive', .*'negative'\], the model .*\['negative', .*'positive'\]"
    ):
        make_trainer(output, model=model, teachers=[make_bert(id2label=dict(enumerate(reversed(names))))])


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (Teacher(make_bert(), weight=0.0), "weights of all teachers are 0"),
        (Teacher(make_bert(), inputs="input"), "inputs='input' of a teacher also starts 'input_ids'"),
        (Teacher(make_bert(), inputs="label"), "inputs='label' of a teacher also starts 'labels'"),
        (Teacher(make_bert(), inputs="example_"), "inputs='example_' of a teacher also starts 'example_id'"),
    ],
)
def test_a_teacher_that_cannot_count_or_read(output, teacher, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(output, teachers=[teacher])


def test_a_prefix_within_another(output):
    with pytest.raises(ValueError, match="inputs='a_' of a teacher also starts 'a_b_'"):
        make_trainer(output, teachers=[Teacher(make_bert(), inputs="a_"), Teacher(make_bert(), inputs="a_b_")])


def test_the_same_teacher_twice(output):
    teacher = make_bert()
    with pytest.raises(ValueError, match=r"teachers\[2\] is the same model as teachers\[0\].*weight=2.0"):
        make_trainer(output, teachers=[teacher, make_bert(), Teacher(teacher, weight=0.5)])
    with pytest.raises(ValueError, match="2 teachers have the name 'bert'"):
        make_trainer(output, teachers=[Teacher(make_bert(), name="bert"), Teacher(make_bert(), name="bert")])


def test_a_teacher_with_other_special_tokens(output):
    with pytest.raises(ValueError, match=r"pad_token_id=1, the model 0.*Teacher\(model, inputs="):
        make_trainer(output, teachers=[make_bert(pad_token_id=1)])


def test_a_teacher_whose_folder_has_another_tokenizer(output, tmp_path):
    folder = save_teacher(tmp_path / "teacher", make_tokenizer(1), hidden_size=32)
    teachers = list_teachers([BertForSequenceClassification.from_pretrained(folder)])
    model, args = make_model("classification"), make_arguments(output)
    with pytest.raises(ValueError, match=r"teachers\[0\] is of .*teacher, whose tokenizer gives 'word\d+' another id"):
        check_teachers(teachers, model, args, make_tokenizer(0))
    for tokenizer in (make_tokenizer(1), None):
        check_teachers(teachers, model, args, tokenizer)


def test_a_teacher_with_inputs_of_its_own_may_be_of_any_shape(output):
    other = make_bert(vocab_size=120, pad_token_id=1, hidden_size=64, max_position_embeddings=16)
    teachers = list_teachers([Teacher(other, inputs="own_")])
    check_teachers(teachers, make_model("classification"), make_arguments(output))
    with pytest.raises(ValueError, match="num_labels=4, the model 3"):
        make_trainer(output, teachers=[Teacher(make_bert(num_labels=4), inputs="own_")])


def test_inputs_of_its_own_for_tokens(output):
    teacher = Teacher(make_bert("BertForTokenClassification", num_labels=5), inputs="own_")
    with pytest.raises(ValueError, match="inputs='own_' of its own.*ElasticForTokenClassification. Only sequence"):
        make_trainer(output, "token_classification", teachers=[teacher])


def test_features_against_teachers_with_inputs_of_their_own(output):
    own = Teacher(make_bert(), inputs="own_")
    model, teachers = make_model("classification"), list_teachers([own])
    alone = make_arguments(output, inplace_distillation=False)
    with pytest.raises(ValueError, match="hidden_weight=0.1 compares features of the same tokens.*hidden_weight=0"):
        check_teachers(teachers, model, alone)
    check_teachers(teachers, model, make_arguments(output))
    check_teachers(teachers, model, make_arguments(output, inplace_distillation=False, hidden_weight=0.0))
    check_teachers(list_teachers([make_bert(), own]), model, alone)


def test_columns_of_a_teacher_that_are_missing():
    teachers = list_teachers([make_bert(), Teacher(make_bert(), inputs="own_")])
    rows = [{"input_ids": [1], "own_input_ids": [2]}]
    check_teacher_columns(teachers, rows)
    check_teacher_columns(teachers, None)
    check_teacher_columns(teachers[:1], [{"input_ids": [1]}])
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list(rows)
    check_teacher_columns(teachers, table)
    for dataset in ([{"input_ids": [1]}], table.remove_columns("own_input_ids")):
        with pytest.raises(ValueError, match="eval_dataset has no column own_input_ids.*encode_for_teacher"):
            check_teacher_columns(teachers, dataset, "eval_dataset")


def test_what_cannot_be_cached(output):
    args = make_arguments(output)
    args.teacher_cache_dir = "cache"
    teachers = list_teachers([make_bert()])
    with pytest.raises(ValueError, match="teacher_cache_dir='cache' keeps predictions alone, but hidden_weight=0.1"):
        check_teacher_cache(teachers, make_model("classification"), args)
    with pytest.raises(ValueError, match="one prediction per example, and a ElasticForTokenClassification has more"):
        check_teacher_cache(teachers, make_model("token_classification"), args)
    check_teacher_cache(list_teachers([Teacher(make_bert(), inputs="own_")]), make_model("classification"), args)
    args.hidden_weight = 0.0
    check_teacher_cache(teachers, make_model("classification"), args)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer_map": {4: 3}}, "names layer 3 of the teacher, which has the layers 1 to 2"),
        ({"layer_map": {5: 1}}, "names layer 5 of the student, which has the layers 1 to 4"),
        (
            {"relation_weight": 1.0, "relation_heads": 32},
            r"relation_heads=32 does not divide.*of teachers\[0\]",
        ),
    ],
)
def test_features_that_a_teacher_has_not(tmp_path, settings, message):
    output = tmp_path / "output"
    model = make_model("classification")
    model.config.subnets = {"large": SubnetConfig()}
    with pytest.raises(ValueError, match=message):
        make_trainer(output, model=model, teachers=[make_teacher()], settings=settings)
    assert not output.exists()
