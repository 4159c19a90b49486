from hf_elastic.hub.formats import check_formats, write_safetensors


def test_a_checkpoint_comes_with_weights_tokenizer_and_code(classifier, tokenizer, tmp_path):
    assert write_safetensors(classifier, tokenizer, tmp_path) == [tmp_path / "model.safetensors"]
    names = {path.name for path in tmp_path.iterdir()}
    assert {"config.json", "tokenizer.json", "modeling_elastic.py", "configuration_elastic.py"} <= names


def test_a_repeated_format_is_written_once():
    assert check_formats(["safetensors", "safetensors"]) == ["safetensors"]
