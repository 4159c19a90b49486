import itertools

import pytest
import torch
from transformers import TrainerCallback

from hf_elastic.training.callbacks import find_callback
from hf_elastic.training.growing_batches import AdaptBatchSize, ResizableBatchSampler
from tests.training.cases import (
    GradientRecorder,
    assert_same_gradients,
    logged,
    losses_of,
    make_model,
    make_rows,
    make_trainer,
)


def draw(sampler, number, changes=()):
    """So many batches, with other sizes set before some of them."""
    batches = []
    for i, batch in enumerate(itertools.islice(sampler, number)):
        batches.append(batch)
        sampler.size = dict(changes).get(i + 1, sampler.size)
    return batches


def test_an_epoch_has_every_example_once():
    batches = draw(ResizableBatchSampler(length=20, size=3), 14, {2: 5, 6: 2})
    stream = list(itertools.chain(*batches))
    assert [len(batch) for batch in batches] == [3, 3, 5, 5, 5, 5, *[2] * 8]
    assert sorted(stream[:20]) == sorted(stream[20:40]) == list(range(20))
    assert stream[:20] != stream[20:40]


def test_the_order_does_not_depend_on_the_size():
    streams = [list(itertools.chain(*draw(ResizableBatchSampler(30, size, seed=3), 60 // size))) for size in (2, 5, 6)]
    assert streams[0] == streams[1] == streams[2]
    assert streams[0] != list(itertools.chain(*draw(ResizableBatchSampler(30, 2, seed=4), 30)))


def test_another_iteration_begins_with_the_same_batches():
    sampler = ResizableBatchSampler(length=20, size=3)
    first = draw(sampler, 8, {2: 5, 6: 2})
    assert draw(sampler, 8) == first


def test_two_processes_share_each_batch():
    whole = draw(ResizableBatchSampler(20, 4), 6, {3: 6})
    first, second = (draw(ResizableBatchSampler(20, 2, 0, 2, i), 6, {3: 3}) for i in range(2))
    assert [ours + theirs for ours, theirs in zip(first, second, strict=True)] == whole


class Sizes(TrainerCallback):
    """Sets the size at some steps, in place of the memory, if it has any; and writes down each step."""

    def __init__(self, sizes):
        self.sizes, self.rates = sizes, []

    def on_step_end(self, args, state, control, lr_scheduler=None, **kwargs):
        adapt = find_callback(self.trainer, AdaptBatchSize)
        if self.sizes is not None:
            adapt.rule.steps_below = 0
            adapt.rule.size = adapt.sampler.size = self.sizes.get(state.global_step, adapt.rule.size)
        self.rates.append(lr_scheduler.get_last_lr()[0])

    @property
    def epochs(self):
        return logged(self.trainer, "epoch")


def train(folder, sizes, resume=None, callbacks=(), **settings):
    defaults = {
        "adapt_micro_batch_size": True,
        "keep_effective_batch": False,
        "max_examples": 128,
        "per_device_train_batch_size": 8,
        "memory_threshold": 1.0,
        "learning_rate": 1e-3,
        "save_strategy": "steps",
        "save_steps": 1,
    }
    watch, recorder = Sizes(sizes), GradientRecorder()
    trainer = make_trainer(folder, settings={**defaults, **settings}, callbacks=[recorder, *callbacks])
    trainer.add_callback(watch)  # behind those of the trainer
    watch.trainer = trainer
    trainer.train(resume_from_checkpoint=resume and str(resume))
    return trainer, watch, recorder.steps


SIZES = {2: 10, 4: 20, 5: 13}


@pytest.fixture(scope="module", params=[0, 1], ids=["no worker", "one worker"])
def unbroken(request, tmp_path_factory):
    """A training of two epochs with a checkpoint per step, and how many workers its loader has."""
    folder = tmp_path_factory.mktemp("unbroken")
    return folder, request.param, *train(folder, SIZES, dataloader_num_workers=request.param)


@pytest.mark.parametrize("step", [2, 3, 7])
def test_resumes_with_the_batches_of_an_unbroken_training(tmp_path, unbroken, step):
    """At a change, behind one that is not drawn yet, and in the second epoch."""
    folder, workers, trainer, watch, expected = unbroken
    settings = {"dataloader_num_workers": workers, "save_strategy": "no"}
    again, resumed, actual = train(tmp_path, SIZES, folder / f"checkpoint-{step}", **settings)
    assert_same_gradients(actual, expected[step:])
    assert resumed.rates == pytest.approx(watch.rates[step:])
    assert resumed.epochs == pytest.approx(watch.epochs)
    assert again.state.global_step == trainer.state.global_step == len(expected) > 8


def test_progress_counts_examples(tmp_path):
    _, constant, _ = train(tmp_path, {}, save_strategy="no")
    _, growing, _ = train(tmp_path, SIZES, save_strategy="no")
    rate_at = dict(zip(constant.epochs, constant.rates, strict=True))
    assert constant.rates == pytest.approx([1e-3 * (1 - i / 16) for i in range(1, 17)])
    assert growing.epochs[:4] == pytest.approx([0.125, 0.25, 0.375, 0.53125])
    assert growing.rates[:3] == pytest.approx([rate_at[epoch] for epoch in growing.epochs[:3]])
    assert growing.rates[3] == pytest.approx(1e-3 * (1 - 34 / 128))
    assert growing.epochs[-1] >= 2 > growing.epochs[-2]
    assert growing.rates[-1] == 0


class Weights(TrainerCallback):
    """Keeps a weight of each step."""

    def __init__(self):
        self.steps = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.steps.append(model.classifier.weight.detach().clone())


def test_averages_begin_by_the_examples(tmp_path):
    """Batches of 8, 8, 16, 16 and 16 rows: the fourth reaches three quarters of 64 examples, none does of 8 steps."""
    settings = {"max_examples": 64, "save_strategy": "no", "weight_averaging": "swa", "swa_start": 0.75}
    weights = Weights()
    trainer, _, _ = train(tmp_path, {1: 16}, callbacks=[weights], **settings)
    assert (len(weights.steps), trainer.state.max_steps) == (5, 8)
    torch.testing.assert_close(trainer.model.classifier.weight.detach(), torch.stack(weights.steps[3:]).mean(dim=0))


def test_the_order_is_that_of_the_data_seed(tmp_path):
    def first_batch(**seeds):
        settings = {"adapt_micro_batch_size": True, "keep_effective_batch": False, "max_examples": 64, **seeds}
        return next(iter(make_trainer(tmp_path, settings=settings).get_train_dataloader()))["input_ids"].tolist()

    assert first_batch(seed=1, data_seed=5) == first_batch(seed=2, data_seed=5) == first_batch(seed=5)
    assert first_batch(seed=1, data_seed=5) != first_batch(seed=1)


def test_batches_grow_with_the_memory_and_never_fall_under_what_was_asked_for(tmp_path):
    roomy, _, _ = train(tmp_path, None, max_examples=100, save_strategy="no")
    sizes = logged(roomy, "batch_size")
    assert sizes[:3] == [8, 8, 9]
    assert max(sizes) > 9
    tight, _, _ = train(tmp_path, None, max_examples=40, memory_threshold=1e-6, save_strategy="no")
    assert set(logged(tight, "batch_size")) == {8}
    assert logged(tight, "micro_batch_size") == [7, 6, 5, 4, 3]


def test_streams_are_refused_before_the_training(tmp_path):
    settings = {"adapt_micro_batch_size": True, "keep_effective_batch": False, "max_examples": 8}
    with pytest.raises(ValueError, match="draws examples by index, which a Stream does not give.*streaming=True"):
        make_trainer(tmp_path, settings=settings, train_dataset=Stream())
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_list(make_rows("classification", 8)).to_iterable_dataset()
    with pytest.raises(ValueError, match="which a IterableDataset does not give"):
        make_trainer(tmp_path, settings=settings, train_dataset=stream)


class Stream(torch.utils.data.IterableDataset):
    """Examples that have a number, and no order."""

    def __len__(self):
        return 8

    def __iter__(self):
        yield from make_rows("classification", 8)


def test_the_losses_of_others_count_by_the_examples(tmp_path):
    """Every batch is twice as large as the first size, from the third one on."""
    settings = {"sampling": "joint", "learning_rate": 0.0, "max_examples": 64, "save_strategy": "no"}
    settings |= {"distillation_weight": 1.0, "distillation_weight_end": 0.0, "distillation_schedule": "linear"}
    trainer, watch, _ = train(tmp_path, {1: 16}, **settings, hidden_weight=0.0, task_weight=0.0, task_weight_end=1.0)
    shares, sizes = [], logged(trainer, "batch_size")
    for log in losses_of(trainer):
        task, others = log["task_loss_tiny"], log["distillation_loss_tiny"]
        shares.append((log["loss_tiny"] - others) / (task - others))
    done = [round(epoch * 64) for epoch in watch.epochs]
    assert shares == pytest.approx([0.0, *(number / 64 for number in done[:-1])], abs=1e-4)
    assert done == [8, 16, 32, 48, 64] and sizes[-1] == 16


def test_schedulers_that_count_steps_are_refused_before_the_training(tmp_path):
    settings = {"adapt_micro_batch_size": True, "keep_effective_batch": False, "max_examples": 64}
    with pytest.raises(TypeError, match="ReduceLROnPlateau counts steps.*'linear'"):
        make_trainer(
            tmp_path,
            settings={
                **settings,
                "lr_scheduler_type": "reduce_lr_on_plateau",
                "eval_strategy": "steps",
                "eval_steps": 1,
            },
        )
    model = make_model("classification")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"model": model, "optimizers": (optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2))}
    with pytest.raises(TypeError, match="StepLR counts steps"):
        make_trainer(tmp_path, settings=settings, **given)


@pytest.mark.parametrize("kind", ["cosine", "constant", "polynomial", "inverse_sqrt", "warmup_stable_decay"])
def test_schedulers_by_the_progress_are_not(tmp_path, kind):
    settings = {"adapt_micro_batch_size": True, "keep_effective_batch": False, "max_examples": 64, "warmup_steps": 0.1}
    options = {"num_decay_steps": 2} if kind == "warmup_stable_decay" else {}
    make_trainer(tmp_path, settings={**settings, "lr_scheduler_type": kind, "lr_scheduler_kwargs": options})


def test_two_shards_of_a_prepared_loader():
    """As accelerate wraps the sampler in each of two processes."""
    from accelerate.data_loader import prepare_data_loader

    batches = []
    for index in range(2):
        sampler = ResizableBatchSampler(20, 2, num_processes=2, process_index=index)
        loader = torch.utils.data.DataLoader(list(range(20)), batch_sampler=sampler)
        loader = prepare_data_loader(loader, num_processes=2, process_index=index, put_on_device=False)
        loader.batch_sampler.num_processes, loader.batch_sampler.process_index = 1, 0
        drawn = []
        for i, batch in zip(range(6), loader, strict=False):
            drawn.append(batch.tolist())
            sampler.size = 3 if i == 2 else sampler.size
        batches.append(drawn)
    # Of one batch ahead: the size that is set at the third counts from the fifth on.
    whole = draw(ResizableBatchSampler(20, 4), 6, {4: 6})
    assert [ours + theirs for ours, theirs in zip(*batches, strict=True)] == whole
