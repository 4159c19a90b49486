"""A training with changed arguments is that of a trainer which was made with them."""

from pathlib import Path

import pytest
import torch

from hf_elastic import ElasticTrainer
from tests.training.cases import collate, losses_of, make_arguments, make_model, make_rows
from tests.training.teacher_cases import make_teacher

BASE = {"max_steps": 3, "learning_rate": 1e-3, "per_device_train_batch_size": 16, "subnet_weighting": "by_loss"}
CHANGES = {
    "nothing": {},
    "sampling": {"sampling": "joint"},
    "number of subnets": {"num_random_subnets": 2},
    "seed": {"seed": 7},
    "losses": {"hidden_loss": "cosine", "relation_weight": 1.0, "temperature": 2.0},
    "features of another width": {"hidden_weight": 1.0},
    "no projections": {"embedding_weight": 0.0},
    "weights of teachers": {"teacher_mixing": "validation"},
    "precision of teachers": {"teacher_dtype": "bfloat16"},
    "surgery": {"gradient_conflicts": "pcgrad"},
    "no surgery": {"gradient_conflicts": "add"},
    "weighting": {"subnet_weighting": "toward_largest"},
    "clipping": {"percentile_clipping": 20, "percentile_window": 2},
    "averages": {"weight_averaging": "ema", "ema_decay": 0.5},
    "penalty": {"group_penalty": 0.1},
    "layer rates": {"layer_lr_decay": 0.5},
    "micro-batches": {"adapt_micro_batch_size": True, "micro_batch_size": 3},
}
BEFORE = {"no projections": {"embedding_weight": 1.0}, "no surgery": {"gradient_conflicts": "pcgrad"}}


def make(folder: Path, **settings) -> ElasticTrainer:
    """With a narrower teacher, and without features to compare with it unless the settings say otherwise."""
    return ElasticTrainer(
        args=make_arguments(folder, **{**BASE, "hidden_weight": 0.0, **settings}),
        model_init=lambda: make_model("classification"),
        train_dataset=make_rows("classification", 64),
        eval_dataset=make_rows("classification", 16, seed=1),
        data_collator=collate,
        teachers=[make_teacher()],
    )


@pytest.mark.parametrize("name", CHANGES)
def test_changed_arguments(tmp_path, name):
    if "surgery" in name:
        pytest.importorskip("torchjd")
    changes, before = CHANGES[name], BEFORE.get(name, {})
    again, fresh = make(tmp_path, **before), make(tmp_path, **{**before, **changes})
    again.train()
    for argument, value in changes.items():
        setattr(again.args, argument, value)
    for trainer in (again, fresh):
        trainer.train()
    assert losses_of(again) == losses_of(fresh)
    expected = fresh.model.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in again.model.state_dict().items())
    assert again.evaluate()["eval_tiny_loss"] == fresh.evaluate()["eval_tiny_loss"]
