"""Ids of tool calls as Mistral's formats want them: nine letters and digits.

Calls of other models carry longer ids. What stands for such an id depends on the id alone, so a conversation that grows
keeps its beginning; only where two would meet does the later one give way.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterable

_LENGTH = 9
_CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
# mistral-common's rule for versions 3 to 11 of the format.
_VALID = re.compile(rf"[a-zA-Z0-9]{{{_LENGTH}}}")


def call_ids(ids: Iterable[str]) -> dict[str, str]:
    """What stands for each id of a conversation: a valid id for itself, and different ones for different ids."""
    known = tuple(dict.fromkeys(ids))
    shown = {id: id for id in known if _VALID.fullmatch(id)}
    taken = set(shown)
    for id in known:
        if id not in shown:
            shown[id] = _unlike(taken, id)
            taken.add(shown[id])
    return shown


def _unlike(taken: set[str], id: str) -> str:
    attempt = 0
    while (made := _hashed(f"{attempt}:{id}")) in taken:
        attempt += 1
    return made


def _hashed(text: str) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), "big")
    characters = []
    for _ in range(_LENGTH):
        number, place = divmod(number, len(_CHARACTERS))
        characters.append(_CHARACTERS[place])
    return "".join(characters)
