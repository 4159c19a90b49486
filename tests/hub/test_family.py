import json
import shutil

import pytest
import torch

from hf_elastic import ElasticForSequenceClassification, SubnetConfig, load_family
from hf_elastic.hub.manifest import FamilyError
from hf_elastic.hub.staging import workspace_of

WEIGHTS = "tiny/model.safetensors"


def edit_manifest(family_path, edit):
    path = family_path / "family.json"
    values = json.loads(path.read_text())
    edit(values)
    path.write_text(json.dumps(values))


def test_a_family_tells_what_it_holds(exported):
    family = load_family(exported)
    assert family.path == exported
    assert family.names == ["large", "tiny"] == list(family.members)
    assert family.supernet.name == "supernet"
    assert family.members["tiny"].subnet == SubnetConfig(
        layers=(0, 3), num_attention_heads=(3, 2), intermediate_size=32
    )
    assert [row["size"] for row in family.table()] == ["large", "tiny"]
    assert family.table()[1]["accuracy"] == "0.9375"


def test_members_load_in_their_own_class(exported):
    family = load_family(exported)
    tiny = family.load("tiny")
    assert type(tiny) is ElasticForSequenceClassification
    assert tiny.config.num_hidden_layers == 2
    assert not tiny.training
    assert family.load("supernet").config.subnets.keys() == {"tiny", "large"}


def test_the_tokenizer_is_the_one_exported(exported, tokenizer):
    text = "word1 word7 unknown ."
    assert load_family(exported).tokenizer()(text).input_ids == tokenizer(text).input_ids


def test_a_family_stays_where_it_was_found(family_path, tmp_path, monkeypatch):
    monkeypatch.chdir(family_path.parent)
    family = load_family(family_path.name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert family.load("tiny").config.num_hidden_layers == 2
    assert family.tokenizer()("word1").input_ids


def test_a_member_computes_what_the_supernet_does_at_its_size(exported):
    family = load_family(exported)
    input_ids = torch.randint(5, 99, (2, 8))
    with torch.no_grad():
        expected = family.load("supernet")(input_ids, subnet="tiny").logits
        torch.testing.assert_close(family.load("tiny")(input_ids).logits, expected, atol=1e-6, rtol=0)


def test_an_unknown_member_is_named_with_the_possible_ones(exported):
    with pytest.raises(ValueError, match=r"has no member 'small': it has \['large', 'tiny', 'supernet'\]"):
        load_family(exported).load("small")


def test_no_folder(tmp_path):
    with pytest.raises(FamilyError, match="out is no folder: give one that `export_family` wrote"):
        load_family(tmp_path / "out")


def test_an_interrupted_export_is_recognised(tmp_path):
    workspace_of(tmp_path / "out").mkdir()
    with pytest.raises(FamilyError, match="out is no folder: an export was interrupted: export to .*out again"):
        load_family(tmp_path / "out")


def test_one_flipped_bit(family_path):
    path = family_path / WEIGHTS
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(FamilyError, match=rf"{WEIGHTS} has another content .*Export or download the family again"):
        load_family(family_path)


def test_a_truncated_file(family_path):
    path = family_path / WEIGHTS
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FamilyError, match=rf"{WEIGHTS} has {size - 1} bytes instead of {size}"):
        load_family(family_path)


@pytest.mark.parametrize("file", [WEIGHTS, "supernet/config.json", "large/README.md", "large/modeling_elastic.py"])
def test_a_missing_file(file, family_path):
    (family_path / file).unlink()
    with pytest.raises(FamilyError, match=f"{file} is missing"):
        load_family(family_path)


def test_a_missing_member(family_path):
    shutil.rmtree(family_path / "tiny")
    with pytest.raises(FamilyError, match="tiny/README.md is missing"):
        load_family(family_path)


def test_a_folder_in_place_of_a_file(family_path):
    (family_path / WEIGHTS).unlink()
    (family_path / WEIGHTS).mkdir()
    with pytest.raises(FamilyError, match=f"{WEIGHTS} is missing"):
        load_family(family_path)


@pytest.mark.parametrize("file", ["notes.txt", "tiny/pytorch_model.bin", "tiny/more/model.py", "huge/config.json"])
def test_an_added_file(file, family_path):
    (family_path / file).parent.mkdir(exist_ok=True)
    (family_path / file).write_text("added")
    with pytest.raises(FamilyError, match=f"{file} does not belong to the family"):
        load_family(family_path)


def test_an_added_link_to_a_folder(family_path, tmp_path):
    (family_path / "tiny" / "code").symlink_to(tmp_path)
    with pytest.raises(FamilyError, match="tiny/code does not belong to the family"):
        load_family(family_path)


@pytest.mark.parametrize("file", [".DS_Store", "tiny/.gitattributes", ".git/HEAD", "tiny/__pycache__/x.pyc"])
def test_hidden_files_and_bytecode_are_nobody_s_business(file, family_path):
    (family_path / file).parent.mkdir(exist_ok=True)
    (family_path / file).write_text("")
    assert load_family(family_path).names == ["large", "tiny"]


def test_without_verification_files_are_not_read(family_path):
    (family_path / "tiny" / "README.md").write_text("My own card.")
    with pytest.raises(FamilyError, match="verify=False if the change is yours"):
        load_family(family_path)
    assert load_family(family_path, verify=False).names == ["large", "tiny"]


@pytest.mark.parametrize(
    "file", ["../../secret", "/etc/passwd", "a/../../../secret", "..\\secret", "C:secret", "a//b", ""]
)
def test_a_manifest_that_points_outside(file, family_path):
    (family_path.parent / "secret").write_text("secret")
    edit_manifest(family_path, lambda values: values["members"][0]["files"].update({file: {"size": 6, "sha256": ""}}))
    with pytest.raises(FamilyError, match=r"family\.json lists .* may lie outside the folder"):
        load_family(family_path)


@pytest.mark.parametrize("name", ["..", ".", "", "../news", "/news", "a/b"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_member_that_points_outside(name, verify, family_path):
    edit_manifest(family_path, lambda values: values["members"][0].update(name=name))
    with pytest.raises(FamilyError, match=r"family\.json lists"):
        load_family(family_path, verify=verify)


def test_a_repeated_member(family_path):
    edit_manifest(family_path, lambda values: values["members"].append(values["members"][0]))
    with pytest.raises(FamilyError, match="'large', which is a repeated name"):
        load_family(family_path)


def test_an_unknown_architecture(family_path):
    edit_manifest(family_path, lambda values: values.update(architecture="ElasticForChess"))
    with pytest.raises(FamilyError, match="architecture 'ElasticForChess', and known are .*: upgrade hf_elastic"):
        load_family(family_path)


def test_a_manifest_without_members(family_path):
    edit_manifest(family_path, lambda values: values.update(members=[]))
    with pytest.raises(FamilyError, match="lists no members"):
        load_family(family_path)
