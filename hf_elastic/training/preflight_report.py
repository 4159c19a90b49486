"""What the checks before a training found, for tables, for JSON, and as an error."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class PreflightError(RuntimeError):
    """Raised for a training that would fail or teach nothing. Names each fault and its remedy."""


class CheckFailed(Exception):
    """Raised by a check that finds a fault.

    Args:
        seen: The fault, with the offending value.
        remedy: What to do about it.
        figures: What was measured.
    """

    def __init__(self, seen: str, remedy: str, figures: Mapping[str, Any] | None = None) -> None:
        super().__init__(seen)
        self.seen, self.remedy, self.figures = seen, remedy, dict(figures or {})


class CheckSkipped(Exception):
    """Raised by a check that has nothing to look at; its text is the reason."""


@dataclass(frozen=True)
class Finding:
    """What a check saw that passed.

    Args:
        seen (`str`): In words.
        figures (`dict[str, Any]`): In numbers, of plain types.
    """

    seen: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckResult:
    """The verdict of one check.

    Args:
        name (`str`): Name of the check.
        verdict (`str`): `"passed"`, `"failed"` or `"skipped"`.
        seen (`str`): What was seen, or why it was skipped.
        figures (`dict[str, Any]`): What was measured.
        remedy (`str`): What to do about a fault.
        seconds (`float`): How long it took.
    """

    name: str
    verdict: str
    seen: str
    figures: dict[str, Any] = field(default_factory=dict)
    remedy: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class PreflightReport:
    """The verdicts of all checks, in the order in which they ran.

    Args:
        results (`tuple[CheckResult, ...]`): One per check.

    Example:
        >>> PreflightReport((CheckResult("data", "passed", "64 rows"),)).passed
        True
    """

    results: tuple[CheckResult, ...]

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """Those that failed."""
        return tuple(result for result in self.results if result.verdict == FAILED)

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def seconds(self) -> float:
        """How long all checks took."""
        return sum(result.seconds for result in self.results)

    def __getitem__(self, name: str) -> CheckResult:
        """The result of a check by its name."""
        return next(result for result in self.results if result.name == name)

    def table(self) -> list[dict[str, str]]:
        """Gives one row per check, for people."""
        return [
            {"check": result.name, "verdict": result.verdict, "seen": result.seen, "seconds": f"{result.seconds:.1f}"}
            for result in self.results
        ]

    def to_dict(self) -> dict[str, Any]:
        """Gives plain values, for JSON."""
        return {"passed": self.passed, "checks": [asdict(result) for result in self.results]}

    def raise_if_failed(self) -> None:
        """Raises an error if a check failed.

        Raises:
            PreflightError: With the faults and their remedies.
        """
        if self.failures:
            faults = " ".join(f"{fault.name}: {fault.seen} {fault.remedy}" for fault in self.failures)
            raise PreflightError(f"The training is not ready. {faults}")
