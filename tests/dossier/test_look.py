"""The page of evidence in a real browser: it loads nothing, fits every screen, and can be read bright and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proofmap.dossier.evidence import pages
from tests.dossier.making import certify
from tests.dossier.test_evidence import FIRST, facts_of
from tests.show.browser import NAMES, Tab, find, tab
from tests.show.test_browser import CONTRAST

BROWSER = find()
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: none of {', '.join(NAMES)}")


@pytest.fixture
def opened(bare: Path, tmp_path: Path) -> Iterator[Tab]:
    assert BROWSER is not None
    certify(bare, lower=True)
    page = tmp_path / "evidence.html"
    page.write_bytes(pages(facts_of(bare), FIRST, "Made on 1 March 2026")["evidence.html"])
    with tab(BROWSER, tmp_path / "profile") as found:
        found.open(page)
        yield found


def test_it_fits_and_can_be_read(opened: Tab) -> None:
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            opened.resize(width)
            opened.look(scheme=scheme)
            assert opened.run("document.documentElement.scrollWidth <= innerWidth")
            ratio, text = opened.run(CONTRAST)
            assert ratio >= 4.5, (width, scheme, text)
    assert len(opened.requests) == 1
