"""What the ids of a request mean as an answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine.answer import AnswerReader
from chatlocal.engine.events import Event, Finish, Text, Usage
from chatlocal.engine.runtime.backend import Done, IdLogprob, TokenEvent, Tokens
from tests.scripted import spell
from tests.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
STOP = Done("stop", 2)


def read(events: Iterable[TokenEvent], stops: tuple[str, ...] = (), tokenizer: Any = TOKENIZER) -> list[Event]:
    reader = AnswerReader(tokenizer, stops, 7)
    read: list[Event] = []
    for event in events:
        if reader.finished:
            break
        read += reader.feed(event)
    return read


def one_by_one(text: str, tokenizer: Any = TOKENIZER) -> list[TokenEvent]:
    return [*(Tokens((id,)) for id in spell(text, tokenizer)), STOP]


def text_of(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def finish_of(events: list[Event]) -> Finish:
    finish = events[-1]
    assert isinstance(finish, Finish)
    assert not any(isinstance(event, Finish) for event in events[:-1])
    return finish


@pytest.mark.parametrize("reason", ["stop", "length", "cancelled"])
def test_text_reason_and_usage(reason: Any) -> None:
    ids = spell("Harry was a dog.")
    events = read([*(Tokens((id,)) for id in ids), Done(reason)])
    assert text_of(events) == "Harry was a dog."
    assert finish_of(events) == Finish(reason, Usage(7, len(ids)))


@pytest.mark.parametrize("text", ["🫠", "🦥", "龘", "👨‍👩‍👧", "naïve 小狗 🇳🇱", "a \ufffd b"])
def test_characters_come_whole(text: str) -> None:
    assert len(spell(text)) > 1
    events = read(one_by_one(text))
    assert text_of(events) == text
    pieces = [event.text for event in events if isinstance(event, Text)]
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)
    assert all(pieces)


def test_a_character_that_was_cut_off_comes_as_the_tokenizer_shows_it() -> None:
    ids = spell("🫠")[:-1]
    events = read([*(Tokens((id,)) for id in ids), Done("length")])
    assert text_of(events) == TOKENIZER.decode(ids)
    assert finish_of(events).usage.completion == len(ids)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_nothing_after_a_stop_is_shown_or_counted(size: int) -> None:
    ids = spell("one two\nUser: three four")
    events = read([*(Tokens(ids[at : at + size]) for at in range(0, len(ids), size)), STOP], ("\nUser:",))
    assert text_of(events) == "one two"
    # the fewest ids whose text holds the stop
    needed = next(count for count in range(len(ids)) if "\nUser:" in TOKENIZER.decode(ids[:count]))
    assert finish_of(events) == Finish("stop", Usage(7, needed), None, "\nUser:")


def test_text_that_was_held_for_a_stop_that_never_came_is_not_lost() -> None:
    events = read(one_by_one("hi\nUse"), ("\nUser:",))
    assert text_of(events) == "hi\nUse"
    assert finish_of(events).stop is None


def test_a_stop_that_the_last_character_completes() -> None:
    """The U+FFFD of a cut character is only known at the end, and here it is the stop."""
    ids = spell("ab🫠")[:-1]
    events = read([*(Tokens((id,)) for id in ids), Done("length")], (TOKENIZER.decode(ids)[-1],))
    assert finish_of(events).reason == "stop"
    assert "\ufffd" not in text_of(events)


def reported(ids: Iterable[int], logprob: float = -0.5) -> Tokens:
    ids = tuple(ids)
    return Tokens(ids, tuple(IdLogprob(id, logprob, ((id, logprob), (5, -3.0))) for id in ids))


def test_logprobs_carry_text_and_bytes() -> None:
    ids = spell("dog🦥")
    finish = finish_of(read([*(reported((id,)) for id in ids), STOP]))
    assert finish.logprobs is not None
    assert [entry.id for entry in finish.logprobs] == list(ids)
    assert b"".join(entry.data for entry in finish.logprobs) == "dog🦥".encode()
    assert finish.logprobs[0].token == TOKENIZER.decode(ids[:1])
    assert finish.logprobs[-1].token == "\ufffd"
    assert [entry.logprob for entry in finish.logprobs] == [-0.5] * len(ids)
    assert [entry.id for entry in finish.logprobs[0].top] == [ids[0], 5]


def test_a_control_token_among_the_alternatives_is_shown_by_name() -> None:
    event = Tokens((60,), (IdLogprob(60, -1.0, ((2, -0.1),)),))
    finish = finish_of(read([event, STOP]))
    assert finish.logprobs is not None
    assert (finish.logprobs[0].top[0].token, finish.logprobs[0].top[0].data) == ("<|im_end|>", b"")


# ids that stand for ids sent before


def spell_otherwise(text: str) -> tuple[int, ...]:
    """The ids of single bytes: the same text with other, more ids."""
    return tuple(id for byte in text.encode("utf-8") for id in TOKENIZER.convert_tokens_to_ids([_byte_token(byte)]))


def _byte_token(byte: int) -> str:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return bytes_to_unicode()[byte]


def test_replaced_ids_go_on_where_the_text_was() -> None:
    first = spell_otherwise("{'na")
    instead = spell("{'name")
    events = read([Tokens(first), Tokens((*instead, *spell("': 1}")), replaces=len(first)), STOP])
    assert text_of(events) == "{'name': 1}"
    assert finish_of(events).usage == Usage(7, len(instead) + len(spell("': 1}")))


def test_replaced_ids_take_their_reports_along() -> None:
    first = spell_otherwise("ab")
    events = read([reported(spell("x")), reported(first, -9.0), Tokens(spell("abc")), reported(spell("y")), STOP])
    assert len(finish_of(events).logprobs or ()) == 2 + len(first)
    replacing = Tokens(spell("abc"), replaces=len(first))
    finish = finish_of(read([reported(spell("x")), reported(first, -9.0), replacing, reported(spell("y")), STOP]))
    assert [entry.logprob for entry in finish.logprobs or ()] == [-0.5, -0.5]
    again = Tokens(spell("abc"), reported(spell("abc"), -2.0).logprobs, replaces=len(first))
    finish = finish_of(read([reported(spell("x")), reported(first, -9.0), again, STOP]))
    assert [entry.logprob for entry in finish.logprobs or ()] == [-0.5] + [-2.0] * len(spell("abc"))


def test_a_stop_inside_replaced_ids_counts_the_ids_up_to_it() -> None:
    first = spell_otherwise("one")
    instead = spell_otherwise("one;two")
    events = read([Tokens(first), Tokens(instead, replaces=3), STOP], (";",))
    assert text_of(events) == "one"
    assert finish_of(events).usage.completion == 4


def test_replacing_in_the_middle_of_a_character() -> None:
    whole = spell_otherwise("小狗")
    events = read([Tokens(whole[:1]), Tokens(whole[:4], replaces=1), Tokens(whole[3:], replaces=1), STOP])
    assert text_of(events) == "小狗"


@pytest.mark.parametrize("seen", ["bytes", "window"])
@given(
    text=st.text(alphabet="abc 小🦥é\n\"'", min_size=1, max_size=20),
    cuts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.booleans()), max_size=6),
)
def test_any_replacing_gives_the_text_once(seen: str, text: str, cuts: list[tuple[int, int, bool]]) -> None:
    """A text that comes in pieces, each of which takes the last few ids back and writes them again otherwise."""
    ids: list[int] = []  # as they stand for the text so far
    done = 0  # bytes of the text that they spell
    data = text.encode()
    events: list[TokenEvent] = []
    for count, more, merged in [*cuts, (0, len(data), False)]:
        count = min(count, len(ids))
        kept = ids[: len(ids) - count]
        start = len(b"".join(_bytes(id) for id in kept))
        done = min(len(data), max(done, done + more))
        fresh = list(_spell_bytes(data[start:done], merged))
        events.append(Tokens(tuple(fresh), replaces=count))
        ids = kept + fresh
    tokenizer = TOKENIZER if seen == "bytes" else _Windowed()
    read_events = read([*events, STOP], tokenizer=tokenizer)
    assert text_of(read_events) == text
    assert finish_of(read_events).usage.completion == len(ids)


def _bytes(id: int) -> bytes:
    from chatlocal.engine.constraints.vocabulary import token_bytes

    return token_bytes(TOKENIZER)[id]


def _spell_bytes(data: bytes, merged: bool) -> tuple[int, ...]:
    try:
        return spell(data.decode()) if merged else spell_otherwise(data.decode())
    except UnicodeDecodeError:  # half a character: only single bytes can spell it
        return tuple(TOKENIZER.convert_tokens_to_ids([_byte_token(byte) for byte in data]))


class _Windowed:
    """The tiny tokenizer as one whose decoder is not known, so that it is asked to decode windows of ids."""

    all_special_ids = TOKENIZER.all_special_ids

    def decode(self, ids: list[int], **options: Any) -> str:
        return str(TOKENIZER.decode(ids, **options))
