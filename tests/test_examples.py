"""The examples run in a short form and print their results."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import proofmap as pm

pytest.importorskip("sklearn")
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SMALL: dict[str, dict[str, Any]] = {
    "breast_cancer": {"rows": 2},
    "series": {"rows": 1, "steps": 30},
    "wine": {"rows": 2},
}
PICTURES = {"breast_cancer": ["row.png", "summary.png"], "series": ["series.png"], "wine": ["rows.png", "summary.png"]}


def run(path: Path, **settings: Any) -> pm.Explanation:
    spec = spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: pm.Explanation = module.main(**settings)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    found = run(path, out=tmp_path, **SMALL[path.stem])
    assert len(found) == SMALL[path.stem]["rows"]
    assert found.guarantee == "certified"
    assert bool((found.overlap.full_lower <= found.overlap.full).all())
    assert sorted(file.name for file in tmp_path.iterdir()) == PICTURES[path.stem]
