"""The pages of a dossier in a real browser: no external resources, all screen sizes, light and dark mode."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dossier.making import members_of
from tests.report.browser import NAMES, Tab, find, tab
from tests.report.test_browser import CONTRAST

BROWSER = find()
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: none of {', '.join(NAMES)}")


@pytest.fixture(params=["evidence.html", "report.html"])
def opened(request: pytest.FixtureRequest, archive: Path, tmp_path: Path) -> Iterator[Tab]:
    assert BROWSER is not None
    page = tmp_path / request.param
    page.write_bytes(members_of(archive)[request.param])
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
    assert opened.run("[...document.images].every(image => image.complete && image.naturalWidth > 1)")
    assert len([one for one in opened.requests if not one.startswith("data:")]) == 1
