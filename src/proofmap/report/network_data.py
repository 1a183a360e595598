"""The data of the report: networks, each with its explained inputs and their findings.

Totals are separate for each network, each ball, and for proofs with and without rounding errors.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.statements.explained_inputs import input_roles, shapes_in_words
from proofmap.explainers.statements.explained_verdict import verdict_of
from proofmap.report.finding_page import Finding, finding_of
from proofmap.report.finding_pictures import columns_of
from proofmap.report.finding_texts import Names, name_of
from proofmap.report.provenance import Fact, file_facts, network_digest, values_digest
from proofmap.storage.hashing import hash_tensor
from proofmap.text.output_wording import explained_output, value_text
from proofmap.text.verdict import Outcome
from proofmap.text.verdict_wording import BADGES, CERTIFIED_ACCURACY
from proofmap.text.wording import beside, capitalised, plural, share, taken_off

_TABLE_VALUES = 200  # values of an input without a picture that its table shows


@dataclass(frozen=True)
class InputPage:
    """An input with all findings of one network about it."""

    id: str
    name: str
    digest: str
    predicted: str  # with the true class if it is known
    label: int | None
    shape: str
    facts: list[Fact]
    values: list[tuple[str, str]]  # names and values of an input without a picture
    size: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def lines(self) -> int:
        """The number of rows in the summary."""
        return sum(len(finding.sides) for finding in self.findings)


@dataclass(frozen=True)
class Tally:
    """The totals for one network and one kind of ball."""

    ball: str
    counts: list[tuple[Outcome, str, str]]  # verdict, number, text
    shares: list[tuple[str, str]]  # share, text


@dataclass(frozen=True)
class NetworkPage:
    """A network, identified by its hash."""

    id: str
    title: str
    name: str
    digest: str
    facts: list[Fact]
    notes: list[str]
    subjects: list[InputPage] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        return [finding for subject in self.subjects for finding in subject.findings]

    @property
    def tallies(self) -> list[Tally]:
        """The totals for each kind of ball, in order of appearance."""
        return [self._tally(ball) for ball in dict.fromkeys(finding.family for finding in self.findings)]

    def _tally(self, ball: str) -> Tally:
        findings = [finding for finding in self.findings if finding.family == ball]
        counts = Counter(finding.verdict for finding in findings)
        whole = f"of {plural(len(findings), 'finding')}"
        totals = [(word, str(counts[word]), f"{name}, {whole}") for word, name in BADGES.items() if counts[word]]
        return Tally(ball, totals, list(self._shares(ball)))

    def _shares(self, ball: str) -> Iterator[tuple[str, str]]:
        """Yield the share of proven decisions, and the share of proven and right decisions."""
        decisions_of = {
            subject.id: (subject, [f for f in subject.findings if f.family == ball and f.kind == "decision"])
            for subject in self.subjects
        }
        decided = [(subject, decisions) for subject, decisions in decisions_of.values() if decisions]
        if not any(finding.guarantee == "certified" for _, decisions in decided for finding in decisions):
            return
        proven = [(subject, f) for subject, decisions in decided for f in decisions if f.verdict == "proven"]
        yield share(len({s.id for s, _ in proven}), len(decided), "input"), "Decisions proven"
        labelled = [subject for subject, _ in decided if subject.label is not None]
        if labelled:
            right = {subject.id for subject, finding in proven if finding.explained == subject.label}
            yield share(len(right), len(labelled), "labelled input"), capitalised(CERTIFIED_ACCURACY)


def networks_of(
    files: Sequence[tuple[str, Explanation]],
    names: Names,
    reached: Sequence[Tensor | None],
    records: Sequence[str],
    given: str | None,
) -> list[NetworkPage]:
    """Return the networks in order of appearance. Findings about equal inputs of one network are grouped.

    names: the names of the classes, by default those in each file.
    given: the name of the given model, which was checked to be the explained one.
    """
    labels = _labels(files)
    networks: dict[str, NetworkPage] = {}
    inputs: dict[tuple[str, str], InputPage] = {}
    for (file, whole), extra, record in zip(files, reached, records, strict=True):
        actual = hash_tensor(whole.x)
        if actual != whole.input_hash:
            stated = f"its inputs have the digest {whole.input_hash:.64}"
            raise InputError(f"{file} says that {stated}, and they have {actual}")
        network = networks.setdefault(whole.model_hash, _network(f"model-{len(networks) + 1}", whole, given))
        _describe(network, whole)
        classes = names if names is not None else None if whole.origin is None else whole.origin.classes
        for k in range(len(whole)):
            e = whole[k]
            key = whole.model_hash, hash_tensor(e.x)
            if key not in inputs:
                title = file if len(whole) == 1 else f"{file}, sample {k}"
                inputs[key] = _subject(f"input-{len(inputs) + 1}", title, key[1], e, labels.get(key[1]), classes)
                network.subjects.append(inputs[key])
            subject = inputs[key]
            name = f"{subject.id}-{len(subject.findings) + 1}"
            verdict = verdict_of(whole, k, None if extra is None else float(extra[k]))
            subject.findings.append(finding_of(name, record, subject.name, e, verdict, classes))
    return list(networks.values())


def _labels(files: Sequence[tuple[str, Explanation]]) -> dict[str, int]:
    """Return the true classes by the digests of the inputs. Refuse files that contradict each other."""
    labels: dict[str, tuple[int, str]] = {}
    for file, e in files:
        for k in range(len(e)):
            label = e.label(k)
            if label is not None:
                known, first = labels.setdefault(hash_tensor(e.x[k : k + 1]), (label, file))
                if known != label:
                    contradiction = f"the label {known} in {first} and {label} in {file}"
                    raise InputError(f"one input has {contradiction}, expected one true class")
    return {digest: label for digest, (label, _) in labels.items()}


def _network(name: str, e: Explanation, given: str | None) -> NetworkPage:
    source = None if e.origin is None else e.origin.model
    named = "this model" if source is None else PurePath(source.name).name
    title = "A model without a name" if source is None else f"Model {named}"
    notes = ["The explanations do not name the file of the model."] if source is None else []
    if given is not None:
        notes.append(f"{given} was given to this report. It is the explained network: the digests agree.")
    return NetworkPage(name, title, named, e.model_hash, [], notes)


def _describe(network: NetworkPage, e: Explanation) -> None:
    """Add the facts of one more file about its network: files may use different names for one network."""
    source = None if e.origin is None else e.origin.model
    facts = [] if source is None else [Fact("Model, as given", source.name), *file_facts(source.files)]
    for fact in (*facts, network_digest(e.model_hash)):
        if fact not in network.facts:
            network.facts.append(fact)
    off = e.settings.get("taken_off")
    note = f"{capitalised(taken_off(off))}."
    if off is not None and note not in network.notes:
        network.notes.append(note)


def _subject(name: str, file: str, digest: str, e: Explanation, label: int | None, names: Names) -> InputPage:
    predicted, output = int(e.predicted[0]), explained_output(e.settings)
    shown = f"{name_of(predicted, names)}{beside(label, predicted, lambda number: name_of(number, names))}"
    if output is not None and e.overlap.value is not None:
        shown = value_text(output, float(e.overlap.value[0]))
    source = None if e.origin is None else e.origin.samples[0]
    columns = columns_of(e) or [f"column {k}" for k in range(e.x[0].numel())]
    values = zip(columns, (f"{value:.6g}" for value in e.x[0].tolist()), strict=True) if e.x.ndim == 2 else ()
    return InputPage(
        name,
        file if source is None else source.name,
        digest,
        shown,
        label,
        shapes_in_words(e) if input_roles(e.settings) else " × ".join(map(str, e.x.shape[1:])),
        [*file_facts(() if source is None else source.files), values_digest(digest)],
        list(values)[:_TABLE_VALUES],
        e.x[0].numel(),
    )
