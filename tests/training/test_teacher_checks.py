"""A teacher that cannot teach is an error when the trainer is made."""

from pathlib import Path

import pytest
import transformers
from transformers import BertConfig, BertForSequenceClassification

from tests.conftest import TINY
from tests.training.cases import make_model, make_trainer


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


def make_bert(class_name: str = "BertForSequenceClassification", **settings) -> transformers.PreTrainedModel:
    return getattr(transformers, class_name)(BertConfig(**{**TINY, "num_labels": 3, **settings}))


def test_teacher_that_is_no_model(output):
    with pytest.raises(TypeError, match=r"teachers\[0\] is a str.*from_pretrained"):
        make_trainer(output, teachers=["bert-base-uncased"])


def test_teacher_that_is_not_in_a_list(output):
    with pytest.raises(TypeError, match=r"teachers is a BertForSequenceClassification.*teachers=\[teacher\]"):
        make_trainer(output, teachers=make_bert())


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
        ({"hidden_size": 64}, "hidden_size=64, the model 32. Set hidden_weight=0"),
        ({"max_position_embeddings": 32}, "max_position_embeddings=32, the model 64.*at least as many positions"),
    ],
)
def test_teacher_of_another_shape(output, settings, message):
    with pytest.raises(ValueError, match=r"teachers\[1\] has " + message):
        make_trainer(output, teachers=[make_bert(), make_bert(**settings)])
    assert not output.exists()


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
