"""Each parameter is in one group, with the learning rate of its depth; without settings nothing changes."""

import pytest
import torch
import transformers
from torch import nn
from transformers import Trainer

import hf_elastic
from hf_elastic import ElasticConfig
from hf_elastic.training.parameter_groups import find_encoder, parameter_groups, with_parameter_groups
from tests.conftest import HEADS, TINY

from .cases import make_arguments, make_fresh_model, make_model, make_trainer


def settings(**values):
    """Training arguments with round numbers."""
    return make_arguments("unused", **{"learning_rate": 1.0, "weight_decay": 0.1, "optim": "adamw_torch", **values})


def by_name(model, groups):
    """The group of each trainable parameter; fails where one is missing or twice."""
    grouped = [parameter for group in groups for parameter in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {parameter for parameter in model.parameters() if parameter.requires_grad}
    owners = {parameter: group for group in groups for parameter in group["params"]}
    return {name: owners[parameter] for name, parameter in model.named_parameters() if parameter.requires_grad}


def rates(model, **values):
    return {name: group["lr"] for name, group in by_name(model, parameter_groups(model, settings(**values))).items()}


def test_rates_of_a_supernet_by_hand():
    config = ElasticConfig(**TINY, embedding_size=16, final_norm=True, num_labels=3)
    model = hf_elastic.ElasticForSequenceClassification(config)
    found = rates(model, layer_lr_decay=0.5, head_lr_multiplier=10.0)
    expected = {
        "model.embeddings.word_embeddings.weight": 1 / 16,
        "model.embeddings.norm.bias": 1 / 16,
        "model.embeddings.projection.weight": 1 / 16,
        "model.layers.0.attention.q_proj.weight": 1 / 8,
        "model.layers.1.attention_norm.weight": 1 / 4,
        "model.layers.2.mlp.up_proj.bias": 1 / 2,
        "model.layers.3.mlp_norm.weight": 1.0,
        "model.final_norm.weight": 1.0,
        "model.pooler.dense.weight": 1.0,
        "classifier.weight": 10.0,
        "classifier.bias": 10.0,
    }
    assert {name: found[name] for name in expected} == expected


def test_rates_of_bert_by_hand(tiny_bert_config):
    model = transformers.BertForSequenceClassification(tiny_bert_config)
    found = rates(model, layer_lr_decay=0.5, head_lr_multiplier=5.0)
    expected = {
        "bert.embeddings.position_embeddings.weight": 1 / 16,
        "bert.encoder.layer.0.attention.self.query.weight": 1 / 8,
        "bert.encoder.layer.3.output.dense.bias": 1.0,
        "bert.pooler.dense.weight": 1.0,
        "classifier.weight": 5.0,
    }
    assert {name: found[name] for name in expected} == expected


def test_names_and_order_of_the_groups(tiny_config):
    model = hf_elastic.ElasticForSequenceClassification(tiny_config)
    parts = ["top", "layer_3", "layer_2", "layer_1", "layer_0", "embeddings", "head"]
    names = [group["name"] for group in parameter_groups(model, settings(layer_lr_decay=0.9))]
    assert names == [name for part in parts for name in (part, f"{part}_no_decay")]
    names = [group["name"] for group in parameter_groups(model, settings())]
    assert sorted(names) == ["encoder", "encoder_no_decay", "head", "head_no_decay"]


def test_every_head_is_covered(model):
    found = rates(model, layer_lr_decay=0.5, head_lr_multiplier=10.0)
    of_encoder = {id(parameter) for parameter in find_encoder(model).parameters()}
    for name, parameter in model.named_parameters():
        assert (found[name] == 10.0) == (id(parameter) not in of_encoder)


@pytest.mark.parametrize("class_name", HEADS)
def test_decay_is_the_trainers_but_for_vectors(class_name, tiny_config, tiny_bert_config):
    elastic = getattr(hf_elastic, class_name)(tiny_config)
    bert = getattr(transformers, HEADS[class_name])(tiny_bert_config)
    for model in (elastic, bert):
        groups = by_name(model, parameter_groups(model, settings()))
        decayed = {name for name, group in groups.items() if group["weight_decay"] == 0.1}
        # The trainer lists a tied weight under both names.
        assert decayed == set(Trainer.get_decay_parameter_names(None, model)) & groups.keys()


def test_vectors_that_are_no_norm_do_not_decay():
    config = ElasticConfig(**TINY, layer_types=["block_sparse_attention"] * 4)
    model = hf_elastic.ElasticModel(config)
    groups = by_name(model, parameter_groups(model, settings()))
    assert groups["layers.0.attention.sparsity_logit"]["weight_decay"] == 0.0


def test_experts_have_their_layers_rate_and_their_biases_do_not_decay():
    model = hf_elastic.ElasticModel(ElasticConfig(**TINY, num_experts=2))
    groups = by_name(model, parameter_groups(model, settings(layer_lr_decay=0.5)))
    of_experts = {name: group for name, group in groups.items() if "layers.1.mlp." in name}
    assert any(name.endswith("up_proj") for name in of_experts)
    for name, group in of_experts.items():
        assert group["lr"] == 1 / 4
        assert group["weight_decay"] == (0.0 if "bias" in name else 0.1)


def test_shared_layers_learn_as_the_topmost_of_them():
    config = ElasticConfig(**TINY, layer_groups=[0, 0, 1, 0])
    found = rates(hf_elastic.ElasticModel(config), layer_lr_decay=0.5)
    assert found["layers.0.mlp.up_proj.weight"] == 1.0
    assert found["layers.1.mlp.up_proj.weight"] == 1 / 2


def test_tied_weights_are_in_one_group(tiny_config):
    model = hf_elastic.ElasticForMaskedLM(tiny_config)
    assert model.lm_head.decoder.weight is model.model.embeddings.word_embeddings.weight
    found = rates(model, layer_lr_decay=0.5, head_lr_multiplier=10.0)
    assert found["model.embeddings.word_embeddings.weight"] == 1 / 16
    assert found["lm_head.decoder.bias"] == 10.0


def test_frozen_parameters_are_in_no_group(classifier):
    classifier.model.requires_grad_(False)
    groups = parameter_groups(classifier, settings(layer_lr_decay=0.5))
    assert [group["name"] for group in groups] == ["head", "head_no_decay"]


def test_rates_of_adapters(classifier):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["o_proj", "word_embeddings"], r=2)
    found = rates(peft.get_peft_model(classifier, config), layer_lr_decay=0.5, head_lr_multiplier=10.0)
    prefix = "base_model.model."
    assert found[f"{prefix}model.layers.0.attention.o_proj.lora_A.default.weight"] == 1 / 8
    assert found[f"{prefix}model.layers.3.attention.o_proj.lora_B.default.weight"] == 1.0
    assert found[f"{prefix}model.embeddings.word_embeddings.lora_embedding_A.default"] == 1 / 16
    assert found[f"{prefix}classifier.modules_to_save.default.weight"] == 10.0


def test_soft_prompts_learn_as_embeddings(tiny_bert_config):
    peft = pytest.importorskip("peft")
    config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2)
    model = peft.get_peft_model(transformers.BertForSequenceClassification(tiny_bert_config), config)
    found = rates(model, layer_lr_decay=0.5, head_lr_multiplier=10.0)
    assert found["prompt_encoder.default.embedding.weight"] == 1 / 16


def test_layers_without_telling_names_are_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert len(parameter_groups(model, settings())) == 2
    with pytest.raises(ValueError, match="layer_lr_decay=0.5 needs layers.*Sequential"):
        parameter_groups(model, settings(layer_lr_decay=0.5))


@pytest.mark.parametrize(
    "scheduler", ["linear", "cosine", "polynomial", "cosine_with_min_lr", "inverse_sqrt", "warmup_stable_decay"]
)
def test_schedulers_keep_the_ratios(classifier, scheduler):
    specific = {
        "cosine_with_min_lr": {"min_lr_rate": 0.1},
        "polynomial": {"lr_end": 1e-3},
        "warmup_stable_decay": {"num_decay_steps": 4},
    }
    groups = parameter_groups(classifier, settings(layer_lr_decay=0.5, head_lr_multiplier=10.0))
    optimizer = torch.optim.AdamW(groups, lr=1.0)
    schedule = transformers.get_scheduler(scheduler, optimizer, 2, 10, specific.get(scheduler))
    for _ in range(7):
        optimizer.step()
        schedule.step()
        rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
        assert rates["embeddings"] == pytest.approx(rates["top"] / 16)
        assert rates["head"] == pytest.approx(rates["top"] * 10)
    assert 0 < rates["top"] < 1


class StockGroups(hf_elastic.ElasticTrainer):
    """Has the groups of transformers."""

    def get_optimizer_cls_and_kwargs(self, args, model=None):
        return Trainer.get_optimizer_cls_and_kwargs(args, model)


def trained(output, trainer_class=hf_elastic.ElasticTrainer, **values):
    """A trainer after three steps of 8 rows."""
    values = {"max_steps": 3, "learning_rate": 1e-3, "weight_decay": 0.1, "per_device_train_batch_size": 8, **values}
    trainer = make_trainer(output, settings=values, model=make_fresh_model(), cls=trainer_class)
    trainer.train()
    return trainer


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused"])
def test_neutral_settings_give_the_stock_weights(tmp_path, optim):
    stock = trained(tmp_path / "stock", StockGroups, optim=optim)
    grouped = trained(tmp_path / "grouped", optim=optim)
    assert "name" not in stock.optimizer.param_groups[0]
    assert grouped.optimizer.param_groups[0]["name"].startswith("encoder")
    before = make_fresh_model().state_dict()
    for name, value in stock.model.state_dict().items():
        assert torch.equal(grouped.model.state_dict()[name], value), name
    assert not torch.equal(stock.model.state_dict()["classifier.weight"], before["classifier.weight"])


def test_a_training_has_the_rates_of_the_depths(tmp_path):
    settings = {"layer_lr_decay": 0.5, "head_lr_multiplier": 10.0, "lr_scheduler_type": "constant", "max_steps": 1}
    groups = trained(tmp_path, **settings).optimizer.param_groups
    found = {group["name"]: group["lr"] for group in groups}
    assert (found["embeddings"], found["top"], found["head"]) == pytest.approx((1e-3 / 16, 1e-3, 1e-2))


def test_the_learning_rate_grows_with_the_root_of_the_batch(tmp_path):
    settings = {"scale_lr_with_batch": True, "base_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 1}
    assert trained(tmp_path, lr_scheduler_type="constant", **settings).optimizer.param_groups[0]["lr"] == 2e-3


def test_optimizers_with_groups_of_their_own_are_refused(classifier):
    args = settings(head_lr_multiplier=2.0)
    with pytest.raises(ValueError, match="head_lr_multiplier=2.0 has no effect on optim='adamw_torch'"):
        with_parameter_groups(torch.optim.AdamW, {"lr": 1.0, "params": []}, classifier, args, 8)
    assert with_parameter_groups(lambda: None, {"lr": 2.0}, classifier, settings(), 8) == {"lr": 2.0}


def test_the_arguments_own_learning_rate_is_used(classifier):
    groups = parameter_groups(classifier, settings(learning_rate=0.25, weight_decay=0.5))
    assert {group["lr"] for group in groups} == {0.25}
    assert {group["weight_decay"] for group in groups} == {0.5, 0.0}


def test_a_model_of_several_layer_counts_is_read_from_its_names():
    model = make_model("classification", layers=2)
    assert rates(model, layer_lr_decay=0.5)["model.embeddings.norm.weight"] == 1 / 4
