"""Put the tables and figures of benchmark runs into docs/results.md.

    python scripts/results.py OUT

OUT contains a folder for each benchmark: `proofmap bench NAME --out OUT/NAME` writes it, and for the trials with known
ground truth, `python benchmarks/ground_truth.py --out OUT/ground-truth`. In the page, the text between
`<!-- NAME/FILE -->` and `<!-- end -->` is replaced by that file. Its figures, `results/NAME-FILE.png`, are copied.
Parts without a file in OUT stay unchanged.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

PAGE_FILE = Path(__file__).parents[1] / "docs" / "results.md"
_PART = re.compile(r"(<!-- (?P<file>[\w.-]+/[\w.-]+) -->\n)(?:(?!<!--).)*(<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"\(results/(?P<name>[\w-]+)-(?P<file>\w+\.png)\)")


def main() -> None:
    """Update the page."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])

    def fresh(part: re.Match[str]) -> str:
        file = out / part["file"]
        print(("filled  " if file.exists() else "left    ") + part["file"])
        return f"{part[1]}\n{file.read_text(encoding='utf-8')}\n{part[3]}" if file.exists() else part[0]

    text = _PART.sub(fresh, PAGE_FILE.read_text(encoding="utf-8"))
    PAGE_FILE.write_text(text, encoding="utf-8")
    for figure in _FIGURE.finditer(text):
        source, target = out / figure["name"] / figure["file"], PAGE_FILE.parent / figure[0][1:-1]
        if source.exists():
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(source, target)
            print(f"copied  {target.relative_to(PAGE_FILE.parent)}")


if __name__ == "__main__":
    main()
