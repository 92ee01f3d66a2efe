"""Reading an answer in pieces, and what of it does not depend on them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from chatlocal.engine import toolcalls
from chatlocal.engine.events import CallDelta, Event, Reasoning, Text
from chatlocal.engine.toolcalls import Tools


def merged(events: Iterable[Event]) -> list[Event]:
    """Events with neighbours of one kind as one."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Text | Reasoning) and type(last) is type(event):
            out[-1] = type(event)(last.text + event.text)
        elif isinstance(event, CallDelta) and isinstance(last, CallDelta) and last.index == event.index:
            out[-1] = CallDelta(event.index, last.arguments + event.arguments)
        else:
            out.append(event)
    return out


def events_of(format: str, pieces: Iterable[str], tools: Tools | None = None, opened: str = "") -> list[Event]:
    """The merged events of an answer that comes in pieces."""
    parser = toolcalls.get(format).parser(tools, opened)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return merged([*events, *parser.flush()])


def pieces(text: str, cuts: Iterable[int]) -> list[str]:
    """A text cut at places."""
    borders = [0, *sorted(cuts), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]
