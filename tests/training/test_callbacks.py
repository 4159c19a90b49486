"""The callbacks that arguments ask for, among those that others have added."""

import pytest
from transformers import TrainerCallback

from hf_elastic.training.callbacks import find_callback, replace_callbacks
from hf_elastic.training.clipping import PercentileClipping
from hf_elastic.training.loss_guard import LossGuard
from hf_elastic.training.resource_log import ResourceLog
from hf_elastic.training.training_statistics import TrainingStatistics
from tests.training.cases import make_trainer


class First(TrainerCallback):
    pass


class Last(TrainerCallback):
    pass


def test_new_ones_take_the_place_of_the_old_ones(tmp_path):
    trainer = make_trainer(tmp_path, callbacks=[First], settings={"on_bad_step": "skip", "log_resources": True})
    trainer.add_callback(Last())
    own = [First, LossGuard, ResourceLog, Last]
    assert [type(each) for each in trainer.callback_handler.callbacks if type(each) in own] == own
    replace_callbacks(trainer, {LossGuard, ResourceLog}, [PercentileClipping()])
    kinds = [First, PercentileClipping, Last]
    assert [type(each) for each in trainer.callback_handler.callbacks if type(each) in [*own, *kinds]] == kinds
    replace_callbacks(trainer, {LossGuard}, [LossGuard()])
    assert isinstance(trainer.callback_handler.callbacks[-1], LossGuard)


def test_each_training_has_those_that_its_arguments_ask_for(tmp_path):
    trainer = make_trainer(tmp_path, settings={"max_steps": 1, "on_bad_step": "skip"})
    guard = find_callback(trainer, LossGuard)
    trainer.args.percentile_clipping, trainer.args.statistics_steps = 20, 1
    trainer.train()
    assert find_callback(trainer, LossGuard) is not guard
    assert len(find_callback(trainer, PercentileClipping).norms) == 1
    assert any("update_ratio/embeddings" in log for log in trainer.state.log_history)
    trainer.args.on_bad_step, trainer.args.percentile_clipping = "ignore", 0
    trainer.train()
    assert find_callback(trainer, LossGuard) is find_callback(trainer, PercentileClipping) is None


def test_what_is_taken_out_stays_out(tmp_path):
    trainer = make_trainer(tmp_path, settings={"max_steps": 1, "on_bad_step": "skip", "log_resources": True})
    trainer.remove_callback(ResourceLog)
    for _ in range(2):
        trainer.train()
        assert find_callback(trainer, ResourceLog) is None and find_callback(trainer, LossGuard) is not None


def count_watching_hooks(trainer) -> int:
    hooks = [hook for module in trainer.model.modules() for hook in module._forward_hooks.values()]
    return sum(hook.__module__ == TrainingStatistics.__module__ for hook in hooks)


def test_a_training_that_breaks_off_leaves_no_hooks(tmp_path):
    class Breaking(TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            raise KeyboardInterrupt

    settings = {"max_steps": 1, "statistics_steps": 1, "gradient_accumulation_steps": 2}
    trainer = make_trainer(tmp_path, settings=settings, callbacks=[Breaking()])
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.remove_callback(Breaking)
    assert count_watching_hooks(trainer) > 0
    trainer.args.statistics_steps = 0
    trainer.train()
    assert count_watching_hooks(trainer) == 0 and find_callback(trainer, TrainingStatistics) is None
