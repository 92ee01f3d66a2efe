"""ChatGLM3: a line with the name, and the arguments as the Python call of `tool_call` in a code block.

The form is that of the model's repository, whose demonstration evaluates the call; here it is only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.bare_name import read_name
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, Way, literal
from chatlocal.engine.toolcalls.format import ToolFormat
from chatlocal.engine.toolcalls.named_arguments import keyword_arguments
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.python_text import read_keywords
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.writing import arguments, as_keywords

_TURN = "<|assistant|>"  # begins each part of an answer that has several
_OPEN, _FUNCTION, _CLOSE = "```python", "tool_call(", "```"


class ChatGLM3(ToolFormat):
    """Calls stand at the start of a part; a part that begins otherwise is text."""

    name = "chatglm3"
    unwritable = ("<", "`")
    ends = ("</s>", "<|user|>", "<|observation|>")

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        while True:
            space = yield from source.skip_space()
            if (yield from self._call(source, out)):
                continue
            out.text(space)
            if not (yield from read_text(source, out.text, (_TURN,), self.ends)):
                return

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them."""
        return _TURN.join(
            f"{self.named(call)}\n{_OPEN}\n{_FUNCTION}{as_keywords(arguments(call))})\n{_CLOSE}" for call in calls
        )

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """One call, at the start of the answer."""
        opening, closing = f"\n{_OPEN}\n{_FUNCTION}", literal(f")\n{_CLOSE}")
        return [
            Way(f"{tool.name}{opening}", f"{keyword_arguments(grammar, tool)} {closing}", "start") for tool in tools
        ]

    def _call(self, source: Source, out: Output) -> Reading[bool]:
        """Read a call; False, and nothing is read, when the text does not go on with one."""
        source.keep()
        name = yield from read_name(source, out, "\n")
        if name is None or not (yield from self._opening(source)):
            source.rewind()
            return False
        index = out.start(name)
        fault = yield from read_keywords(source, partial(out.arguments, index))
        if fault is None:
            source.kept()
            yield from source.skip_space()
        else:
            yield from source.text_until((_CLOSE, _TURN, *self.ends), lambda _: None)
            out.invalid(source.kept().strip(), fault, index)
        yield from source.skip(_CLOSE)
        return True

    def _opening(self, source: Source) -> Reading[bool]:
        if not (yield from source.skip(_OPEN)):
            return False
        yield from source.skip_space()
        return (yield from source.skip(_FUNCTION))


FORMATS = (ChatGLM3(),)
