"""An installation without extras is enough for the commands of the first pages."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.sources.files import digits, write_png
from tests.test_architecture import PACKAGE, imported

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]

HIDING = """
import sys

hidden = set(sys.argv[1].split())

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)

sys.meta_path = [Without(finder) for finder in sys.meta_path]
from proofmap.cli import app

for line in sys.argv[2:]:
    if code := app(line.split(), standalone_mode=False):
        sys.exit(code)
"""


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {
    "superpixels",
    "onnx",
    "imagenet",
    "export",
    "ray",
}  # extras for users; the others are for tests and benchmarks


def named(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(one).name) for one in requirements}


def test_every_imported_package_is_required() -> None:
    """Each imported package is required by name, and no package is required in vain."""
    packages = packages_distributions()
    names = {name for path in PACKAGE.rglob("*.py") for name in imported(path.read_text(encoding="utf-8"), "proofmap")}
    others = {name.partition(".")[0] for name in names} - {"proofmap", "_typeshed", *sys.stdlib_module_names}
    found = {canonicalize_name(package) for name in others for package in packages.get(name, [name])}
    asked = named(PROJECT["dependencies"])
    extras = set().union(*(named(PROJECT["optional-dependencies"][extra]) for extra in EXTRAS))
    assert found - asked - extras == {"scikit-learn"}  # needed only for estimators of this package
    assert asked <= found


def brought() -> set[str]:
    """Return the packages that pip installs with this one, and their requirements."""
    found: set[str] = set()
    waiting = list(PROJECT["dependencies"])
    while waiting:
        one = Requirement(waiting.pop())
        name = canonicalize_name(one.name)
        if name in found or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            waiting += requires(name) or []
        except PackageNotFoundError:  # such as tomli, which a newer Python has inside
            continue
    return found


def test_the_first_commands_need_no_extra(tmp_path: Path) -> None:
    write_png(tmp_path / "digit.png", digits(1)[0][0])
    there = brought()
    assert "ray" not in there
    hidden = [
        module
        for module, packages in packages_distributions().items()
        if module != "proofmap" and not any(canonicalize_name(package) in there for package in packages)
    ]
    lines = [
        "explain zoo:mnist_mlp digit.png --eps 0.01 --groups grid:4 --out maps",
        "compare zoo:mnist_mlp digit.png --groups grid:4 --metrics deletion",
        "report report.html maps",
    ]
    done = subprocess.run(
        [sys.executable, "-c", HIDING, " ".join(hidden), *lines],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "maps" / "digit.map.png").is_file()
    assert (tmp_path / "report.html").is_file()
