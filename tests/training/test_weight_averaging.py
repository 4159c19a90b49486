"""The averages are those of the formulas, and what is evaluated, saved and kept; the training never notices."""

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor
from transformers import AutoModelForSequenceClassification, TrainerCallback

from hf_elastic.training.weight_averaging import TRAINING_WEIGHTS_NAME, WeightAveraging

from .cases import accuracy, make_model, make_rows, make_trainer
from .test_clipping import one_process_mesh

STEPS = 8


class WeightRecorder(TrainerCallback):
    """Keeps a copy of the weights of each step."""

    def __init__(self):
        self.steps = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.steps.append(weights_of(model))


def weights_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


EMA = {"weight_averaging": "ema", "ema_decay": 0.7}
SWA = {"weight_averaging": "swa", "swa_start": 0.5}  # from the 4th of 8 steps on
MEAN = {"weight_averaging": "swa", "swa_start": 0.0}


def make_averaging_trainer(output, callbacks=(), case="classification", model=None, **settings):
    defaults = {"max_steps": STEPS, "per_device_train_batch_size": 8, "learning_rate": 1e-2}
    return make_trainer(
        output,
        case,
        {**defaults, "sampling": "one_per_step", **settings},
        model=make_model(case, dropout=0.1) if model is None else model,
        train_dataset=make_rows(case, 24),
        eval_dataset=make_rows(case, 8, seed=1),
        callbacks=list(callbacks),
    )


def assert_equal_weights(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name


def ema(steps, decay):
    """The recursion in double precision."""
    average = {name: value.double() for name, value in steps[0].items()}
    for weights in steps[1:]:
        average = {name: decay * average[name] + (1 - decay) * value.double() for name, value in weights.items()}
    return average


def mean(steps):
    return {name: torch.stack([weights[name].double() for weights in steps]).mean(0) for name in steps[0]}


@pytest.mark.parametrize(
    ("averaging", "expected"),
    [
        (EMA, lambda steps: ema(steps, 0.7)),
        (SWA, lambda steps: mean(steps[3:])),
        (MEAN, mean),
    ],
)
def test_the_model_ends_with_the_average_of_the_formula(tmp_path, averaging, expected):
    recorder = WeightRecorder()
    trainer = make_averaging_trainer(tmp_path, [recorder], **averaging)
    trainer.train()
    assert len(recorder.steps) == STEPS
    for name, value in expected(recorder.steps).items():
        torch.testing.assert_close(trainer.model.state_dict()[name].double(), value, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(trainer.model.classifier.weight, recorder.steps[-1]["classifier.weight"])


def test_the_training_itself_does_not_change(tmp_path):
    averaged, plain = WeightRecorder(), WeightRecorder()
    settings = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 3}
    make_averaging_trainer(tmp_path / "averaged", [averaged], **EMA, **settings).train()
    make_averaging_trainer(tmp_path / "plain", [plain], **settings).train()
    for ours, theirs in zip(averaged.steps, plain.steps, strict=True):
        assert_equal_weights(ours, theirs)


class EvaluatedWeights(TrainerCallback):
    """Keeps what is in the model in the middle of an evaluation."""

    def on_prediction_step(self, args, state, control, model=None, **kwargs):
        self.weights = weights_of(model)


def test_evaluations_and_checkpoints_have_the_average(tmp_path):
    recorder, evaluated = WeightRecorder(), EvaluatedWeights()
    settings = {"eval_strategy": "steps", "eval_steps": 4, "save_strategy": "steps", "save_steps": 4}
    trainer = make_averaging_trainer(tmp_path, [recorder, evaluated], max_steps=4, **EMA, **settings)
    trainer.train()
    assert_equal_weights(evaluated.weights, weights_of(trainer.model))
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "checkpoint-4")
    assert_equal_weights(weights_of(saved), evaluated.weights)
    own = load_file(tmp_path / "checkpoint-4" / TRAINING_WEIGHTS_NAME)
    assert_equal_weights(own, {name: recorder.steps[3][name] for name in own})
    assert own.keys() == dict(trainer.model.named_parameters()).keys()


def test_weights_come_back_after_an_error(tmp_path):
    trainer = make_averaging_trainer(tmp_path, max_steps=2, **EMA)

    class Check(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            if state.global_step == 2:
                self.before = weights_of(model)
                with pytest.raises(RuntimeError), trainer.averaged_weights():
                    self.inside = weights_of(model)
                    raise RuntimeError
                self.after = weights_of(model)

    check = Check()
    trainer.add_callback(check)
    trainer.train()
    assert not torch.equal(check.inside["classifier.weight"], check.before["classifier.weight"])
    assert_equal_weights(check.after, check.before)


@pytest.fixture(scope="module", params=[EMA, SWA], ids=["ema", "swa"])
def unbroken(request, tmp_path_factory):
    """Settings and folder of a training with checkpoints, its weights at each step, and those at the end."""
    folder, recorder = tmp_path_factory.mktemp("unbroken"), WeightRecorder()
    trainer = make_averaging_trainer(folder, [recorder], save_strategy="steps", save_steps=2, **request.param)
    trainer.train()
    return request.param, folder, recorder.steps, weights_of(trainer.model)


@pytest.mark.parametrize("restores_callbacks", [True, False])
@pytest.mark.parametrize("step", [2, 6])
def test_a_resumed_training_is_the_unbroken_one(tmp_path, unbroken, step, restores_callbacks):
    averaging, folder, steps, at_the_end = unbroken
    recorder, restores = WeightRecorder(), {"restore_callback_states_from_checkpoint": restores_callbacks}
    resumed = make_averaging_trainer(tmp_path, [recorder], **averaging, **restores)
    resumed.train(resume_from_checkpoint=str(folder / f"checkpoint-{step}"))
    for ours, theirs in zip(recorder.steps, steps[step:], strict=True):
        assert_equal_weights(ours, theirs)
    assert_equal_weights(weights_of(resumed.model), at_the_end)


def test_a_training_that_no_longer_averages_goes_on_from_its_own_weights(tmp_path, unbroken):
    """The averaging never changed the training, so that without it the steps are those of the unbroken one."""
    _, folder, steps, _ = unbroken
    recorder = WeightRecorder()
    resumed = make_averaging_trainer(tmp_path, [recorder])
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-6"))
    for ours, theirs in zip(recorder.steps, steps[6:], strict=True):
        assert_equal_weights(ours, theirs)
    assert_equal_weights(weights_of(resumed.model), steps[-1])


def test_the_best_checkpoints_average_stays(tmp_path):
    trainer = make_averaging_trainer(
        tmp_path,
        **EMA,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
    )
    trainer.compute_metrics = accuracy
    trainer.train()
    best = AutoModelForSequenceClassification.from_pretrained(trainer.state.best_model_checkpoint)
    assert_equal_weights(weights_of(trainer.model), weights_of(best))
    assert trainer.evaluate()["eval_accuracy"] == trainer.state.best_metric


def test_frozen_parameters_are_neither_averaged_nor_stored(tmp_path):
    model = make_model("classification")
    model.model.embeddings.requires_grad_(False)
    trainer = make_averaging_trainer(tmp_path, model=model, save_strategy="steps", save_steps=STEPS, **EMA)
    trainer.train()
    stored = load_file(tmp_path / f"checkpoint-{STEPS}" / TRAINING_WEIGHTS_NAME)
    assert stored.keys() == {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert "model.embeddings.norm.weight" not in stored


def test_tied_weights_stay_tied(tmp_path):
    recorder = WeightRecorder()
    trainer = make_averaging_trainer(tmp_path, [recorder], case="masked_lm", **MEAN)
    trainer.train()
    decoder, embeddings = trainer.model.lm_head.decoder, trainer.model.model.embeddings.word_embeddings
    assert decoder.weight is embeddings.weight
    expected = mean(recorder.steps)["model.embeddings.word_embeddings.weight"]
    torch.testing.assert_close(decoder.weight.detach().double(), expected, rtol=1e-5, atol=1e-6)


def test_a_second_training_averages_anew(tmp_path):
    recorder = WeightRecorder()
    trainer = make_averaging_trainer(tmp_path, [recorder], **MEAN)
    trainer.train()
    recorder.steps.clear()
    trainer.train()
    expected = mean(recorder.steps)["classifier.weight"]
    torch.testing.assert_close(trainer.model.classifier.weight.detach().double(), expected, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_of_other_trained_parameters_is_refused(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 4}
    make_averaging_trainer(tmp_path, max_steps=4, **EMA, **settings).train()
    averaging, model = WeightAveraging("ema", 0.5), make_model("classification")
    model.classifier.requires_grad_(False)
    with pytest.raises(ValueError, match="first difference is 'classifier.bias'"):
        averaging.load(tmp_path / "checkpoint-4", model)


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="kind='none' is unknown"):
        WeightAveraging("none")


def test_parameters_that_are_split_are_refused():
    model = torch.nn.Linear(2, 2)
    with one_process_mesh() as mesh:
        model.weight = torch.nn.Parameter(DTensor.from_local(model.weight.detach(), mesh))
        with pytest.raises(ValueError, match="split between processes"):
            WeightAveraging("ema").on_train_begin(None, None, None, model=model)
