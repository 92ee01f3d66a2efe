"""Ids of a prompt: control tokens from markup only, everything else exactly as the tokenizer itself would have it.

A second tokenizer over the same model and the same steps knows every control token by another name, made up anew in
each process. The prompt is spelled with these names and encoded in one go: what stands in the text is not a control
token there, while spaces around tokens, prefixes and normal forms are the tokenizer's own business as ever.
"""

from __future__ import annotations

import re
import secrets
import weakref
from collections.abc import Iterable
from itertools import chain
from threading import Lock
from typing import Any

from tokenizers import AddedToken, Tokenizer

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
            # Families whose markup comes to the same control tokens share one encoder.
            same = next((made for made in known.values() if made.control_ids == ids), None)
            known[key] = same or PromptEncoder(tokenizer, ids)
        return known[key]


class PromptEncoder:
    """Encodes runs of (is it markup, text) pieces; never changed after it is made, so any number of threads may use it.

    `control_ids` are the control tokens with their ids, `begin` the ids that the tokenizer puts in front of a text.
    UnsupportedInput for a tokenizer that is not a fast one.
    """

    def __init__(self, tokenizer: Any, control_ids: dict[str, int]) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise UnsupportedInput(
                f"A {type(tokenizer).__name__} cannot keep control tokens and text apart: load the tokenizer in its"
                " fast form (AutoTokenizer does when the folder has a tokenizer.json)."
            )
        self.control_ids = control_ids
        self._names = {token: _name(place) for place, token in enumerate(control_ids)}
        # Unknown characters are the unknown token's business, in text too.
        self._forbidden = frozenset(control_ids.values()) - {getattr(tokenizer, "unk_token_id", None)}
        self._cut = _name("cut")
        longest_first = sorted(control_ids, key=len, reverse=True)
        self._look_alike = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._copy, self._ids = self._renamed(backend)
        self.begin = self._added_in_front()

    def encode(self, runs: Iterable[list[tuple[bool, str]]]) -> tuple[int, ...]:
        """The ids of the runs one after the other, each read as one text. UnsupportedInput for half of a surrogate."""
        return tuple(chain.from_iterable(map(self._encode_run, runs)))

    def _encode_run(self, pieces: list[tuple[bool, str]]) -> tuple[int, ...]:
        for _, text in pieces:
            check_text(text)
        ids = self._encode(pieces)
        markup = sum(is_markup and self.control_ids.get(text) in self._forbidden for is_markup, text in pieces)
        if sum(id in self._forbidden for id in ids) > markup:
            # Some models (Unigram) find control tokens in plain text by themselves: cut the look-alikes in two.
            ids = self._encode([(is_markup, text if is_markup else self._apart(text)) for is_markup, text in pieces])
        return ids

    def _encode(self, pieces: list[tuple[bool, str]]) -> tuple[int, ...]:
        spelled = "".join(self._names.get(text, text) if is_markup else text for is_markup, text in pieces)
        found = self._copy.encode(spelled, add_special_tokens=False).ids
        return tuple(known for id in found if (known := self._ids.get(id, id)) is not None)

    def _apart(self, text: str) -> str:
        return self._look_alike.sub(lambda found: found[0][:1] + self._cut + found[0][1:], text)

    def _renamed(self, backend: Any) -> tuple[Tokenizer, dict[int, int | None]]:
        """The second tokenizer, and what its added ids are in the first; None for ids that stand for nothing."""
        copy = Tokenizer(backend.model)
        for step in ("normalizer", "pre_tokenizer", "post_processor"):
            if getattr(backend, step) is not None:
                setattr(copy, step, getattr(backend, step))
        added = dict(sorted(backend.get_added_tokens_decoder().items()))
        fillers = self._fillers(backend, len(added) + 1)
        tokens = [AddedToken(filler, normalized=False) for filler in fillers]
        originals: dict[str, int | None] = {self._cut: None}
        for id, token in added.items():
            content = self._names.get(token.content, token.content)
            tokens.append(
                AddedToken(
                    content,
                    single_word=token.single_word and content == token.content,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=token.normalized,
                )
            )
            originals[content] = id
        # All in one call: each call rebuilds the matcher. That a token is special means nothing to encoding.
        copy.add_tokens(tokens)
        made = copy.get_added_tokens_decoder()
        return copy, {id: originals[token.content] for id, token in made.items() if token.content in originals}

    def _fillers(self, backend: Any, needed: int) -> list[str]:
        """Tokens to add first: enough to lead new ids past all that the model has, and the one that cuts.

        New ids begin at the vocabulary's size, which in a vocabulary with holes is not its end.
        """
        size = backend.get_vocab_size(with_added_tokens=False)
        start = place = size
        while place < start + needed:
            if backend.model.id_to_token(place) is not None:
                start = place + 1
            place += 1
        return [*(_name(f"filler{place}") for place in range(start - size)), self._cut]

    def _added_in_front(self) -> tuple[int, ...]:
        """What the tokenizer's post-processor puts before a text."""
        plain = self._copy.encode("a", add_special_tokens=False).ids
        whole = self._copy.encode("a", add_special_tokens=True).ids
        for start in range(len(whole) - len(plain) + 1):
            if whole[start : start + len(plain)] == plain:
                return tuple(whole[:start])
        return ()


def check_text(text: str) -> None:
    """UnsupportedInput for half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedInput(
            f"The prompt holds {text[error.start]!r}, half of a surrogate pair, which no text can hold: read the text"
            " with the right encoding, or replace it with text.encode(errors='replace').decode()."
        ) from error


def _name(place: int | str) -> str:
    # Private-use characters at both ends: no other token can begin before a name and reach into it.
    return f"\U000f0000{_NONCE}{place}\U000f0001"
