"""The bound methods as plans: the passes that bound the hidden layers, and those that bound the output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from proofmap.bounds.alpha.alpha_crown import AlphaPass
from proofmap.bounds.backward import BackwardPass
from proofmap.bounds.forward import ForwardPass
from proofmap.bounds.passes import Pass
from proofmap.errors import InputError
from proofmap.runtime.memory import check_memory
from proofmap.settings import check_settings, count, number


@dataclass(frozen=True)
class Plan:
    """The passes of one walk over the graph, for the hidden layers and for the output.

    `interval_hidden` and `interval_final` tell whether interval arithmetic counts as a bound of the method. It always
    runs, since it finds the neurons that the passes can skip.
    """

    hidden: tuple[Pass, ...] = ()
    final: tuple[Pass, ...] = ()
    interval_hidden: bool = False
    interval_final: bool = False
    rigorous: bool = False  # whether the bounds cover all rounding errors

    @property
    def passes(self) -> tuple[Pass, ...]:
        """All passes, each one once."""
        return tuple(dict.fromkeys(self.hidden + self.final))

    def __and__(self, other: Plan) -> Plan:
        return Plan(
            tuple(dict.fromkeys(self.hidden + other.hidden)),
            tuple(dict.fromkeys(self.final + other.final)),
            self.interval_hidden or other.interval_hidden,
            self.interval_final or other.interval_final,
            self.rigorous or other.rigorous,
        )


class Method(ABC):
    """A bound method. `a & b` is the intersection of two methods.

    >>> isinstance(pm.bounds.Backward(), pm.bounds.Method)
    True
    """

    @property
    def search(self) -> Exact | None:
        """The branch and bound search after the walks, or None."""
        return None

    @property
    @abstractmethod
    def plans(self) -> tuple[Plan, ...]:
        """The walks to make. Each one is sound on its own, and the smallest of their bounds counts."""

    def __and__(self, other: Method) -> Intersection:
        return Intersection((*_parts(self), *_parts(other)))


@dataclass(frozen=True)
class IBP(Method):
    """Interval arithmetic from the input to the output (Gowal et al. 2018). Cheapest, loosest.

    >>> pm.overlap(model, x, ball, bounds=pm.bounds.IBP()).full
    tensor([45.6708, 51.4577])
    """

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (Plan(interval_hidden=True, interval_final=True),)


@dataclass(frozen=True)
class Forward(Method):
    """Affine lower and upper forms of the input, propagated forward through the network.

    >>> pm.overlap(model, x, ball, bounds=pm.bounds.Forward()).full
    tensor([-7.6871, -9.1963])
    """

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (Plan(hidden=(ForwardPass(),), final=(ForwardPass(),)),)


@dataclass(frozen=True)
class Backward(Method):
    """CROWN (Zhang et al. 2018): back-substitution to the input bounds every hidden layer and the output.

    >>> pm.overlap(model, x, ball, bounds=pm.bounds.Backward()).full
    tensor([-10.0599, -13.3980])
    """

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (Plan(hidden=(BackwardPass(),), final=(BackwardPass(),)),)


@dataclass(frozen=True)
class Alpha(Method):
    """α-CROWN (Xu et al. 2021): `steps` gradient steps optimise the slopes of the relaxations for every single bound.

    Never looser than `Backward`, since its bounds count too.

    >>> pm.overlap(model, x, ball, bounds=pm.bounds.Alpha(steps=5)).full
    tensor([-10.0777, -13.4844])
    """

    steps: int = count(20)

    def __post_init__(self) -> None:
        """Check the number of steps."""
        check_settings(self, "Alpha")

    @property
    def plans(self) -> tuple[Plan, ...]:
        slopes = AlphaPass(steps=self.steps)
        return (*Backward().plans, Plan(hidden=(slopes,), final=(slopes,)))


@dataclass(frozen=True)
class CrownIBP(Method):
    """CROWN-IBP (Zhang et al. 2020): interval arithmetic for hidden layers, back-substitution for the output.

    >>> pm.overlap(model, x, ball, bounds=pm.bounds.CrownIBP()).full
    tensor([11.6211,  9.0744])
    """

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (Plan(final=(BackwardPass(),), interval_hidden=True),)


@dataclass(frozen=True)
class Exact(Method):
    """Branch and bound: split balls where relaxations lose most, until the overlap is known up to `gap`.

    seconds: the time limit for each sample, from the attack to the last bound. memory: bytes for the leaves of the
    search trees, by default half of the memory of the call. When time or memory is used up, or on Ctrl-C, the bounds
    proven so far are returned. They can be looser than those of `Backward` if a network is too large for the time.

    >>> over = pm.overlap(model, x[:1], pm.Ball(0.005, domain=(0.0, 1.0)), bounds=pm.bounds.Exact(gap=0.01))
    >>> over.full_lower, over.full
    (tensor([-10.9979]), tensor([-10.9879]))
    """

    gap: float = number(1e-3, "a number above 0", lambda gap: gap > 0)
    seconds: float = number(60, "a number above 0", lambda seconds: seconds > 0)
    memory: int | None = None

    @property
    def plans(self) -> tuple[Plan, ...]:
        return Backward().plans

    def __post_init__(self) -> None:
        """Check the settings."""
        check_settings(self)
        check_memory(self.memory)

    @property
    def search(self) -> Exact:
        return self


@dataclass(frozen=True)
class Intersection(Method):
    """The tightest of several methods: each on its own, and all together in one walk with the tightest hidden bounds.

    Never looser than any part. (Tighter hidden bounds alone do not ensure this, since they change the slopes.)

    >>> pm.bounds.IBP() & pm.bounds.Forward()
    Intersection(parts=(IBP(), Forward()))
    """

    parts: tuple[Method, ...]

    @property
    def search(self) -> Exact | None:
        return next((part.search for part in self.parts if part.search is not None), None)

    @property
    def plans(self) -> tuple[Plan, ...]:
        alone = tuple(dict.fromkeys(plan for part in self.parts for plan in part.plans))
        together = alone[0]
        for plan in alone[1:]:
            together = together & plan
        return tuple(dict.fromkeys((*alone, together)))


def _parts(method: Method) -> tuple[Method, ...]:
    return method.parts if isinstance(method, Intersection) else (method,)


METHODS: dict[str, type[Method]] = {
    "ibp": IBP,
    "forward": Forward,
    "backward": Backward,
    "alpha": Alpha,
    "crown-ibp": CrownIBP,
    "exact": Exact,
}
SYNONYMS = {"crown": "backward"}


def named(text: str) -> Method:
    """Return the method with this name. Names joined by + give an intersection: "ibp+forward".

    >>> pm.bounds.named("ibp+forward")
    Intersection(parts=(IBP(), Forward()))
    """
    names = [SYNONYMS.get(name, name) for name in text.split("+")]
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        known = ", ".join((*METHODS, *SYNONYMS))
        raise InputError(f"got bounds {text!r}, expected names among {known}, joined by + for an intersection")
    method = METHODS[names[0]]()
    for name in names[1:]:
        method = method & METHODS[name]()
    return method
