"""Whether the memory, threads and descriptors of a server stay level under a steady load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["FIGURES", "Figure", "Growth", "Sample", "growth", "judge", "settled", "tell"]

_WINDOWS = 20
"""Of so many parts of the judged time the lowest sample counts each: buffers of a request are given back, and what
leaks isn't."""
_LEAST_SAMPLES = 2 * _WINDOWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a process has at a time, counted from the beginning of the load."""

    at_s: float
    rss_kib: int
    threads: int
    descriptors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The straight line through the floors of a figure, by least squares."""

    level: float
    """The mean of the floors."""
    per_hour: float
    span_s: float

    @property
    def over_span(self) -> float:
        return self.per_hour * self.span_s / 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What is judged, and how much it may rise in the judged time: by the largest of these bounds."""

    name: str
    unit: str
    of: Callable[[Sample], float]
    noise: float
    """However long that is."""
    noise_share: float
    """However long it is, in relation to the level."""
    share_per_hour: float
    """In an hour, in relation to the level."""

    def allowed(self, line: Growth) -> float:
        """How much the line may rise in its time."""
        share = max(self.noise_share, self.share_per_hour * line.span_s / 3_600)
        return max(self.noise, share * line.level)


_MIB = 1_024
FIGURES: Sequence[Figure] = (
    Figure(
        name="memory", unit=" MiB", of=lambda one: one.rss_kib / _MIB, noise=6, noise_share=0.09, share_per_hour=0.10
    ),
    Figure(name="threads", unit="", of=lambda one: one.threads, noise=3, noise_share=0, share_per_hour=0.10),
    Figure(name="descriptors", unit="", of=lambda one: one.descriptors, noise=4, noise_share=0, share_per_hour=0.10),
)


def settled(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The samples after the first third of the time: caches are filled, pools have their threads."""
    if not samples:
        return samples
    first, last = samples[0].at_s, samples[-1].at_s
    return [one for one in samples if one.at_s >= first + (last - first) / 3]


def growth(samples: Sequence[Sample], of: Callable[[Sample], float]) -> Growth:
    """The line through the floors of some samples, of which there are at least two at different times.

    Raises:
        ValueError: there are fewer.
    """
    if not samples or samples[-1].at_s <= samples[0].at_s:
        raise ValueError(f"got {len(samples)} samples at one time, expected samples at two times at least")
    first = samples[0].at_s
    span_s = samples[-1].at_s - first
    floors: dict[int, tuple[float, float]] = {}
    for one in samples:
        window = min(_WINDOWS - 1, int((one.at_s - first) / span_s * _WINDOWS))
        floors[window] = min(floors.get(window, (of(one), one.at_s)), (of(one), one.at_s))
    points = [(at_s, floor) for floor, at_s in floors.values()]
    mean_at = sum(at_s for at_s, _ in points) / len(points)
    level = sum(floor for _, floor in points) / len(points)
    spread = sum((at_s - mean_at) ** 2 for at_s, _ in points)
    slope = sum((at_s - mean_at) * (floor - level) for at_s, floor in points) / spread
    return Growth(level=level, per_hour=slope * 3_600, span_s=span_s)


def judge(servers: Mapping[str, Sequence[Sample]]) -> list[str]:
    """What is wrong with the figures of some servers, each by its name; empty: nothing is."""
    faults = []
    for name, samples in servers.items():
        judged = settled(samples)
        if len(judged) < _LEAST_SAMPLES:
            faults.append(f"{name}: {len(judged)} samples after the first third, expected {_LEAST_SAMPLES} at least")
            continue
        for figure in FIGURES:
            line = growth(judged, figure.of)
            allowed = figure.allowed(line)
            if line.over_span > allowed:
                faults.append(
                    f"{name}: {figure.name} rose by {line.over_span:.1f}{figure.unit} within {line.span_s / 60:.1f} "
                    f"minutes ({line.per_hour:+.0f}{figure.unit} an hour, level {line.level:.0f}), "
                    f"expected {allowed:.1f}{figure.unit} at most"
                )
    return faults


def tell(name: str, samples: Sequence[Sample]) -> str:
    """One line of a server's figures: at each third of the time, and how memory rose after the first."""
    if not samples:
        return f"{name}: no sample"
    last_s = samples[-1].at_s
    thirds = [min(samples, key=lambda one: abs(one.at_s - last_s * third / 3)) for third in (1, 2, 3)]
    judged = settled(samples)
    slope = f"{growth(judged, FIGURES[0].of).per_hour:+.0f} MiB an hour" if len(judged) > 1 else "not judged"

    def spread(of: Callable[[Sample], int]) -> str:
        found = [of(one) for one in judged]
        return f"{min(found)} to {max(found)}"

    return (
        f"{name}: memory {', '.join(f'{one.rss_kib / _MIB:.0f}' for one in thirds)} MiB after "
        f"{', '.join(f'{one.at_s / 60:.1f}' for one in thirds)} minutes ({slope}, at most "
        f"{max(one.rss_kib for one in samples) / _MIB:.0f}); threads {spread(lambda one: one.threads)}; "
        f"descriptors {spread(lambda one: one.descriptors)}"
    )
