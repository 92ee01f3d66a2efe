"""String formats as patterns: those that the grammar backend lacks, or reads more narrowly or widely than the checkers.

Sources: RFC 3339 for dates and times (a zone may be missing, as in Python's `isoformat`, where the format is `time`),
RFC 9562 for UUIDs, RFC 4648 for base64, RFC 4291 for addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Formats that the grammar enforces by itself.
ENFORCED = frozenset({"duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"})

# Names of what any text is, such as OpenAPI's for passwords.
ANY_TEXT = frozenset({"binary", "password", "path"})

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
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPV4 = rf"(?:{_BYTE}(?:\.{_BYTE}){{3}})"
_GROUP = f"{_HEX}{{1,4}}"
# Without those that write their last groups as in version 4, or leave groups out but at the end.
_IPV6 = rf"(?:{_GROUP}(?::{_GROUP}){{7}}|(?:{_GROUP}(?::{_GROUP}){{0,5}})?::{_GROUP}|::)"
_IPV4_NETWORK = rf"(?:{IPV4}(?:/32)?|{_BYTE}\.{_BYTE}\.{_BYTE}\.0/24|{_BYTE}\.{_BYTE}\.0\.0/16|{_BYTE}\.0\.0\.0/8)"
_IPV6_NETWORK = rf"(?:{_IPV6}(?:/128)?|{_GROUP}(?::{_GROUP}){{3}}::/64|{_GROUP}(?::{_GROUP}){{2}}::/48|::/0)"
_IPV4_INTERFACE = rf"{IPV4}(?:/(?:3[0-2]|[12]?\d))?"
_IPV6_INTERFACE = rf"{_IPV6}(?:/(?:12[0-8]|1[01]\d|[1-9]?\d))?"


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
    # Pydantic's, for what Python's ipaddress and fractions read.
    "ipvanyaddress": f"^(?:{IPV4}|{_IPV6})$",
    "ipvanynetwork": f"^(?:{_IPV4_NETWORK}|{_IPV6_NETWORK})$",
    "ipvanyinterface": f"^(?:{_IPV4_INTERFACE}|{_IPV6_INTERFACE})$",
    "ipv4network": f"^{_IPV4_NETWORK}$",
    "ipv6network": f"^{_IPV6_NETWORK}$",
    "ipv4interface": f"^{_IPV4_INTERFACE}$",
    "ipv6interface": f"^{_IPV6_INTERFACE}$",
    "fraction": r"^-?\d{1,15}(?:/[1-9]\d{0,14})?$",
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


# A name of letters and digits, hyphens between them. Two hyphens in a row would begin an encoded name (RFC 5891), and
# a last name of digits an address of version 4.
_LABEL = "[a-z0-9]{1,20}(?:-[a-z0-9]{1,20}){0,2}"
_HOST = rf"(?:(?:{_LABEL}\.){{0,4}}[a-z]{{2,20}}|{IPV4})"
_PORT = r"(?::(?:[1-9]\d{0,3}|[1-5]\d{4}))?"
_PATH = r"(?:/[A-Za-z0-9._~!$&()*+,;=:@-]*)*"
_REST = rf"{_PATH}(?:\?[A-Za-z0-9._~!$&()*+,;=:@/?-]*)?(?:#[A-Za-z0-9._~!$&()*+,;=:@/?-]*)?"
_OTHER_ADDRESSES = "(?:mailto|tel|urn):[A-Za-z0-9][A-Za-z0-9.@:+_-]*"


def url_pattern(schemes: Iterable[str] | None) -> str:
    """Addresses of the WHATWG URL standard with a host, in ASCII; None for any scheme, then mailto and the like too."""
    listed = None if schemes is None else list(schemes)
    if listed == ["file"]:
        return rf"^file://{_PATH}$"
    names = "[a-z][a-z0-9+-]{1,15}" if listed is None else "|".join(map(re.escape, listed))
    rest = rf"(?:{names})://{_HOST}{_PORT}{_REST}"
    return rf"^(?:{rest}|{_OTHER_ADDRESSES})$" if listed is None else rf"^{rest}$"
