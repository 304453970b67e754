"""The error tree of peira, for its three audiences.

::

    PeiraError
    ├── UsageError    the person: what was given, what is allowed, the nearest, what to do (exit code 2)
    ├── Fault         the machinery: engine, worker, network, a world that broke; ends an episode, never a reward
    └── ToolRefusal   the model: it reads the text as an observation and goes on
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["Fault", "PeiraError", "ToolRefusal", "UsageError", "missing_extra", "nearest", "unknown"]


class PeiraError(Exception):
    """Root of every error peira raises on purpose."""


class UsageError(PeiraError, ValueError):
    """Something a person asked for cannot be done; the text says what was given and how to put it right."""


class Fault(PeiraError, RuntimeError):
    """Machinery failed. ``where`` names the boundary: ``engine``, ``world``, ``worker``, ``timeout``, ..."""

    def __init__(self, message: str, *, where: str = "machinery") -> None:
        super().__init__(message)
        self.where = where

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders; the keyword would be lost by the default protocol.
        return (_rebuild_fault, (str(self), self.where))


def _rebuild_fault(message: str, where: str) -> Fault:
    return Fault(message, where=where)


class ToolRefusal(PeiraError):
    """A tool declines; ``str(refusal)`` is what the model reads."""


def nearest(given: object, allowed: Iterable[object]) -> str | None:
    """Return the allowed name closest to ``given``, or ``None`` when nothing is close."""
    by_lower = {str(name).lower(): str(name) for name in allowed}
    found = get_close_matches(str(given).lower(), by_lower, n=1, cutoff=0.55)
    return by_lower[found[0]] if found else None


def unknown(kind: str, given: object, allowed: Iterable[object], *, remedy: str = "") -> UsageError:
    """Build the error for a name that does not exist: the name, the nearest valid one, and all valid ones."""
    names = sorted(str(name) for name in allowed)
    close = nearest(given, names)
    hint = f" Did you mean {close!r}?" if close else ""
    listed = ", ".join(names) if names else "none"
    return UsageError(f"unknown {kind} {str(given)!r}.{hint} Allowed: {listed}.{' ' + remedy if remedy else ''}")


def missing_extra(package: str, extra: str, purpose: str) -> UsageError:
    """Build the one message for an optional package that is not installed."""
    return UsageError(f"{purpose} needs the package {package!r}, which is not installed: pip install 'peira[{extra}]'")
