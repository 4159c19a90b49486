"""Teachers give their own outputs, in any precision, and nothing reaches back into them."""

import pytest
import torch
from transformers import BertForSequenceClassification

from hf_elastic.training.objectives import kl_divergence
from hf_elastic.training.teachers import Teacher, freeze, observe, student_inputs, teacher_inputs
from tests.conftest import make_inputs
from tests.training.cases import CASES, collate, make_model, make_rows
from tests.training.teacher_cases import make_teacher

BATCH = make_inputs("ElasticForSequenceClassification") | {"labels": torch.tensor([0, 2, 1]), "unpad_inputs": True}
CPU = torch.device("cpu")


def make_frozen(model: torch.nn.Module, dtype: str | None = None, **settings) -> Teacher:
    teacher = Teacher(model, **{"name": "teacher_0", **settings})
    freeze(teacher, CPU, dtype)
    return teacher


@pytest.mark.parametrize("architecture", ["Bert", "Electra", "Roberta", "DistilBert"])
def test_a_teacher_of_any_architecture_gives_its_own_logits(architecture):
    # DistilBERT has no segments: they are left out.
    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * (architecture != "DistilBert")
    sizes = {"type_vocab_size": 2} if architecture == "Roberta" else {}
    model = make_teacher(architecture, **sizes)
    expected = model(**{name: BATCH[name] for name in names}).logits
    assert torch.equal(observe(make_frozen(model), BATCH).logits, expected)


@pytest.mark.parametrize("case", CASES)
def test_a_teacher_of_every_head_gives_outputs_without_a_graph(case):
    model, batch = make_model(case).eval(), collate(make_rows(case, 3))
    expected = model(**{name: batch[name] for name in ("input_ids", "attention_mask")}, output_hidden_states=True)
    outputs = observe(make_frozen(model), batch, output_hidden_states=True)
    assert outputs.keys() == expected.keys()
    for name, value in expected.items():
        parts, others = (value, outputs[name]) if isinstance(value, tuple) else ((value,), (outputs[name],))
        assert all(torch.equal(part, other) for part, other in zip(parts, others, strict=True))
        assert not any(other.requires_grad for other in others)


def test_attentions_are_given_only_where_they_are_wanted():
    model = make_teacher(attn_implementation="eager")
    teacher = make_frozen(model)
    assert "attentions" not in observe(teacher, BATCH)
    assert observe(teacher, BATCH, output_attentions=True).attentions[0].shape == (3, 2, 11, 11)


def test_a_frozen_teacher_gets_no_gradient_and_no_dropout():
    model = make_teacher(hidden_dropout_prob=0.5).train()
    teacher = make_frozen(model)
    assert torch.equal(observe(teacher, BATCH).logits, observe(teacher, BATCH).logits)
    student = torch.zeros(3, 3, requires_grad=True)
    kl_divergence(student, observe(teacher, BATCH).logits).backward()
    assert student.grad.abs().sum() > 0
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_gives_nearly_the_same_in_float32(dtype):
    expected = make_teacher()(**{name: BATCH[name] for name in BATCH if "unpad" not in name and name != "labels"})
    teacher = make_frozen(make_teacher(), dtype)
    assert {parameter.dtype for parameter in teacher.model.parameters()} == {getattr(torch, dtype)}
    outputs = observe(teacher, BATCH, output_hidden_states=True)
    assert outputs.logits.dtype == outputs.hidden_states[0].dtype == torch.float32
    torch.testing.assert_close(outputs.logits, expected.logits, rtol=0.05, atol=0.05)
    assert not torch.equal(outputs.logits, expected.logits)


def test_low_precision_reads_embeddings():
    teacher = make_frozen(make_teacher(), "bfloat16")
    embeddings = teacher.model.get_input_embeddings()(BATCH["input_ids"]).float()
    batch = {**BATCH, "inputs_embeds": embeddings}
    del batch["input_ids"]
    assert torch.equal(observe(teacher, batch).logits, observe(teacher, BATCH).logits)


def test_own_inputs_are_read_and_those_of_others_are_not():
    own = make_inputs("ElasticForSequenceClassification", seed=1)
    batch = BATCH | {f"electra_{name}": value for name, value in own.items()} | {"other_input_ids": BATCH["input_ids"]}
    batch["electra_labels"], batch["electra_unknown"] = BATCH["labels"], BATCH["labels"]
    model = make_teacher("Electra")
    assert torch.equal(observe(make_frozen(model, inputs="electra_"), batch).logits, model(**own).logits)
    assert torch.equal(observe(make_frozen(model), batch).logits, observe(make_frozen(model), BATCH).logits)


def test_the_student_reads_no_inputs_of_teachers():
    teachers = [Teacher(make_teacher(), inputs="a_"), Teacher(make_teacher()), Teacher(make_teacher(), inputs="b_")]
    extra = {"a_input_ids": 1, "b_attention_mask": 2, "example_id": 3}
    assert student_inputs({**BATCH, **extra}, teachers) == BATCH
    assert student_inputs({**BATCH, "c_input_ids": 1}, teachers) == {**BATCH, "c_input_ids": 1}


def test_missing_inputs_of_its_own():
    with pytest.raises(ValueError, match=r"'electra' reads inputs that start with 'electra_'.*input_ids.*encode_for"):
        teacher_inputs(Teacher(make_teacher(), inputs="electra_", name="electra"), BATCH)


def test_adapters_do_not_hide_inputs():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"], r=2)
    inputs = {name: BATCH[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    expected = make_teacher()(**inputs).logits  # new adapters change nothing
    adapted = peft.get_peft_model(make_teacher(), config)
    torch.testing.assert_close(observe(make_frozen(adapted), BATCH).logits, expected)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"weight": -0.5}, ValueError, r"weight=-0.5 is negative"),
        ({"weight": "1"}, TypeError, r"weight='1' is a str"),
        ({"weight": float("nan")}, ValueError, r"weight=nan is not finite"),
        ({"inputs": ""}, ValueError, r"inputs='' is no name"),
        ({"name": 3}, ValueError, r"name=3 is no name"),
    ],
)
def test_impossible_settings(settings, error, message):
    with pytest.raises(error, match=message):
        Teacher(BertForSequenceClassification, **settings)
