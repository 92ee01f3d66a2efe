"""Models that were never trained for tools and are told of them in words: calls as our instructions ask for them.

That is Hermes' form, as the most common one. Such models forget the tags, so that a bare or fenced object is read too.
"""

from __future__ import annotations

from chatlocal.engine.toolcalls.bare_object import begins_call_object
from chatlocal.engine.toolcalls.call_object import read_call
from chatlocal.engine.toolcalls.hermes import Hermes
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source

_FENCES = ("```json", "```")
_FENCE = "```"
_OPEN = "<tool_call>"


class Prompted(Hermes):
    """Text and tagged calls in any order; without tags a call stands at the start of the answer, or in a fence there.

    Without tags the name must be a declared tool's, or the object would be an answer in JSON.
    """

    name = "prompted"
    # Of the models that have no format of their own: ChatML's, Llama's and Mistral's, Gemma's, Phi's.
    ends = ("<|im_end|>", "<|endoftext|>", "</s>", "<end_of_turn>", "<eos>", "<|end|>")

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        yield from source.skip_space()
        fenced = yield from self._fence(source, out)
        ends = (_OPEN, *self.ends, _FENCE) if fenced else (_OPEN, *self.ends)
        while (yield from begins_call_object(source, out)) and (yield from read_call(source, out, ends)):
            yield from source.skip_space()
        if fenced:
            yield from source.skip(_FENCE)
        yield from super().read(source, out, opened)

    def _fence(self, source: Source, out: Output) -> Reading[bool]:
        """Read the opening of a fence with a call in it; False, and nothing is read, when there is none."""
        source.keep()
        fence = yield from source.next_of(_FENCES)
        if fence is not None:
            source.take(len(fence))
            yield from source.skip_space()
            if (yield from begins_call_object(source, out)):
                source.kept()
                return True
        source.rewind()
        return False


FORMATS = (Prompted(),)
