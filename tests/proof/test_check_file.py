"""Certificates as files: what is whole passes, what is changed is rejected or says the same."""

import ast
import io
import itertools
import json
import re
import shutil
import subprocess
import sys
import tokenize
import zipfile
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofmap.proof import check as checker
from tests.proof.making import BALL, Array, members_of, mlp_file, npy, write

SOURCE = Path(checker.__file__)
X = np.array([0.3, 0.9, 0.0, 0.5], np.float32)
MASK = np.array([0, 1, 1, 2])
UPPER = "upper.npy", "reals-upper.npy"
TIGHTER = {**dict.fromkeys(UPPER, (-np.inf,)), "lower.npy": (np.inf,), "reals-lower.npy": (np.inf,)}


class Case:
    """A certificate and the files it is about."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model, self.given = mlp_file(folder / "net.onnx", (4, 6, 5, 3), 7), folder / "x.npy"
        self.given.write_bytes(npy(X))
        self.members = members_of(self.model, X, MASK, 0)
        self.proof = write(folder / "a.proof", self.members)

    def check(self, proof: Path | None = None) -> str:
        return checker.check(proof or self.proof, self.model, self.given)

    def changed(self, **members: Any) -> Path:
        return write(self.folder / "changed.proof", {**self.members, **members})

    def claim(self, change: Callable[[dict[str, Any]], Any]) -> Path:
        claim = json.loads(self.members["claim.json"])
        change(claim)
        return self.changed(**{"claim.json": json.dumps(claim).encode()})

    def array(self, name: str) -> Array:
        found: Array = checker.read_array(self.members[name]).copy()
        return found


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("case"))


def test_what_is_whole_is_proven(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    said = case.check()
    assert checker.main([str(case.proof), str(case.model), str(case.given)]) == int(said.startswith("NOT proven: "))
    assert capsys.readouterr().out == f"{said}\n"


def test_every_flipped_bit_is_rejected_or_changes_nothing(case: Case) -> None:
    whole, said = case.proof.read_bytes(), case.check()
    random, path = np.random.default_rng(0), case.folder / "flipped.proof"
    for at in random.choice(len(whole) * 8, 150, replace=False):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        with suppress(checker.Rejected):
            assert case.check(path) == said


def test_every_bit_of_a_member_flipped_with_its_checksum_mended_proves_nothing_false(case: Case) -> None:
    """Every member in turn: a tighter number is rejected; what still passes claims no more than what was derived."""
    network = checker.read_network(case.model, (4,))
    honest = checker.Prover(network, _parts(case.members)[0]).derive(_parts(case.members)[1])[0]
    random = np.random.default_rng(1)
    for name, data in case.members.items():
        for at in random.choice(len(data) * 8, min(25, len(data) * 8), replace=False):
            damaged = bytearray(data)
            damaged[at // 8] ^= 1 << (at % 8)
            try:
                case.check(case.changed(**{name: bytes(damaged)}))
            except checker.Rejected:
                continue
            if name in ("claim.json", "mask.npy"):
                continue  # another question, honestly answered: those fields are changed one by one below
            question, proof = _parts({**case.members, name: bytes(damaged)})
            claimed = checker.read_array(bytes(damaged)) if name in UPPER else honest
            kind = name == "reals-upper.npy"
            assert (checker.Prover(network, question).derive(proof)[int(kind)] <= claimed).all()


def _parts(members: dict[str, bytes]) -> tuple[checker.Question, dict[str, Array]]:
    claim = json.loads(members["claim.json"])
    mask = checker.read_array(members["mask.npy"])
    statement = checker.Decision(claim["target"], claim["rivals"])
    question = checker.Question(X, claim["ball"], mask, claim["groups"]["count"], statement)
    return question, {"intervals": checker.read_array(members["intervals.npy"])}


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a wider ball": lambda c: c["ball"].update(eps="0.051"),
    "a wider domain": lambda c: c["ball"].update(domain=["-1", "2"]),
    "another norm's name": lambda c: c["ball"].update(norm="3"),
    "the ends of the reals for both": lambda c: c["claims"].update(c["claims"]["reals"], reals=None),
    "no upper ends": lambda c: c["claims"].update(upper=None),
    "upper ends for lower ones": lambda c: c["claims"].update(lower="upper.npy"),
    "no points": lambda c: c["claims"].update(points=None),
    "another target": lambda c: c.update(target=1, rivals=[0, 2]),
    "the target as rival": lambda c: c.update(rivals=[0, 1, 2]),
    "a rival twice": lambda c: c.update(rivals=[2, 2]),
    "no rivals": lambda c: c.update(rivals=[]),
    "another model": lambda c: c["model"].update(sha256="0" * 64),
    "another input": lambda c: c["input"].update(sha256="0" * 64),
    "an older version": lambda c: c.update(version=2),
    "another version": lambda c: c.update(version=4),
    "another format": lambda c: c.update(format="x"),
    "a field more": lambda c: c["claims"].update(more=1),
    "a field less": lambda c: c.pop("groups"),
    "an order": lambda c: c["claims"].update(order=[[0, 1]]),
    "more groups": lambda c: c["groups"].update(count=4),
    "a preparation": lambda c: c["model"].update(prepare={"mean": [0.5], "std": [0.5]}),
    "a number that never ends": lambda c: c["ball"].update(eps="1e999999999"),
    "a negative radius": lambda c: c["ball"].update(eps="-0.01"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_claim_is_rejected(name: str, case: Case) -> None:
    with pytest.raises(checker.Rejected):
        case.check(case.claim(CHANGES[name]))


def test_swapped_rows_and_tighter_ends_are_rejected(case: Case) -> None:
    for name, sides in {"intervals.npy": (np.inf, -np.inf), **TIGHTER}.items():
        for row, step in enumerate(sides):
            array = case.array(name)
            ends = array[row] if array.ndim > 1 else array
            tighter = np.nextafter(np.nextafter(ends, ends.dtype.type(step)), ends.dtype.type(step))
            for other in (*([np.roll(ends, 1)] if np.ptp(ends) else []), tighter):
                ends[:] = other
                with pytest.raises(checker.Rejected):
                    case.check(case.changed(**{name: npy(array)}))


def test_a_looser_claim_is_another_true_claim(case: Case) -> None:
    for name, (way,) in TIGHTER.items():
        assert case.check(case.changed(**{name: npy(case.array(name) - np.sign(way))}))


def test_a_point_outside_its_ball_is_rejected(case: Case) -> None:
    for member, entry, value in ((0, 0, 0.36), (1, 0, 0.31), (0, 2, -0.001), (0, 0, np.nan)):
        points = case.array("points.npy")
        points[entry, member] = value
        with pytest.raises(checker.Rejected, match=r"point|NaN"):
            case.check(case.changed(**{"points.npy": npy(points)}))


def test_pairs_are_in_order_where_an_upper_end_is_below_a_lower_one(tmp_path: Path) -> None:
    """Group u counts more than v where AO(B_u) is proven to be below AO(B_v)."""
    (tmp_path / "x.npy").write_bytes(npy(X))
    counts = []
    for seed in range(4):
        model = mlp_file(tmp_path / "net.onnx", (4, 6, 5, 3), seed)
        members = members_of(model, X, MASK, 0, {**BALL, "eps": "0.01"})
        network, question = checker.read_network(model, (4,)), _parts(members)[0]
        corners = np.array([*itertools.product(*zip(question.lower, question.upper, strict=True))]) * (1 - 2.0**-18)
        inside = (X + corners * question.members[:, None]).astype(np.float32)  # (members, corners, 4)
        best = [checker.Prover(network, question, some).overlaps().argmax() for some in inside]
        points = inside[np.arange(4), best]
        members["points.npy"] = npy(points.T)
        for reals, name in enumerate(("lower.npy", "reals-lower.npy")):
            members[name] = npy(checker.Prover(network, question, points, bool(reals)).overlaps())
        claim = checker.read_claim(write(tmp_path / "a.proof", members), model, tmp_path / "x.npy")
        for prefix, (most, least) in zip(("", "reals-"), claim.ends, strict=True):
            upper, lower = (checker.read_array(members[f"{prefix}{side}.npy"])[1:] for side in ("upper", "lower"))
            beaten = [sum(bool(upper[u] < lower[v]) for v in range(3)) for u in range(3)]
            counts.append(sum(beaten))
            assert checker.pairs(most, least).tolist() == beaten
        said, top = checker.ranking(claim), max(beaten)
        if sum(counts[-2:]):
            assert f"the order of {counts[-2]} pairs of groups in real and in float32 arithmetic, and of" in said
            assert f"of {counts[-1]} pairs over the reals is proven; first: group {beaten.index(top)} above" in said
        else:
            assert said == "no order of groups is proven"
    assert max(counts) == 3


def test_another_model_or_input_is_rejected(case: Case, tmp_path: Path) -> None:
    other = mlp_file(tmp_path / "other.onnx", (4, 6, 5, 3), 8)
    with pytest.raises(checker.Rejected, match="another model"):
        checker.check(case.proof, other, case.given)
    (tmp_path / "y.npy").write_bytes(npy(X + np.float32(2**-20)))
    with pytest.raises(checker.Rejected, match="another input"):
        checker.check(case.proof, case.model, tmp_path / "y.npy")


def test_members_more_or_twice_are_rejected(case: Case) -> None:
    with pytest.raises(checker.Rejected, match="nothing names"):
        case.check(case.changed(**{"more.npy": npy(X)}))
    twice = case.changed()
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(twice, "a") as file:
        file.writestr("mask.npy", npy(MASK))
    with pytest.raises(checker.Rejected):
        case.check(twice)


def test_truncated_files_and_garbage_end_in_one_sentence(case: Case, tmp_path: Path) -> None:
    random, path = np.random.default_rng(2), tmp_path / "g"
    whole = case.proof.read_bytes()
    for data in (b"", b"PK", random.bytes(5000), *(whole[:n] for n in range(0, len(whole), len(whole) // 20))):
        path.write_bytes(data)
        with pytest.raises(checker.Rejected) as caught:
            case.check(path)
        assert "\n" not in str(caught.value)
    for data in (b"\xff" * 100, random.bytes(5000), case.model.read_bytes()[:-50]):
        path.write_bytes(data)
        with pytest.raises((checker.Rejected, LookupError, ValueError, UnicodeDecodeError)):
            checker.read_network(path, (4,))


def test_it_runs_as_a_copied_file_without_torch_and_without_us(case: Case, tmp_path: Path) -> None:
    shutil.copy(SOURCE, tmp_path / "check.py")
    blocked = "import sys; sys.modules.update(dict.fromkeys(('torch', 'proofmap', 'onnx', 'scipy', 'safetensors')))"
    run = "import runpy; runpy.run_path('check.py', run_name='__main__')"
    arguments = [str(path) for path in (case.proof, case.model, case.given)]
    command = [sys.executable, "-I", "-X", "utf8", "-c", f"{blocked}; {run}", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = case.check()
    assert (done.returncode, done.stdout, done.stderr) == (int(said.startswith("NOT")), f"{said}\n", "")
    done = subprocess.run([*command[:-1], str(case.model)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:9]) == (1, "rejected:")
    assert done.stdout.count("\n") == 1


def lines_of_code(source: str) -> set[int]:
    """The numbers of the lines that are neither empty nor explain."""
    explaining = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            explaining |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    kinds = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [one for one in tokenize.generate_tokens(io.StringIO(source).readline) if one.type not in kinds]
    return {line for one in tokens for line in range(one.start[0], one.end[0] + 1)} - explaining


def test_it_is_read_in_one_sitting() -> None:
    """Explanations do not count. The proof, the reader, dossiers and properties are sittings each."""
    source = SOURCE.read_text(encoding="utf-8")
    begins = {
        int(found[1]): source[: found.start()].count("\n") for found in re.finditer(r"(?m)^# Part (\d+)\. ", source)
    }
    assert [*begins] == [*range(1, 14)]
    code, ends = lines_of_code(source), [*begins.values(), source.count("\n") + 1]
    sizes = [sum(begin < line <= end for line in code) for begin, end in pairwise(ends)]
    arithmetic, network, *reading, question, statements, proof, certificate = sizes[:9]
    dossier, words, properties, command = sizes[9:]
    assert 400 < arithmetic + network + question + proof + certificate <= 720  # with sigmoid, tanh and contrastive sets
    assert 100 < statements <= 440  # decisions, outputs, labels, sufficient and contrastive sets
    assert 400 < sum(reading) <= 600
    assert 300 < dossier + words + command <= 460  # with dossiers about outputs
    assert 200 < properties <= 350  # with the reader of VNN-LIB files
    assert len(code) <= 2600


def test_without_numpy_one_sentence_says_what_to_install() -> None:
    blocked = "import sys, runpy; sys.modules['numpy'] = None"
    run = f"{blocked}; sys.argv = ['check.py', 'a.zip']; runpy.run_path({str(SOURCE)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-c", run], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "check.py needs numpy, which this Python lacks: python -m pip install numpy\n"


def test_its_first_words_list_its_parts() -> None:
    source = SOURCE.read_text(encoding="utf-8")
    listed = re.findall(r"(?m)^(\d+)\. ([^:.\n]+)", ast.get_docstring(ast.parse(source)) or "")
    assert listed == re.findall(r"(?m)^# Part (\d+)\. ([^:.\n]+)", source)


def test_it_imports_numpy_and_the_standard_library_alone() -> None:
    source = SOURCE.read_text()
    names = [n.names[0].name if isinstance(n, ast.Import) else n.module or "" for n in ast.walk(ast.parse(source))
             if isinstance(n, ast.Import | ast.ImportFrom)]  # fmt: skip
    assert {name.split(".")[0] for name in names} <= {"numpy", *sys.stdlib_module_names}
