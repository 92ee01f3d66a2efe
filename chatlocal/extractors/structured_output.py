"""`create_structured_output_chain` as LangChain had it until 2025, without langchain-classic.

It asks the model through `with_structured_output`, so it works with any LangChain chat model that has this; how the
object is enforced (a grammar, a tool call) is the model's business.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import validator_for
from langchain_core.language_models import BaseLanguageModel
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableGenerator,
    RunnableLambda,
    RunnablePassthrough,
    RunnableSequence,
)
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.utils.function_calling import convert_to_json_schema

from chatlocal.engine.errors import OutputInvalid, UnsupportedInput


class StructuredOutputChain(RunnableBindingBase[Any, dict[str, Any]]):
    """From the prompt's input to a dict of that input and the object, under the chain's output key.

    The input is a dict of the prompt's variables, or the value itself where the prompt has one variable. `stream`
    gives such dicts as the object grows; only the last one is checked against the schema, and `invoke` returns it.
    """

    output_key: str
    answer: Runnable[Any, Any]
    """From the prompt's variables to the object."""
    read: Callable[[Any], dict[str, Any]]
    check: Callable[[Iterator[dict[str, Any]]], Iterator[dict[str, Any]]]

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[dict[str, Any]]:
        """Closing this ends the request. The steps of `bound` would first read the rest of the answer, to trace it."""
        variables = self.read(input)
        growing = self.answer.stream(variables, self._merge_configs(config), **kwargs)
        with closing(growing):  # type: ignore[type-var]
            yield from self.check(itertools.chain([variables], ({self.output_key: found} for found in growing)))

    def run(self, input: Any = None, /, **variables: Any) -> Any:
        """The object alone. The input as in `invoke`, or the prompt's variables by name."""
        if (input is None) == (not variables):
            raise UnsupportedInput("run takes one input, or the prompt's variables by name, and not both.")
        return self.invoke(variables or input)[self.output_key]


def create_structured_output_chain(
    output_schema: dict[str, Any] | type,
    llm: BaseLanguageModel[Any],
    prompt: BasePromptTemplate[Any],
    *,
    output_key: str = "function",
    callbacks: Any = None,
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    **unsupported: Any,
) -> StructuredOutputChain:
    """A chain that fills the prompt, asks the model and returns an object of `output_schema`.

    `output_schema` is a Pydantic class or a TypedDict (the object is an instance) or a JSON Schema (the object is a
    dict). `callbacks`, `tags` and `metadata` go into every run. What else the chain of langchain-classic took
    (`output_parser`, `memory`, `verbose`, ...) is UnsupportedInput, and so is a model without with_structured_output.
    A run raises OutputInvalid when the answer is no such object.

        chain = create_structured_output_chain(Dog, ChatLocal(), prompt)
        chain.run("Rex is a black terrier.")               # Dog(name='Rex', color='black')
        chain.invoke({"input": "Rex is a black terrier."})  # {"input": "Rex ...", "function": Dog(...)}
    """
    if unsupported:
        raise UnsupportedInput(
            f"create_structured_output_chain does not take {', '.join(sorted(unsupported))}: the model's"
            " with_structured_output reads the answer, settings of the model are set on the model, and a step of your"
            " own goes behind the chain with `|`."
        )
    if output_key in prompt.input_variables:
        raise UnsupportedInput(f"output_key {output_key!r} is a variable of the prompt: choose another name.")
    read = _Variables(prompt.input_variables)
    answer = prompt | _structured(llm, output_schema)
    whole = _Whole(output_key, output_schema)
    steps: RunnableSequence[Any, dict[str, Any]] = RunnableSequence(
        RunnableLambda(read, name="read_input"),
        RunnablePassthrough.assign(**{output_key: answer}),
        whole.runnable(),
        name="structured_output_chain",
    )
    config = RunnableConfig(tags=list(tags), metadata=dict(metadata or {}), callbacks=callbacks)
    return StructuredOutputChain(
        bound=steps, output_key=output_key, config=config, answer=answer, read=read, check=whole.check
    )


def _structured(llm: BaseLanguageModel[Any], schema: dict[str, Any] | type) -> Runnable[Any, Any]:
    # LangChain's readers of schemas want a name, which a plain JSON Schema need not have.
    named = {"title": "output", **schema} if isinstance(schema, dict) else schema
    try:
        return llm.with_structured_output(named)
    except (AttributeError, NotImplementedError) as error:
        raise UnsupportedInput(
            f"{type(llm).__name__} has no with_structured_output: choose a chat model that has, such as ChatLocal."
        ) from error


class _Variables:
    """Makes the chain's input a dict of the prompt's variables."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def __call__(self, input: Any) -> dict[str, Any]:
        if isinstance(input, dict):
            return dict(input)
        if len(self._names) != 1:
            raise UnsupportedInput(f"The prompt has the variables {self._names}: give a dict of them.")
        return {self._names[0]: input}


class _Whole:
    """Turns the pieces that a stream of the chain is made of into whole outputs, and checks the last one."""

    def __init__(self, output_key: str, schema: dict[str, Any] | type) -> None:
        self._key = output_key
        self._schema = schema
        described = schema if isinstance(schema, dict) else convert_to_json_schema(schema)
        validator = validator_for(described)
        try:
            validator.check_schema(described)
        except SchemaError as error:
            raise UnsupportedInput(f"output_schema is not a JSON Schema: {error.message}") from error
        self._validator = validator(described)

    def runnable(self) -> RunnableGenerator[Any, dict[str, Any]]:
        return RunnableGenerator(self.check, self._apass, name="check_output")

    def check(self, pieces: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        whole: dict[str, Any] = {}
        for piece in pieces:
            whole = {**whole, **piece}
            if piece.get(self._key) is not None:
                yield whole
        self._judge(whole)

    async def _apass(self, pieces: AsyncIterator[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        whole: dict[str, Any] = {}
        async for piece in pieces:
            whole = {**whole, **piece}
            if piece.get(self._key) is not None:
                yield whole
        self._judge(whole)

    def _judge(self, whole: dict[str, Any]) -> None:
        found = whole.get(self._key)
        if found is None:
            raise OutputInvalid("The model answered without the object that was asked for.", raw="")
        if isinstance(found, dict):
            error = best_match(self._validator.iter_errors(found))
            if error is not None:
                raw = json.dumps(found, ensure_ascii=False)
                raise OutputInvalid(f"The answer does not fit the schema at {error.json_path}: {error.message}", raw)
        elif isinstance(self._schema, type) and not isinstance(found, self._schema):
            raise OutputInvalid(f"The answer is a {type(found).__name__}, not a {self._schema.__name__}.", repr(found))
