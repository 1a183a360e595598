"""Progress reports: parts of parts, layers of networks, and the output on a terminal or in a file."""

from __future__ import annotations

import io
import re
import sys
import threading
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.runs import run
from proofmap.runtime import progress_bar as bar_module
from proofmap.runtime.memory import run_in_chunks
from proofmap.runtime.progress import listening, part, report
from proofmap.runtime.progress_bar import ProgressBar
from tests.runs.setting import Digits, digits_model, job

Heard = list[tuple[float, str]]


def test_parts_of_parts_are_shares_of_all() -> None:
    heard: Heard = []
    with listening(lambda *said: heard.append(said)), part(0.5, 1.0, "second"):
        with part(0.0, 0.5):
            report(0.5, "here")
        report(1.0)
    report(0.7)
    assert heard == [(0.5, "second"), (0.5, "second"), (0.625, "second, here"), (1.0, "second")]


def test_another_thread_is_not_heard() -> None:
    heard: Heard = []
    with listening(lambda *said: heard.append(said)):
        thread = threading.Thread(target=report, args=(0.5,))
        thread.start()
        thread.join()
    assert heard == []


def test_pieces_are_parts() -> None:
    heard: list[float] = []
    with listening(lambda share, _: heard.append(share)):
        run_in_chunks(4, 2, lambda start, stop: run_in_chunks(2, 1, lambda start, stop: None))
    assert sorted(set(heard)) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert heard == sorted(heard)


def layers(depth: int) -> nn.Sequential:
    torch.manual_seed(0)
    hidden = [module for _ in range(depth) for module in (nn.Linear(6, 6), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(6, 3)).eval()


@pytest.mark.parametrize("bounds", [pm.bounds.Backward(), pm.bounds.IBP() & pm.bounds.Forward()])
def test_a_network_says_which_layer_it_is_at(bounds: pm.bounds.Method) -> None:
    heard: Heard = []
    x = torch.rand(2, 6)
    with listening(lambda *said: heard.append(said)):
        pm.overlap(layers(3), x, pm.Ball(0.3), groups=pm.groups.columns(), bounds=bounds)
    places = list(dict.fromkeys(re.findall(r"layer \d of \d", " ".join(place for _, place in heard))))
    assert places == [f"layer {k} of 4" for k in (1, 2, 3, 4)]
    shares = [share for share, _ in heard]
    assert shares[0] == 0.0
    assert shares[-1] == pytest.approx(1.0)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in shares)


def test_a_radius_says_which_attack_it_is_at() -> None:
    """The attacks come before any bound, and may take most of the time."""
    heard: Heard = []
    with listening(lambda *said: heard.append(said)):
        pm.radius(pm.zoo.mnist_mlp(), pm.data.digits()[0][:1], domain=(0.0, 1.0), steps=1, progress=False)
    attacks = [(share, place) for share, place in heard if "attack " in place]
    assert [place for _, place in attacks[:3]] == ["attack 1", "attack 2", "attack 3"]
    assert [share for share, _ in attacks] == sorted(share for share, _ in attacks)
    assert 0.05 < attacks[-1][0] < 0.2


def test_a_search_for_a_radius_counts_its_trials() -> None:
    heard: Heard = []
    with listening(lambda *said: heard.append(said)):
        pm.certified_radius(layers(1), torch.rand(1, 6), steps=3, progress=False)
    assert [place for _, place in heard if place.endswith("trial 2 of 4")]
    assert heard[-1][0] == pytest.approx(1.0)


def test_a_certificate_counts_its_steps() -> None:
    model, x = layers(1), torch.rand(1, 6, generator=torch.Generator().manual_seed(0))
    e = pm.EVA(model, pm.Ball(0.01), bounds=pm.bounds.Backward(), progress=False).explain(x)
    heard: Heard = []
    with listening(lambda *said: heard.append(said)):
        e.certificate(progress=False)
    shares = [share for share, _ in heard]
    assert shares == sorted(shares)
    assert len(set(shares)) > 3
    assert shares[-1] == pytest.approx(1.0)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(bar_module, "time", found)
    return found


def test_a_file_gets_a_line_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(2, "EVA") as bar:
        with bar.work():
            for k in range(1000):  # a hundred seconds for the first sample
                clock.now += 0.1
                report(k / 1000, "layer 3 of 9")
        clock.now += 5
        with bar.work():
            report(0.5)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "EVA: 10 %, 0 of 2 samples, layer 3 of 9, 00:20 so far, about 03:00 left"
    assert [line.partition(",")[0] for line in said] == [*(f"EVA: {k}0 %" for k in (1, 2, 3, 4)), "EVA: 75 %"]


def test_a_file_of_a_short_run_stays_empty(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(5, "EVA") as bar:
        for _ in range(5):
            clock.now += 1.9
            bar.advance()
    assert capsys.readouterr() == ("", "")


def test_the_longer_it_takes_the_rarer_the_lines(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(1, "EVA") as bar, bar.ahead(1):
        for second in range(36_000):  # ten hours in which next to nothing is done
            clock.now += 1
            report(second / 10**9)
    assert 10 < len(capsys.readouterr().err.splitlines()) < 60


def test_what_was_done_before_says_nothing_of_the_speed(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(100, "run", done=50) as bar:
        clock.now += 60
        bar.advance(10)
    assert capsys.readouterr().err == "run: 60 %, 60 of 100 samples, 01:00 so far, about 04:00 left\n"


def test_there_are_no_more_units_ahead_than_are_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(4, "run", done=1) as bar, bar.ahead(50):
        clock.now += 60
        report(0.5)
    assert capsys.readouterr().err == "run: 62 %, samples 2 to 4 of 4, 01:00 so far, about 01:00 left\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("tqdm.std.time", partial(next, count()))  # a second for every look at the clock
    with ProgressBar(1, "EVA") as bar, bar.work():
        for k in range(5):
            report(k / 10, f"layer {k} of 9")
    shown = screen.getvalue()
    assert re.search(r"EVA:  30%\|.*\| \d\d:\d\d<\d\d:\d\d, layer 3 of 9", shown)
    assert shown.rstrip("\r").endswith(" ")  # wiped
    assert "\n" not in shown


def test_a_terminal_sees_both_sides_of_a_search_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the share of the work that is done does not change."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("tqdm.std.time", partial(next, count()))
    with ProgressBar(1, "EVA") as bar, bar.work():
        for leaves in (2, 1204, 30841):
            report(0.1, f"AO(B) in [-8.71, -8.65], {leaves:,} leaves")
    assert re.findall(r"\S+ leaves", screen.getvalue())[-1] == "30,841 leaves"
    assert "AO(B) in [-8.71, -8.65], 1,204 leaves" in screen.getvalue()


def test_who_shows_nothing_lets_others_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: Heard = []
    with listening(lambda *said: heard.append(said)), ProgressBar(4, "EVA", show=False) as bar:
        for _ in range(2):
            with bar.work(2):
                report(0.5, "here")
    assert heard == [(0.0, ""), (0.25, "here"), (0.5, ""), (0.5, ""), (0.75, "here"), (1.0, "")]


@pytest.mark.parametrize("eps", [0.01, "auto"])
def test_a_run_hears_the_layers_of_its_samples(
    eps: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: Heard = []

    def tell(self: ProgressBar, done: float, place: str, together: int = 1) -> None:
        heard.append((done, place))

    monkeypatch.setattr(ProgressBar, "_tell", tell)
    run(Digits(count=3), digits_model(), job(ball=pm.Ball(eps, domain=(0.0, 1.0))), tmp_path)
    assert heard[-1][0] == 3
    inside = [done for done, place in heard if "layer 2 of " in place]
    assert any(0 < done < 3 for done in inside)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


def test_bars_are_drawn_in_one_place() -> None:
    """A bar drawn elsewhere would fill a file with refreshes."""
    package = Path(pm.__file__).parent
    drawing = {file.relative_to(package).as_posix() for file in package.rglob("*.py") if "tqdm" in file.read_text()}
    assert drawing == {"runtime/progress_bar.py"}


class Cell:
    """The output of a notebook's cell: what a stored notebook would contain, and every line that was shown."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.shown: list[str] = []

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool) -> Cell:
        assert raw
        assert display_id
        self.stored.append(content["text/plain"])
        self.shown.append(content["text/plain"])
        return self

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.stored[-1] = content["text/plain"]
        self.shown.append(content["text/plain"])


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    made, module = Cell(), ModuleType("IPython.display")
    module.display = made.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return made


def test_a_notebook_keeps_no_bar(clock: Clock, cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(2, "EVA") as bar:
        for _ in range(2):
            with bar.work():
                for k in range(10):
                    clock.now += 1
                    report(k / 10, "layer 3 of 9")
    assert cell.stored == [""]
    assert cell.shown[0].startswith("EVA:")
    assert any("1 of 2 samples, layer 3 of 9" in line and " 50%|" in line for line in cell.shown)
    assert all(len(line) <= 100 for line in cell.shown)
    assert capsys.readouterr() == ("", "")


def test_short_work_leaves_no_output_in_a_notebook(clock: Clock, cell: Cell) -> None:
    with ProgressBar(5, "EVA") as bar:
        for _ in range(5):
            clock.now += 0.15
            bar.advance()
    assert cell.shown == []
