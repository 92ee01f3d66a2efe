"""Ids of a prompt: control tokens from markup only, everything else exactly as the tokenizer itself would have it.

A fast tokenizer is copied, and in the copy every control token goes by another name, made up anew in each process. The
prompt is spelled with these names and encoded in one go: what stands in the text is not a control token there, while
spaces around tokens, prefixes and normal forms are the tokenizer's own business as ever.
"""

from __future__ import annotations

import json
import secrets
import weakref
from collections.abc import Iterable
from threading import Lock
from typing import Any

from tokenizers import Tokenizer

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.families.control import control_tokens

_NONCE = secrets.token_hex(16)
_cache: weakref.WeakKeyDictionary[Any, dict[Any, PromptEncoder]] = weakref.WeakKeyDictionary()
_lock = Lock()


def encoder(tokenizer: Any, control: frozenset[str]) -> PromptEncoder:
    """The encoder for a tokenizer and a family's control tokens, kept for as long as the tokenizer lives."""
    key = (len(tokenizer), repr(tokenizer.chat_template), control)
    with _lock:
        known = _cache.setdefault(tokenizer, {})
        if key not in known:
            ids = control_tokens(tokenizer, control)
            # Families whose markup comes to the same control tokens share one copy.
            same = next((made for made in known.values() if made.control_ids == ids), None)
            known[key] = same or PromptEncoder(tokenizer, ids)
        return known[key]


class PromptEncoder:
    """Encodes (is it markup, text) pieces; never changed after it is made, so any number of threads may use it.

    `control_ids` are the control tokens with their ids. UnsupportedInput for a tokenizer that is not a fast one.
    """

    def __init__(self, tokenizer: Any, control_ids: dict[str, int]) -> None:
        self.control_ids = control_ids
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise UnsupportedInput(
                f"A {type(tokenizer).__name__} cannot keep control tokens and text apart: load the tokenizer in its"
                " fast form (AutoTokenizer does when the folder has a tokenizer.json)."
            )
        # \x00 cannot be in a name that tokenizers match, private-use characters can: they are in no real token.
        self._names = {token: f"\U000f0000{_NONCE}{place}\U000f0001" for place, token in enumerate(control_ids)}
        settings = json.loads(backend.to_str())
        originals = {
            self._names.get(token["content"], token["content"]): token["id"] for token in settings["added_tokens"]
        }
        _rename(settings, self._names)
        self._copy = Tokenizer.from_str(json.dumps(settings))
        self._ids = {
            copied: original
            for name, original in originals.items()
            if (copied := self._copy.token_to_id(name)) is not None and copied != original
        }
        self._begin = self._added_in_front()

    def encode(self, pieces: Iterable[tuple[bool, str]]) -> tuple[int, ...]:
        """The ids of the pieces, read as one text."""
        spelled = "".join(self._names.get(text, text) if is_markup else text for is_markup, text in pieces)
        found = self._copy.encode(spelled, add_special_tokens=False).ids
        ids = tuple(self._ids.get(id, id) for id in found) if self._ids else tuple(found)
        return ids if ids[:1] == self._begin[:1] else self._begin + ids

    def _added_in_front(self) -> tuple[int, ...]:
        """What the tokenizer's post-processor puts before a text."""
        plain = self._copy.encode("a", add_special_tokens=False).ids
        whole = self._copy.encode("a", add_special_tokens=True).ids
        for start in range(len(whole) - len(plain) + 1):
            if whole[start : start + len(plain)] == plain:
                return tuple(whole[:start])
        return ()


def _rename(settings: dict[str, Any], names: dict[str, str]) -> None:
    """Give control tokens their new names wherever a tokenizer.json spells them, and drop what would still make them."""
    settings["truncation"] = settings["padding"] = None
    for token in settings["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
        token["single_word"] = False if token["content"] in names.values() else token["single_word"]
    model = settings["model"]
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(token, token): id for token, id in vocabulary.items()}
    elif isinstance(vocabulary, list):
        model["vocab"] = [[names.get(token, token), score] for token, score in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if not _touches(merge, names)]


def _touches(merge: str | list[str], names: dict[str, str]) -> bool:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left in names or right in names or left + right in names
