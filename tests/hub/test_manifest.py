import json
from dataclasses import replace

import pytest

from hf_elastic.hub.manifest import MANIFEST_NAME, FamilyError, read_manifest


@pytest.fixture
def values(manifest, tmp_path):
    """The manifest as JSON, to be changed."""
    manifest.write(tmp_path)
    return json.loads((tmp_path / MANIFEST_NAME).read_text())


def read_changed(values, tmp_path):
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(values))
    return read_manifest(tmp_path)


def test_reading_gives_what_was_written(manifest, tmp_path):
    manifest.write(tmp_path)
    assert read_manifest(tmp_path) == manifest


def test_json_shows_subnets_as_settings(values):
    assert values["members"][0]["subnet"] == {}
    assert values["members"][1]["subnet"] == {"layers": [0, 1, 2]}


def test_keys_of_later_versions_are_ignored(values, manifest, tmp_path):
    values["colour"] = "green"
    values["members"][0]["weight"] = 3
    assert read_changed(values, tmp_path) == manifest


def test_missing(tmp_path):
    with pytest.raises(FamilyError, match=r"family\.json cannot be read .*give the folder that `export_family` wrote"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{}"])
def test_malformed(content, tmp_path):
    (tmp_path / MANIFEST_NAME).write_bytes(content)
    with pytest.raises(FamilyError, match=r"family\.json is not valid JSON .*export or download the family again"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{}", '{"format_version": 2}', '{"format_version": "1"}', "null"])
def test_unknown_format_version(content, tmp_path):
    (tmp_path / MANIFEST_NAME).write_text(content)
    with pytest.raises(FamilyError, match=r"family\.json has format version .* reads 1: upgrade hf_elastic"):
        read_manifest(tmp_path)


def change(key, value):
    return lambda values: values.__setitem__(key, value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda values: values.pop("members"), "members is missing"),
        (lambda values: values["members"][1].pop("flops"), r"members\[1\]\.flops is missing"),
        (change("members", {}), r"members should be a list, found \{\}"),
        (change("members", [3]), r"members\[0\] should be an object, found 3"),
        (change("hidden_size", "wide"), "hidden_size should be an integer, found 'wide'"),
        (change("hidden_size", True), "hidden_size should be an integer, found True"),
        (change("hidden_size", 1.5), "hidden_size should be an integer, found 1.5"),
        (change("source", 3), "source should be text or null, found 3"),
        (change("greater_is_better", 1), "greater_is_better should be true or false, found 1"),
        (
            lambda values: values["members"][0]["latency"].update(milliseconds="fast"),
            r"members\[0\]\.latency\.milliseconds should be a finite number, found 'fast'",
        ),
        (
            lambda values: values["members"][0]["metrics"].update(accuracy=None),
            r"members\[0\]\.metrics\['accuracy'\] should be a finite number, found None",
        ),
        (lambda values: values["members"][0]["subnet"].update(layers=[-1]), "smaller than 0"),
        (lambda values: values["members"][0]["subnet"].update(depth=3), "Unknown subnet setting 'depth'"),
        (
            lambda values: values["members"][0]["metrics"].update(accuracy=float("nan")),
            r"members\[0\]\.metrics\['accuracy'\] should be a finite number, found nan",
        ),
        (
            lambda values: values["members"][0]["metrics"].update(accuracy=10**400),
            r"members\[0\]\.metrics\['accuracy'\] should be a finite number, found 1000",
        ),
        (
            lambda values: values["details"]["settings"].update(rate=float("inf")),
            r"details\.settings\['rate'\] should be .*, found inf",
        ),
        (
            lambda values: values["supernet"].update(size_on_disk={}),
            r"supernet\.size_on_disk lacks 'safetensors', found \{\}",
        ),
        (
            lambda values: values["members"][2].update(size_on_disk={"onnx": 3}),
            r"members\[2\]\.size_on_disk lacks 'safetensors', found \{'onnx': 3\}",
        ),
        (lambda values: values["supernet"].update(layers=[]), r"supernet\.layers is empty"),
        (lambda values: values["members"][1].update(layers=[]), r"members\[1\]\.layers is not what .* keeps"),
        (
            lambda values: values["members"][1]["subnet"].update(layers=[99]),
            r"members\[1\]\.subnet does not fit the supernet: .*layer 99 does not exist",
        ),
        (lambda values: values["details"].update(license=3), "details.license should be text or null"),
    ],
)
def test_damaged_values(damage, message, values, tmp_path):
    damage(values)
    with pytest.raises(FamilyError, match=rf"family\.json is damaged: .*{message}.*Export or download"):
        read_changed(values, tmp_path)


def test_whole_numbers_are_read_where_numbers_belong(values, tmp_path):
    values["members"][0]["metrics"]["accuracy"] = 1
    assert read_changed(values, tmp_path).members[0].metrics["accuracy"] == 1.0


def test_what_could_not_be_read_is_not_written(manifest, tmp_path):
    member = replace(manifest.supernet, metrics={"accuracy": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(manifest, supernet=member).write(tmp_path)
    assert not list(tmp_path.iterdir())
