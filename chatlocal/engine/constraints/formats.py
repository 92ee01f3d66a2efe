"""String formats as patterns: those that the grammar backend lacks, or reads more narrowly or widely than the checkers.

Sources: RFC 3339 for dates and times (a zone may be missing, as in Python's `isoformat`, where the format is `time`),
RFC 9562 for UUIDs, RFC 4648 for base64.
"""

from __future__ import annotations

# Formats that the grammar enforces by itself.
ENFORCED = frozenset({"duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"})

_YEAR = r"(?:[1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])"
_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_MONTH_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_DATE = rf"(?:{_YEAR}-{_MONTH_DAY}|{_LEAP_YEAR}-02-29)"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?"
_ZONE = r"(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
# A timedelta holds days up to 999,999,999, and no years or months.
_SECONDS = r"\d{1,6}(?:\.\d{1,6})?S"
_CLOCK = rf"(?:\d{{1,6}}H(?:\d{{1,6}}M)?(?:{_SECONDS})?|\d{{1,6}}M(?:{_SECONDS})?|{_SECONDS})"
_HEX = "[0-9a-fA-F]"


def _uuid(version: int) -> str:
    return rf"^{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89abAB]{_HEX}{{3}}-{_HEX}{{12}}$"


PATTERNS = {
    "date": rf"^{_DATE}$",
    "time": rf"^{_TIME}{_ZONE}?$",
    "date-time": rf"^{_DATE}T{_TIME}{_ZONE}$",
    # Pydantic's datetime takes one with or without a zone; its schema says "date-time" for both.
    "local-date-time": rf"^{_DATE}T{_TIME}{_ZONE}?$",
    "naive-date-time": rf"^{_DATE}T{_TIME}$",
    "time-delta": rf"^-?P(?:\d{{1,6}}D(?:T{_CLOCK})?|T{_CLOCK}|\d{{1,5}}W)$",
    **{f"uuid{version}": _uuid(version) for version in range(1, 9)},
    "base64": r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    "base64url": r"^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}==|[A-Za-z0-9_-]{3}=)?$",
}

# Short texts of the formats that the grammar enforces by itself.
SHORTEST = {
    "email": "a@b.co",
    "hostname": "a",
    "ipv4": "1.1.1.1",
    "ipv6": "::",
    "uri": "a:b",
    "duration": "P1D",
    "uuid": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
}
