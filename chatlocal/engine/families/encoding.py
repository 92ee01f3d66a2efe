"""Ids of a prompt: control tokens from markup only, everything else exactly as the tokenizer itself would have it.

For a fast tokenizer a second one over the same model and the same steps knows every control token by another name, made
up anew in each process. The prompt is spelled with these names and encoded in one go: what stands in the text is not a
control token there, while spaces around tokens, prefixes and normal forms are the tokenizer's own business as ever.
Other kinds of tokenizers are in piecewise.py.
"""

from __future__ import annotations

import re
import secrets
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from itertools import chain
from threading import Lock
from typing import Any, Protocol

from tokenizers import AddedToken, Tokenizer

from chatlocal.engine.families.control import control_tokens
from chatlocal.engine.families.piecewise import PiecewiseEncoder, before, check_text, is_markup

_NONCE = secrets.token_hex(16)


class Encoder(Protocol):
    """Encodes prompts for one tokenizer; never changed after it is made, so any number of threads may use it."""

    @property
    def control_ids(self) -> dict[str, int]:
        """The control tokens with their ids."""
        ...

    @property
    def begin(self) -> tuple[int, ...]:
        """The ids that the tokenizer puts in front of a text."""
        ...

    def encode(self, runs: Iterable[list[tuple[bool, str]]]) -> tuple[int, ...]:
        """The ids of runs of (is it markup, text) pieces one after the other, each read as one text.

        UnsupportedInput for half of a surrogate pair.
        """
        ...


def encoder(tokenizer: Any, control: frozenset[str]) -> Encoder:
    """The encoder for a tokenizer and a family's control tokens, kept for as long as the tokenizer lives.

    UnsupportedInput for an object of no known kind; see piecewise.py for the kinds besides fast tokenizers.
    """
    key = (_size(tokenizer), repr(getattr(tokenizer, "chat_template", None)), control)
    with _lock:
        known = _kept(tokenizer)
        if key not in known:
            known[key] = _made(tokenizer, control, known.values())
        return known[key]


def _made(tokenizer: Any, control: frozenset[str], known: Iterable[Encoder]) -> Encoder:
    if isinstance(tokenizer, Tokenizer):
        tokenizer = _Bare(tokenizer)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        return PiecewiseEncoder.of(tokenizer, control)
    ids = control_tokens(tokenizer, control) | _pieces(tokenizer.backend_tokenizer, control)
    # Families whose markup comes to the same control tokens share one encoder.
    same = next((made for made in known if made.control_ids == ids), None)
    return same or PromptEncoder(tokenizer, ids)


class _Bare:
    """A tokenizer of the `tokenizers` library by itself, with what is read of one of transformers."""

    chat_template = None

    def __init__(self, backend: Tokenizer) -> None:
        self.backend_tokenizer = backend
        self.added_tokens_decoder = backend.get_added_tokens_decoder()
        unknown = getattr(backend.model, "unk_token", None)
        self.unk_token_id = backend.token_to_id(unknown) if unknown else None


def _pieces(backend: Tokenizer, control: frozenset[str]) -> dict[str, int]:
    """Control tokens that are no added tokens but pieces of the model: InternLM's <eoa>, Baichuan's <reserved_106>."""
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    ids = {token: backend.token_to_id(token) for token in sorted(control - added) if is_markup(token)}
    return {token: id for token, id in ids.items() if id is not None}


def _spelled_by_text(backend: Tokenizer, control_ids: dict[str, int]) -> frozenset[str]:
    """Those of the control tokens that text becomes all the same, without being added tokens.

    Sentencepiece calls them user-defined. They stand within a text: nothing begins anew behind them.
    """
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    bare = _without_added(backend)
    return frozenset(token for token, id in control_ids.items() if token not in added and id in bare.encode(token).ids)


def _without_added(backend: Tokenizer) -> Tokenizer:
    """The same steps over the same model, without added tokens.

    Its own object: encoding with the tokenizer itself would make it fail where another thread changes its settings.
    """
    copy = Tokenizer(backend.model)
    for step in ("normalizer", "pre_tokenizer"):
        if getattr(backend, step) is not None:
            setattr(copy, step, getattr(backend, step))
    return copy


# By tokenizer, for as long as it lives. Encoders hold no reference to it, or it would live for ever.
_cache: weakref.WeakKeyDictionary[Any, dict[Any, Encoder]] = weakref.WeakKeyDictionary()
# Objects that cannot be referenced weakly or hashed are held with their encoders, the newest so many.
_held: OrderedDict[int, tuple[Any, dict[Any, Encoder]]] = OrderedDict()
_MAX_HELD = 8
_lock = Lock()


def _kept(tokenizer: Any) -> dict[Any, Encoder]:
    try:
        return _cache.setdefault(tokenizer, {})
    except TypeError:
        known = _held.setdefault(id(tokenizer), (tokenizer, {}))[1]
        _held.move_to_end(id(tokenizer))
        while len(_held) > _MAX_HELD:
            _held.popitem(last=False)
        return known


def _size(tokenizer: Any) -> int | None:
    """How many tokens there are, so that one more is noticed; None where the number never changes."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer.get_vocab_size()
    return len(tokenizer) if hasattr(tokenizer, "__len__") else None


class PromptEncoder:
    """The Encoder for a fast tokenizer of transformers."""

    def __init__(self, tokenizer: Any, control_ids: dict[str, int]) -> None:
        backend = tokenizer.backend_tokenizer
        self.control_ids = control_ids
        spelled = _spelled_by_text(backend, control_ids)
        self._names = {token: _name(place) for place, token in enumerate(control_ids) if token not in spelled}
        # Unknown characters are the unknown token's business, in text too.
        self._forbidden = frozenset(control_ids.values()) - {getattr(tokenizer, "unk_token_id", None)}
        self._cut = _name("cut")
        longest_first = sorted(control_ids, key=len, reverse=True)
        self._look_alike = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._copy, self._ids = self._renamed(backend)
        self.begin = before(self._copy.encode("a").ids, self._copy.encode("a", add_special_tokens=False).ids)

    def encode(self, runs: Iterable[list[tuple[bool, str]]]) -> tuple[int, ...]:
        """See Encoder."""
        return tuple(chain.from_iterable(map(self._encode_run, runs)))

    def _encode_run(self, pieces: list[tuple[bool, str]]) -> tuple[int, ...]:
        for _, text in pieces:
            check_text(text)
        ids = self._encode(pieces)
        markup = sum(marked and self.control_ids.get(text) in self._forbidden for marked, text in pieces)
        if sum(id in self._forbidden for id in ids) > markup:
            # Some models (Unigram) find control tokens in plain text by themselves: cut the look-alikes in two.
            ids = self._encode([(marked, text if marked else self._apart(text)) for marked, text in pieces])
        return ids

    def _encode(self, pieces: list[tuple[bool, str]]) -> tuple[int, ...]:
        spelled = "".join(self._names.get(text, text) if marked else text for marked, text in pieces)
        found = self._copy.encode(spelled, add_special_tokens=False).ids
        return tuple(known for id in found if (known := self._ids.get(id, id)) is not None)

    def _apart(self, text: str) -> str:
        return self._look_alike.sub(lambda found: found[0][:1] + self._cut + found[0][1:], text)

    def _renamed(self, backend: Any) -> tuple[Tokenizer, dict[int, int | None]]:
        """The second tokenizer, and what its added ids are in the first; None for ids that stand for nothing."""
        copy = _without_added(backend)
        if backend.post_processor is not None:
            copy.post_processor = backend.post_processor
        added = dict(sorted(backend.get_added_tokens_decoder().items()))
        for token, id in self.control_ids.items():
            if token in self._names and id not in added:
                added[id] = AddedToken(token, normalized=False)
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


def _name(place: int | str) -> str:
    # Private-use characters at both ends: no other token can begin before a name and reach into it.
    return f"\U000f0000{_NONCE}{place}\U000f0001"
