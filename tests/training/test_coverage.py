from hf_elastic import SubnetConfig
from hf_elastic.training.coverage import merge_metrics, trained_subnets, without_prefix


def test_a_named_full_model_is_not_repeated(classifier):
    assert list(trained_subnets(classifier)) == ["large", "base", "small", "tiny"]


def test_a_full_model_is_found_by_its_sizes(classifier):
    classifier.config.subnets = {"whole": SubnetConfig(layers=(0, 1, 2, 3), num_attention_heads=4)}
    assert list(trained_subnets(classifier)) == ["whole"]


def test_the_full_model_is_added(classifier):
    classifier.config.subnets = {"tiny": classifier.config.subnets["tiny"]}
    subnets = trained_subnets(classifier)
    assert subnets["supernet"] == SubnetConfig()
    assert list(subnets) == ["tiny", "supernet"]
    assert list(classifier.config.subnets) == ["tiny"]


def test_metrics_get_names_and_a_mean():
    metrics = {
        "a": {"loss": 1.0, "f1": 0.5, "report": {"x": 1}},
        "b": {"loss": 2.0, "f1": 1, "report": {"x": 2}},
    }
    assert merge_metrics(metrics, "eval") == {
        "eval_a_loss": 1.0,
        "eval_a_f1": 0.5,
        "eval_a_report": {"x": 1},
        "eval_b_loss": 2.0,
        "eval_b_f1": 1,
        "eval_b_report": {"x": 2},
        "eval_mean_loss": 1.5,
        "eval_mean_f1": 0.75,
    }


def test_metrics_without_prefix_and_without_those_of_the_run():
    metrics = {"eval_dev_loss": 1.0, "eval_dev_eval_dev_f1": 0.5, "eval_dev_model_preparation_time": 3.0}
    assert without_prefix(metrics, "eval_dev") == {"loss": 1.0, "eval_dev_f1": 0.5}


def test_no_mean_of_what_a_subnet_lacks():
    merged = merge_metrics({"a": {"loss": 1.0, "f1": 0.5}, "b": {"loss": 3.0}}, "eval_dev")
    assert merged["eval_dev_mean_loss"] == 2.0
    assert "eval_dev_mean_f1" not in merged
