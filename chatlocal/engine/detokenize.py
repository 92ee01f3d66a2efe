"""From ids to text, a few ids at a time, without ever showing half a character.

Where a token's bytes are known, the bytes are decoded as they come: the cost of an id does not grow with the text, and
a literal U+FFFD is a character like any other. Other tokenizers (WordPiece, sentencepiece in Python) are asked to
decode a short window of ids.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.constraints.vocabulary import special_ids, token_bytes
from chatlocal.engine.errors import UnsupportedInput

_SPACE = "▁"  # sentencepiece's mark for a space
_REPLACEMENT = "\ufffd"
# A window of nothing but U+FFFD is a literal after so many ids: a character has at most four bytes, an id at least one.
_PATIENCE = 16


class Detokenizer:
    """`feed` gives the text that is final, `flush` the rest; together they are `tokenizer.decode` of all ids.

    That is decode without special ids (except those in `keep`, which come out by name) and without cleaning up spaces.
    An incomplete character becomes U+FFFD as there: once in byte-level tokenizers, once for each byte in sentencepiece
    ones. There the characters beside a broken one stay what they are, as sentencepiece has it; the `tokenizers` library
    gives the whole run of bytes up.
    """

    def __init__(self, tokenizer: Any, *, keep: frozenset[int] = frozenset()) -> None:
        rules = _rules(tokenizer)
        self._decoding: _Bytes | _Window
        if rules is None:
            self._decoding = _Window(tokenizer, frozenset(tokenizer.all_special_ids) - keep)
        else:
            self._decoding = _Bytes(tokenizer, rules, keep)

    def feed(self, ids: Iterable[int]) -> str:
        """The text that these new ids make final."""
        return self._decoding.feed(ids)

    def rewind(self, count: int) -> None:
        """The ids fed next stand for the last `count` ones and more: their text begins with what those ones gave."""
        self._decoding.rewind(count)

    def flush(self) -> str:
        """The text of what was held back; the next `feed` starts anew."""
        return self._decoding.flush()


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a tokenizer's decoder does besides joining bytes."""

    each_byte: bool = False  # every stray byte is a U+FFFD of its own
    strip: int = 0  # so many spaces at the start of the text go
    bare_start: bool = False  # the first token loses its spaces


def _rules(tokenizer: Any) -> _Rules | None:
    """None when the decoder is not a plain joining of bytes."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    decoder = getattr(backend, "decoder", None)
    if decoder is None:
        return None
    settings = json.loads(decoder.__getstate__())
    steps = settings["decoders"] if settings["type"] == "Sequence" else [settings]
    rules = _read_steps(steps)
    if rules is None or (not rules.each_byte and steps[0]["type"] != "ByteLevel" and _has_byte_tokens(backend)):
        return None
    try:
        token_bytes(tokenizer)
    except UnsupportedInput:
        return None
    return rules


def _read_steps(steps: list[dict[str, Any]]) -> _Rules | None:
    match [step["type"] for step in steps]:
        case ["ByteLevel"] | ["ByteLevel", "Fuse"]:
            return _Rules()
        case ["Metaspace"]:
            return _metaspace(steps[0])
        case ["ByteFallback", "Metaspace"]:
            rules = _metaspace(steps[1])
            return rules and _Rules(each_byte=True, bare_start=rules.bare_start)
        case ["Replace", "ByteFallback", "Fuse", *rest] if _writes_spaces(steps[0]):
            if not rest:
                return _Rules(each_byte=True)
            if rest == ["Strip"] and steps[3]["content"] == " " and steps[3]["stop"] == 0:
                return _Rules(each_byte=True, strip=steps[3]["start"])
    return None


def _metaspace(step: dict[str, Any]) -> _Rules | None:
    return _Rules(bare_start=step.get("prepend_scheme") != "never") if step["replacement"] == _SPACE else None


def _writes_spaces(step: dict[str, Any]) -> bool:
    return bool(step["pattern"] == {"String": _SPACE} and step["content"] == " ")


def _has_byte_tokens(backend: Any) -> bool:
    return backend.token_to_id("<0x0A>") is not None


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _REPLACEMENT * (error.end - error.start), error.end


codecs.register_error("chatlocal-each-byte", _replace_each_byte)


class _Bytes:
    def __init__(self, tokenizer: Any, rules: _Rules, keep: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._rules = rules
        self._tokens = token_bytes(tokenizer)
        self._skip = special_ids(tokenizer) - keep
        self._names = {id: self._name(id).encode() for id in keep & special_ids(tokenizer)}
        errors = "chatlocal-each-byte" if rules.each_byte else "replace"
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        self._restart()

    def _restart(self) -> None:
        self._decoder.reset()
        self._bare_start = self._rules.bare_start
        self._sizes: list[int | None] = []  # bytes of each id, None for those without text
        self._again = 0  # bytes of what comes next that went into the text before
        self._spaces = self._rules.strip

    def feed(self, ids: Iterable[int]) -> str:
        data = b"".join([self._read(id) for id in ids])
        again = min(self._again, len(data))
        self._again -= again
        return self._strip(self._decoder.decode(data[again:]))

    def rewind(self, count: int) -> None:
        self._again += sum(size or 0 for size in self._sizes[-count:])
        del self._sizes[-count:]
        self._bare_start = self._rules.bare_start and all(size is None for size in self._sizes)

    def flush(self) -> str:
        text = self._strip(self._decoder.decode(b"", final=True))
        self._restart()
        return text

    def _read(self, id: int) -> bytes:
        if id in self._skip or not 0 <= id < len(self._tokens):
            self._sizes.append(None)
            return b""
        data = self._data(id)
        self._sizes.append(len(data))
        return data

    def _data(self, id: int) -> bytes:
        if self._bare_start:
            self._bare_start = False
            return self._name(id).replace(_SPACE, "").encode()
        return self._names.get(id) or self._tokens[id]

    def _strip(self, text: str) -> str:
        while self._spaces and text:
            if not text.startswith(" "):
                self._spaces = 0
                break
            self._spaces -= 1
            text = text[1:]
        return text

    def _name(self, id: int) -> str:
        return str(self._tokenizer.convert_ids_to_tokens(id))


class _Window:
    """Decodes the ids that are not out yet behind those that went out last, and takes what that adds."""

    def __init__(self, tokenizer: Any, skip: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._skip = skip
        self._restart()

    def _restart(self) -> None:
        self._ids: list[int] = []
        self._start = 0  # of the pending ones among all
        self._context: list[int] = []
        self._pending: list[int] = []
        self._sent = 0  # characters of the pending ones' text that went out before
        self._held = 0

    def feed(self, ids: Iterable[int]) -> str:
        return "".join([self._next(id) for id in ids])

    def rewind(self, count: int) -> None:
        kept = len(self._ids) - count
        start, end = min(kept, self._start), self._start
        self._context = self._ids[max(0, start - _PATIENCE) : start]
        self._pending = self._ids[start:end]
        self._sent += len(self._added())
        self._start, self._pending = start, self._ids[start:kept]
        del self._ids[kept:]

    def flush(self) -> str:
        text = self._added()[self._sent :]
        self._restart()
        return text

    def _next(self, id: int) -> str:
        self._ids.append(id)
        self._pending.append(id)
        text = self._added()
        if len(text) <= self._sent:
            return ""
        self._held += 1
        if text.endswith(_REPLACEMENT) and self._held < _PATIENCE:
            return ""
        text = text[self._sent :]
        self._context, self._pending, self._start = self._pending, [], len(self._ids)
        self._sent = self._held = 0
        return text

    def _added(self) -> str:
        return self._decode(self._context + self._pending)[len(self._decode(self._context)) :]

    def _decode(self, ids: list[int]) -> str:
        # A plain bool turns the clean-up off; skipping is done here, where `keep` is known.
        ids = [id for id in ids if id not in self._skip]
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
