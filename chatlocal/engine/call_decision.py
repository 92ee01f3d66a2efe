"""Whether a tool should be called now, for models that were never trained for tools and never begin a call themselves.

Two things are asked of the model, both as likelihoods of texts, both without generating anything. How much likelier are
the user's words where it says that they are for having this tool used, than where it says nothing: that tells the tool
that is meant. How likely is an answer that says that the model cannot get at what is asked for: that tells requests
from talk about the same subject. benchmarks/tool_decisions.py measures the decision; its data has a half that weights
and threshold were fitted on and one that they were not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chatlocal.engine.families import Family, Prompt
from chatlocal.engine.families.prompt import Text
from chatlocal.engine.messages import ChatMessage, Tool

Score = Callable[[Sequence[int], Sequence[Sequence[int]]], list[float]]
"""Backend.score: the log-likelihood in nats of each continuation of a prompt."""

DEFAULT_THRESHOLD = 0.0
"""Calls are demanded from this score on. Fitted to the embedded model."""

# Fitted: what a nat of the refusals weighs against one for each token of the user's words, the sum of both at the
# border, and what the words alone must reach: a request for something else does not get whatever tool there is.
_REFUSAL_WEIGHT = 0.25
_BORDER = -4.5
_LEAST_FIT = 0.3
# What a tool must score beyond the threshold once the result of another one is there: fitted too, since then nobody has
# asked anew, and a wrong call costs a round.
_AGAIN = 0.15
# So many tokens that say nothing are counted to the user's: a word or two say little for a tool.
_SILENT = 3
_REFUSALS = ("I'm sorry, but I don't have access to your", "I don't have access to real-time data")
_SAYS = "the user says:"
# Of a longer message the beginning and the end are read, this many characters of each.
_READ = 200


def wanted_tools(
    messages: Sequence[ChatMessage],
    tools: Sequence[Tool],
    *,
    family: Family,
    tokenizer: Any,
    score: Score,
    threshold: float = DEFAULT_THRESHOLD,
) -> tuple[Tool, ...]:
    """The tools of which one should be called now; empty when the answer should be text.

    It is about the last user turn alone. A tool that was called and answered since then is not wanted again, so that
    every loop of calls and results ends. Costs a short forward pass for each tool and three more.
    """
    candidates = _not_answered(messages, tools)
    text = _last_words(messages)
    if not candidates or not text:
        return ()
    scores = call_scores(text, candidates, family=family, tokenizer=tokenizer, score=score)
    best = max(range(len(candidates)), key=scores.__getitem__)
    border = threshold if len(candidates) == len(tools) else threshold + _AGAIN
    # The best one alone: between tools these models choose worse when they write the call.
    return (candidates[best],) if scores[best] >= border else ()


def best_tool(
    messages: Sequence[ChatMessage], tools: Sequence[Tool], *, family: Family, tokenizer: Any, score: Score
) -> Tool:
    """The tool that is meant most likely, where a call of one of them is demanded."""
    text = _last_words(messages)
    if len(tools) == 1 or not text:
        return tools[0]
    scores = call_scores(text, tools, family=family, tokenizer=tokenizer, score=score)
    return tools[scores.index(max(scores))]


def call_scores(text: str, tools: Sequence[Tool], *, family: Family, tokenizer: Any, score: Score) -> tuple[float, ...]:
    """How much each tool is wanted by a user who says `text`: above 0 rather than not, with the embedded model."""
    asked = family.render([ChatMessage("user", text)]).ids(tokenizer)
    refused = score(asked, [_ids(refusal, tokenizer) for refusal in _REFUSALS])
    need = _REFUSAL_WEIGHT * sum(refused) / len(refused) - _BORDER
    plain = _likelihood(_SAYS.capitalize(), text, tokenizer, score)
    fits = [_likelihood(_context(tool), text, tokenizer, score) - plain for tool in tools]
    return tuple(min(fit + need, fit - _LEAST_FIT) for fit in fits)


def _context(tool: Tool) -> str:
    # Its first paragraph: what functions' documentation says further is about arguments.
    about = " ".join(tool.description.strip().partition("\n\n")[0].split()).rstrip(".。")
    described = f"{tool.name} ({about})" if about else tool.name
    return f"The assistant has a tool: {described}. To have it used, {_SAYS}"


def _likelihood(context: str, text: str, tokenizer: Any, score: Score) -> float:
    """The log-likelihood of a text behind a context, in nats a token."""
    before, whole = (_ids(part, tokenizer, begins=True) for part in (context, f"{context} {text}"))
    shared = next((place for place, pair in enumerate(zip(before, whole, strict=False)) if pair[0] != pair[1]), None)
    prompt = before if shared is None else before[:shared]
    words = whole[len(prompt) :]
    return score(prompt, [words])[0] / (len(words) + _SILENT)


def _ids(text: str, tokenizer: Any, begins: bool = False) -> tuple[int, ...]:
    return Prompt((Text(text),), begins=begins).ids(tokenizer)


def _last_words(messages: Sequence[ChatMessage]) -> str:
    """The text of the last user turn, "" when there is none."""
    content = next((turn.content for turn in reversed(messages) if turn.role == "user"), None)
    parts = (content,) if isinstance(content, str) else content or ()
    text = "".join(part for part in parts if isinstance(part, str)).strip()
    return text if len(text) <= 2 * _READ else f"{text[:_READ]} {text[-_READ:]}"


def _not_answered(messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools without those that were called and answered since the last user turn."""
    called: dict[str, str] = {}
    answered: set[str | None] = set()
    for turn in messages:
        if turn.role == "user":
            called, answered = {}, set()
        called |= {call.id: call.name for call in turn.tool_calls}
        if turn.role == "tool":
            answered |= {called.get(turn.tool_call_id or ""), turn.name}
    return tuple(tool for tool in tools if tool.name not in answered)
