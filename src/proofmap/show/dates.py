"""Dates as people write them, the same in every country."""

from __future__ import annotations

from datetime import date

__all__ = ["day", "day_of"]

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def day(when: date) -> str:
    """Such as "2 March 2026"."""
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}"


def day_of(text: str | None) -> str:
    """The day of an ISO 8601 time in a file; what is none stays as it is, and nothing is "not recorded"."""
    if not text:
        return "not recorded"
    try:
        return day(date.fromisoformat(text[:10]))
    except ValueError:
        return text
