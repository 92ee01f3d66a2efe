"""chatlocal's grammars and three engines alone, behind one interface: a schema compiled for a tokenizer, and a walk.

`mask` is what an engine hands to the sampler. chatlocal makes a new bool tensor, which masks logits as it is; the
others write one bit for each id into a tensor that is there already, and a kernel of theirs unpacks it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

import torch

import chatlocal
from chatlocal.engine import constraints
from chatlocal.engine.constraints.vocabulary import read_vocabulary
from chatlocal.engine.errors import UnsupportedInput

ITEM, KEY = SEPARATORS = (", ", ": ")


class Walk(Protocol):
    """One text as it grows, id by id. Any exception means that the engine could not go on."""

    def mask(self) -> None:
        """Find out which ids may follow."""

    def advance(self, id: int) -> bool:
        """Take an id; False when it cannot follow, and then the walk is over."""

    def may_end(self) -> bool:
        """Whether the text so far is a whole one."""

    def forced(self) -> bytes | None:
        """What must follow; None from an engine that does not say."""


@dataclass(frozen=True)
class Compiled:
    """`left` are the keywords that the engine says it leaves to a validator."""

    start: Callable[[], Walk]
    left: frozenset[str] = frozenset()


class Engine(Protocol):
    """An engine set up for one tokenizer; the call compiles a JSON Schema, and any exception of it is a refusal."""

    def __init__(self, tokenizer: Any) -> None: ...

    def __call__(self, schema: Any) -> Compiled: ...


class Chatlocal:
    """The schema's own meaning: `closed=False`."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, schema: Any) -> Compiled:
        spec = constraints.json_schema(schema, closed=False, separators=SEPARATORS)
        constraint = constraints.compile(spec, self._tokenizer)
        left = frozenset(entry.split()[0] for entry in constraint.left_to_validation)
        return Compiled(lambda: ChatlocalWalk(constraint.start()), left)


class ChatlocalWalk:
    def __init__(self, state: constraints.ConstraintState) -> None:
        self._state = state

    def mask(self) -> None:
        self._state.mask()

    def advance(self, id: int) -> bool:
        try:
            self._state.advance(id)
        except UnsupportedInput:
            return False
        return True

    def may_end(self) -> bool:
        return self._state.may_end

    def forced(self) -> bytes:
        return self._state.forced_bytes()


class OutlinesCore:
    """Its own regex for the schema, its index over the whole vocabulary. Its regex allows one space or none."""

    def __init__(self, tokenizer: Any) -> None:
        from outlines_core import Vocabulary

        known = read_vocabulary(tokenizer)
        ids: dict[bytes, list[int]] = {}
        for id, text in enumerate(known.tokens):
            if text and id not in known.control and id != tokenizer.eos_token_id:
                ids.setdefault(text, []).append(id)
        self._vocabulary = Vocabulary(tokenizer.eos_token_id, ids)
        self._bits = bits_for(len(tokenizer))

    def __call__(self, schema: Any) -> Compiled:
        from outlines_core import Guide, Index
        from outlines_core.json_schema import build_regex_from_schema

        index = Index(build_regex_from_schema(json.dumps(schema)), self._vocabulary)
        return Compiled(lambda: OutlinesCoreWalk(Guide(index), self._bits))


class OutlinesCoreWalk:
    def __init__(self, guide: Any, bits: torch.Tensor) -> None:
        self._guide = guide
        self._bits = bits

    def mask(self) -> None:
        self._guide.write_mask_into(self._bits.data_ptr(), self._bits.numel(), self._bits.element_size())

    def advance(self, id: int) -> bool:
        try:
            self._guide.advance(id, return_tokens=False)
        except ValueError:  # its way to refuse
            return False
        return True

    def may_end(self) -> bool:
        return bool(self._guide.is_finished())

    def forced(self) -> None:
        return None


class LLGuidance:
    """The schema as it is, with its own settings but for the white space."""

    def __init__(self, tokenizer: Any) -> None:
        from llguidance.hf import from_tokenizer

        self._tokenizer = from_tokenizer(tokenizer)
        self._bits = bits_for(len(tokenizer))

    def __call__(self, schema: Any) -> Compiled:
        from llguidance import LLMatcher

        form: Any = {"whitespace_flexible": False, "item_separator": ITEM, "key_separator": KEY}
        source = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=form)
        matcher = LLMatcher(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return Compiled(lambda: LLGuidanceWalk(matcher.deep_copy(), self._bits))


class LLGuidanceWalk:
    def __init__(self, matcher: Any, bits: torch.Tensor) -> None:
        self._matcher = matcher
        self._bits = bits

    def mask(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._bits.data_ptr(), self._bits.nbytes)
        self._check()

    def advance(self, id: int) -> bool:
        taken = self._matcher.try_consume_tokens([id]) == 1
        self._check()
        return taken

    def may_end(self) -> bool:
        return bool(self._matcher.is_accepting())

    def forced(self) -> bytes:
        return bytes(self._matcher.compute_ff_bytes())

    def _check(self) -> None:
        if self._matcher.is_error():  # it never raises
            raise ValueError(self._matcher.get_error())


class XGrammar:
    """The schema's own meaning: `strict_mode=False`, as undeclared keys are not closed out."""

    def __init__(self, tokenizer: Any) -> None:
        import xgrammar

        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._bits = bits_for(len(tokenizer))
        self._end = tokenizer.eos_token_id

    def __call__(self, schema: Any) -> Compiled:
        from xgrammar import GrammarMatcher

        made = self._compiler.compile_json_schema(
            json.dumps(schema), any_whitespace=False, separators=SEPARATORS, strict_mode=False
        )
        return Compiled(lambda: XGrammarWalk(GrammarMatcher(made), self._bits))


class XGrammarWalk:
    def __init__(self, matcher: Any, bits: torch.Tensor) -> None:
        self._matcher = matcher
        self._bits = bits

    def mask(self) -> None:
        self._matcher.fill_next_token_bitmask(self._bits)

    def advance(self, id: int) -> bool:
        return bool(self._matcher.accept_token(id))

    def may_end(self) -> bool:
        return bool(self._matcher.is_completed())

    def forced(self) -> bytes:
        return str(self._matcher.find_jump_forward_string()).encode()


def bits_for(ids: int) -> torch.Tensor:
    """Room for a mask of one bit for each id, as all three engines lay it out: int32 [1, ids / 32 rounded up]."""
    return torch.full((1, (ids + 31) // 32), -1, dtype=torch.int32)


ENGINES: dict[str, type[Engine]] = {
    "chatlocal": Chatlocal,
    "outlines-core": OutlinesCore,
    "llguidance": LLGuidance,
    "xgrammar": XGrammar,
}


def installed_version(name: str) -> str:
    """PackageNotFoundError for an engine that is not installed."""
    return chatlocal.__version__ if name == "chatlocal" else version(name)
