import pytest

from hf_elastic.hub.formats import check_formats, write_safetensors


def test_a_checkpoint_comes_with_weights_tokenizer_and_code(classifier, tokenizer, tmp_path):
    assert write_safetensors(classifier, tokenizer, tmp_path) == [tmp_path / "model.safetensors"]
    names = {path.name for path in tmp_path.iterdir()}
    assert {"config.json", "tokenizer.json", "modeling_elastic.py", "configuration_elastic.py"} <= names


@pytest.mark.parametrize("formats", [(), ["safetensors"], ("safetensors", "safetensors")])
def test_every_member_is_a_checkpoint_once(formats):
    assert check_formats(formats) == ["safetensors"]
