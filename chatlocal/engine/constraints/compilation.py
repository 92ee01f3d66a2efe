"""From a spec to a constraint for one tokenizer, once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from chatlocal.engine.constraints.backends import build
from chatlocal.engine.constraints.constraint import Constraint, check_end_ids
from chatlocal.engine.constraints.plain_text import plain_encoder
from chatlocal.engine.constraints.protocol import Tokens
from chatlocal.engine.constraints.spec import Spec
from chatlocal.engine.constraints.vocabulary import Vocabulary, read_vocabulary

# Constraints kept for each tokenizer; the one that was not asked for the longest goes first.
MAX_CONSTRAINTS = 64

_Key = tuple[Spec, int, frozenset[int], str]


def compile(
    spec: Spec,
    tokenizer: Any,
    *,
    vocab_size: int | None = None,
    backend: str = "auto",
    end_ids: Iterable[int] | None = None,
) -> Constraint:
    """Compile a spec for a tokenizer; the same arguments give the same object again, from any thread.

    `vocab_size` is the width of the model's logits (default: the tokenizer's number of ids), `end_ids` the ids that
    end a text (default: the tokenizer's eos id). Milliseconds for most schemas, a second for the first of a tokenizer.
    UnsupportedSchema names the keyword and the path of what cannot be enforced; UnsupportedInput for a backend that
    does not exist or cannot do this kind, and where there is no end id.
    """
    store, key = _place(spec, tokenizer, vocab_size, backend, end_ids)
    return store.constraint(tokenizer, key)


def is_compiled(
    spec: Spec,
    tokenizer: Any,
    *,
    vocab_size: int | None = None,
    backend: str = "auto",
    end_ids: Iterable[int] | None = None,
) -> bool:
    """Whether `compile` with the same arguments has nothing to do any more."""
    store, key = _place(spec, tokenizer, vocab_size, backend, end_ids)
    return store.has(key)


def _place(
    spec: Spec, tokenizer: Any, vocab_size: int | None, backend: str, end_ids: Iterable[int] | None
) -> tuple[_Store, _Key]:
    """Where the constraint is kept."""
    vocabulary = read_vocabulary(tokenizer)
    width = len(vocabulary.tokens) if vocab_size is None else vocab_size
    if end_ids is None:
        eos = getattr(tokenizer, "eos_token_id", None)
        end_ids = () if eos is None else (eos,)
    ends = check_end_ids(end_ids, width)
    return _store(tokenizer, vocabulary), (spec, width, ends, backend)


class _Store:
    """What is kept for one tokenizer. It holds no reference to the tokenizer, so both go together."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._lock = Lock()
        self._tokens: dict[frozenset[int], Tokens] = {}
        self._constraints: OrderedDict[_Key, Future[Constraint]] = OrderedDict()

    def constraint(self, tokenizer: Any, key: _Key) -> Constraint:
        with self._lock:
            known = self._constraints.get(key)
            if known is None:
                mine = self._constraints[key] = Future()
                if len(self._constraints) > MAX_CONSTRAINTS:
                    self._constraints.popitem(last=False)
            else:
                self._constraints.move_to_end(key)
        if known is not None:
            return known.result()
        try:
            mine.set_result(self._compile(tokenizer, key))
        except BaseException as error:
            with self._lock:
                self._constraints.pop(key, None)
            mine.set_exception(error)
            raise
        return mine.result()

    def has(self, key: _Key) -> bool:
        with self._lock:
            known = self._constraints.get(key)
        return known is not None and known.done()

    def _compile(self, tokenizer: Any, key: _Key) -> Constraint:
        spec, width, ends, backend = key
        tokens = self._usable(tokenizer, ends, width)
        return Constraint(build(spec, tokens, backend), tokens, width, ends)

    def _usable(self, tokenizer: Any, ends: frozenset[int], width: int) -> Tokens:
        """The tokens without control tokens as text, end ids and those that the logits do not reach."""
        banned = (self.vocabulary.control | ends) & frozenset(range(len(self.vocabulary.tokens)))
        banned |= frozenset(range(width, len(self.vocabulary.tokens)))
        with self._lock:
            if banned not in self._tokens:
                texts = tuple(b"" if id in banned else text for id, text in enumerate(self.vocabulary.tokens))
                named = {name: id for name, id in self.vocabulary.names.items() if id not in ends and id < width}
                self._tokens[banned] = Tokens(texts, plain_encoder(tokenizer, texts), named)
            return self._tokens[banned]


_stores: WeakKeyDictionary[Any, _Store] = WeakKeyDictionary()
_stores_lock = Lock()


def _store(tokenizer: Any, vocabulary: Vocabulary) -> _Store:
    with _stores_lock:
        store = _stores.get(tokenizer)
        if store is None or store.vocabulary is not vocabulary:
            store = _stores[tokenizer] = _Store(vocabulary)
        return store
