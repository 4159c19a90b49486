"""The finder takes real steps, suggests a rate that a training learns with, and leaves no trace."""

import random
import sys

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from hf_elastic.training.learning_rate_finder import LearningRateCurve, find_learning_rate

from .cases import (
    LittleRoom,
    collate,
    logged,
    losses_of,
    make_fresh_model,
    make_learnable_rows,
    make_model,
    make_trainer,
)


def make_learning_trainer(output, model=None, rows=256, **settings):
    settings = {"per_device_train_batch_size": 16, "max_steps": 60, "logging_steps": 1, **settings}
    model = make_fresh_model() if model is None else model
    return make_trainer(output, settings=settings, model=model, train_dataset=make_learnable_rows(rows))


def random_numbers():
    return random.random(), np.random.rand(), torch.rand(2).tolist()


def test_the_suggestion_lowers_the_loss_of_a_learnable_problem(tmp_path):
    curve = find_learning_rate(make_learning_trainer(tmp_path))
    assert 1e-4 < curve.suggestion < 1e-1
    trainer = make_learning_trainer(tmp_path, learning_rate=curve.suggestion)
    trainer.train()
    losses = [log["loss"] for log in losses_of(trainer)]
    assert np.mean(losses[-5:]) < 0.3 * losses[0]


def collate_and_draw(rows):
    random_numbers()
    return collate(rows)


@pytest.mark.parametrize("settings", [{}, {"bf16": True}, {"gradient_accumulation_steps": 2}])
def test_nothing_is_left_of_the_steps(tmp_path, settings):
    trainer = make_learning_trainer(tmp_path, make_model("classification", dropout=0.1), **settings)
    trainer.model.eval()
    trainer.data_collator = collate_and_draw
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    of_model, of_trainer, of_args = vars(trainer.model).copy(), vars(trainer).copy(), vars(trainer.args).copy()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    expected = random_numbers()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    curve = find_learning_rate(trainer, end=1e-2, num_steps=6)
    assert random_numbers() == expected
    assert len(set(curve.losses)) == 6
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, weights[name])
    assert not any(module.training for module in trainer.model.modules())
    assert all(vars(trainer.model)[name] is value for name, value in of_model.items())
    assert vars(trainer.model).keys() == of_model.keys()
    assert all(vars(trainer)[name] is value for name, value in of_trainer.items())
    assert vars(trainer.args) == of_args
    assert list(tmp_path.iterdir()) == []


def test_a_training_afterwards_is_the_one_without(tmp_path):
    settings = {"max_steps": 4, "learning_rate": 1e-3}
    trainers = [make_learning_trainer(tmp_path, make_model("classification", dropout=0.1), **settings) for _ in "ab"]
    find_learning_rate(trainers[0], num_steps=5)
    for trainer in trainers:
        torch.manual_seed(0)
        trainer.train()
    assert losses_of(trainers[0]) == losses_of(trainers[1])
    for name, value in trainers[1].model.state_dict().items():
        assert torch.equal(trainers[0].model.state_dict()[name], value)


def test_a_trained_trainer_keeps_its_optimizer_and_its_state(tmp_path):
    trainer = make_learning_trainer(tmp_path, max_steps=3)
    trainer.train()
    optimizer, state = trainer.optimizer, trainer.state
    moments = [value["exp_avg"].clone() for value in optimizer.state_dict()["state"].values()]
    find_learning_rate(trainer, num_steps=3)
    assert trainer.optimizer is optimizer and trainer.state is state and state.global_step == 3
    kept = [value["exp_avg"] for value in optimizer.state_dict()["state"].values()]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(kept, moments, strict=True))
    assert trainer.evaluate()["eval_loss"] > 0


def test_the_losses_are_those_of_a_plain_loop_of_growing_rates(tmp_path, tiny_bert_config):
    """With another trainer and its model, without dropout and with all data in each batch."""
    tiny_bert_config.hidden_dropout_prob = tiny_bert_config.attention_probs_dropout_prob = 0.0
    torch.manual_seed(0)
    model = BertForSequenceClassification(tiny_bert_config)
    rows = make_learnable_rows(8)
    args = TrainingArguments(
        str(tmp_path), per_device_train_batch_size=8, max_grad_norm=0.0, use_cpu=True, report_to="none"
    )
    trainer = Trainer(model, args, train_dataset=rows, data_collator=collate)
    curve = find_learning_rate(trainer, start=1e-3, end=1e-1, num_steps=5)
    np.testing.assert_allclose(curve.rates, [1e-3 * 10 ** (i / 2) for i in range(5)])

    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.0)
    model.train()
    for rate, loss in zip(curve.rates, curve.losses, strict=True):
        result = model(**collate(rows)).loss
        assert loss == pytest.approx(result.item(), rel=1e-4)
        result.backward()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize(
    "settings", [{}, {"keep_effective_batch": False, "max_examples": 64, "max_steps": -1}], ids=["same", "growing"]
)
def test_it_adapts_to_the_memory_as_the_training_does(tmp_path, settings):
    expected = find_learning_rate(make_learning_trainer(tmp_path, make_model("classification")), end=1e-2, num_steps=4)
    model = make_model("classification")
    little = LittleRoom(model, room=5)
    trainer = make_learning_trainer(tmp_path, model, adapt_micro_batch_size=True, **settings)
    callbacks = list(trainer.callback_handler.callbacks)
    curve = find_learning_rate(trainer, end=1e-2, num_steps=4)
    assert little.sizes[:3] == [16, 8, 4]
    assert len(curve.losses) == 4
    if not settings:  # other batches are drawn where they may grow
        np.testing.assert_allclose(curve.losses, expected.losses, rtol=1e-4)
    assert trainer.callback_handler.callbacks == callbacks


def test_after_a_training_the_rates_are_still_the_finders(tmp_path):
    trainer = make_learning_trainer(tmp_path, max_steps=2)
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    first = find_learning_rate(trainer, start=1e-4, end=1.0, num_steps=12)
    trainer.train()
    trainer.model.load_state_dict(weights)
    again = find_learning_rate(trainer, start=1e-4, end=1.0, num_steps=12)
    np.testing.assert_allclose(again.losses, first.losses, rtol=1e-5)


def test_weights_come_back_after_an_error(tmp_path):
    trainer = make_learning_trainer(tmp_path)
    before = trainer.model.classifier.weight.clone()

    def fail(rows):
        failures.append(not torch.equal(trainer.model.classifier.weight, before))
        if failures[-1]:
            raise RuntimeError("no more data")
        return collate(rows)

    failures = []
    trainer.data_collator = fail
    with pytest.raises(RuntimeError, match="no more data"):
        find_learning_rate(trainer, start=1e-2)
    assert torch.equal(trainer.model.classifier.weight, before)


class Counter(TrainerCallback):
    steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1


def test_callbacks_do_not_run_and_divergence_ends_it(tmp_path):
    trainer = make_learning_trainer(tmp_path)
    counter = Counter()
    trainer.add_callback(counter)
    curve = find_learning_rate(trainer, start=1e-3, end=100.0, num_steps=60)
    assert counter.steps == 0
    assert len(curve.losses) == len(curve.rates) < 60
    assert curve.smoothed[-1] > 4 * curve.smoothed.min()


def test_steps_without_room_are_repeated_as_in_the_training(tmp_path):
    rows, size, steps = 256, 16, 3
    settings = {"per_device_train_batch_size": size, "adapt_micro_batch_size": True}
    whole = find_learning_rate(make_learning_trainer(tmp_path, make_model("classification"), rows), num_steps=steps)
    model = make_model("classification")
    room = LittleRoom(model, 5)
    curve = find_learning_rate(make_learning_trainer(tmp_path, model, rows, **settings), num_steps=steps)
    assert 16 in room.sizes and max(room.sizes[2:]) <= 8
    assert curve.losses == pytest.approx(whole.losses, rel=1e-5)


def test_batches_that_would_grow_stay_as_they_are(tmp_path):
    settings = {"adapt_micro_batch_size": True, "keep_effective_batch": False, "max_examples": 16}
    growing = make_learning_trainer(tmp_path, make_model("classification"), max_steps=-1, **settings)
    plain = make_learning_trainer(tmp_path, make_model("classification"))
    found, expected = (find_learning_rate(trainer, num_steps=4) for trainer in (growing, plain))
    assert found.rates == expected.rates
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)


@pytest.mark.parametrize("settings", [{"percentile_clipping": 1}, {"group_penalty": 1.0}])
def test_mechanisms_of_a_step_are_part_of_it(tmp_path, settings):
    """The losses are those of a training at the same rates, and not those of one without the mechanism."""

    def make(**others):
        model = make_model("classification")
        return make_learning_trainer(tmp_path, model, optim="sgd", learning_rate=1.0, max_steps=6, **others)

    curve = find_learning_rate(make(**settings), start=0.01, end=0.1, num_steps=6)
    trainer = make(**settings)
    trainer.lr_scheduler = LambdaLR(trainer.create_optimizer(), [*curve.rates, 0.1].__getitem__)
    trainer.train()
    without = find_learning_rate(make(), start=0.01, end=0.1, num_steps=6)
    assert curve.losses == pytest.approx(logged(trainer, "loss"), rel=1e-4)
    assert curve.losses != pytest.approx(without.losses, rel=1e-3)


def test_a_loss_that_is_no_number_ends_it(tmp_path):
    trainer = make_learning_trainer(tmp_path)
    trainer.compute_loss_func = lambda outputs, labels, **kwargs: outputs.logits.sum() * float("nan")
    curve = find_learning_rate(trainer, num_steps=5)
    assert curve.losses == ()
    with pytest.raises(ValueError, match="never falls in 0 steps"):
        _ = curve.suggestion


def test_the_suggestion_is_where_the_curve_is_steepest():
    rates = np.geomspace(1e-6, 1.0, 121)
    decades = np.log10(rates)
    falling = 3 - 2 / (1 + np.exp(-4 * (decades + 3)))  # steepest at 1e-3
    losses = np.where(decades < -1.5, falling, falling + 20 * (decades + 1.5))
    noise = np.random.default_rng(0).normal(0, 0.05, len(rates))
    curve = LearningRateCurve(tuple(rates), tuple(losses + noise))
    assert 10**-3.3 < curve.suggestion < 10**-2.7


def test_a_loss_that_only_grows_gives_no_suggestion():
    curve = LearningRateCurve(tuple(np.geomspace(1e-3, 1.0, 10)), tuple(np.linspace(1, 5, 10)))
    with pytest.raises(ValueError, match="never falls in 10 steps"):
        _ = curve.suggestion


@pytest.mark.parametrize("losses", [(2.0, 1.0, 3.0), (1.0, 2.0, 3.0)])
def test_the_picture_is_a_png(tmp_path, losses):
    pytest.importorskip("matplotlib")
    curve = LearningRateCurve((1e-3, 1e-2, 1e-1), losses)
    curve.save_picture(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    curve = LearningRateCurve((1e-3, 1e-2), (2.0, 1.0))
    with pytest.raises(ImportError, match=r'pip install "hf_elastic\[export\]"'):
        curve.save_picture(tmp_path / "curve.png")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"start": 0.0}, "start=0.0 and end=1.0 are no range"),
        ({"start": 1.0, "end": 0.1}, "start=1.0 and end=0.1 are no range"),
        ({"num_steps": 1}, "num_steps=1 gives no curve"),
    ],
)
def test_values_that_give_no_curve_are_refused(tmp_path, values, message):
    with pytest.raises(ValueError, match=message):
        find_learning_rate(make_learning_trainer(tmp_path), **values)
