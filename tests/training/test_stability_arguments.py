import pytest

from hf_elastic import ElasticTrainingArguments


def test_defaults(tmp_path):
    args = ElasticTrainingArguments(str(tmp_path))
    assert (args.on_bad_step, args.spike_factor, args.spike_window) == ("stop", 0.0, 50)
    assert (args.max_bad_steps, args.statistics_steps) == (10, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_bad_step": "retry"}, "on_bad_step='retry'.*ignore, stop, skip, rollback"),
        ({"spike_factor": 0.5}, "spike_factor=0.5 would call ordinary losses spikes.*0 to look for none"),
        ({"spike_factor": -2.0}, "spike_factor=-2.0"),
        ({"spike_factor": float("inf")}, "spike_factor=inf is not finite"),
        ({"spike_factor": 3.0, "on_bad_step": "ignore"}, "spike_factor=3.0.*on_bad_step='ignore' does not"),
        ({"spike_window": 1}, "spike_window=1 is not possible. Give a whole number, 2 or more"),
        ({"max_bad_steps": 0}, "max_bad_steps=0.*1 or more"),
        ({"max_bad_steps": True}, "max_bad_steps=True"),
        ({"statistics_steps": -1}, "statistics_steps=-1.*0 or more"),
        ({"statistics_steps": 2.5}, "statistics_steps=2.5"),
        ({"on_bad_step": "rollback", "save_strategy": "no"}, "'rollback' needs checkpoints.*on_bad_step='skip'"),
        ({"on_bad_step": "rollback", "save_only_model": True}, "'rollback' restores the optimizer"),
    ],
)
def test_bad_values_are_named(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        ElasticTrainingArguments(str(tmp_path), **settings)


def test_a_factor_in_quotes_is_named(tmp_path):
    with pytest.raises(TypeError, match="spike_factor='3' is a str. Give a number"):
        ElasticTrainingArguments(str(tmp_path), spike_factor="3")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_bad_step": "skip"}, "on_bad_step='skip' does not work with DeepSpeed.*Use 'stop'"),
        ({"on_bad_step": "rollback"}, "on_bad_step='rollback' does not work with DeepSpeed"),
        ({"statistics_steps": 10}, "statistics_steps=10 does not work with DeepSpeed"),
    ],
)
def test_what_deepspeed_does_by_itself_is_named(tmp_path, monkeypatch, settings, message):
    args = ElasticTrainingArguments(str(tmp_path), **settings)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")  # what `accelerate launch` sets
    with pytest.raises(ValueError, match=message):
        args.check_stability()
