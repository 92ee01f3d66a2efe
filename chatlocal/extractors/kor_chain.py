"""`create_extraction_chain`: Kor's chain from a text to data, for any LangChain model."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import patch_config

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors.encoders import JSONEncoder, ParseError, encoder_for
from chatlocal.extractors.kor_answer import KorExtraction, read_answer
from chatlocal.extractors.kor_prompt import ExtractionPrompt, format_text, read_template
from chatlocal.extractors.nodes import Object, as_object
from chatlocal.extractors.pydantic_nodes import PydanticValidator
from chatlocal.extractors.type_descriptions import type_description

_CUT = "The answer reached max_tokens: its last values may be incomplete, or only there to end it. Raise max_tokens."


class ExtractionChain(Runnable[Any, KorExtraction]):
    """From a text, or a dict of {"text": ...}, to a dict of data, raw, errors and validated_data.

    `prompt` makes the prompts, `llm` answers them. What a model writes never raises; what it raises itself does.
    """

    def __init__(
        self,
        prompt: ExtractionPrompt,
        llm: Runnable[Any, Any],
        node: Object,
        encoder: Any,
        validator: Any,
        constrained: bool,
    ) -> None:
        self.prompt = prompt
        self.llm = llm
        self.node = node
        self.encoder = encoder
        self.validator = validator
        self.constrained = constrained

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> KorExtraction:
        return self._call_with_config(self._extract, input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> KorExtraction:
        return await self._acall_with_config(self._aextract, input, config, **kwargs)

    def run(self, text: Any) -> KorExtraction:
        """`invoke`, by the name that chains had before."""
        return self.invoke(text)

    def parse(self, raw: str) -> KorExtraction:
        """What `invoke` makes of an answer."""
        return read_answer(raw, self.node, self.encoder, self.validator)

    def _read(self, answer: Any, asked: Any) -> KorExtraction:
        """What a grammar held is the answer and nothing else; another model may repeat its prompt."""
        raw = answer if isinstance(answer, str) else str(answer.text)
        found = read_answer(raw, self.node, self.encoder, self.validator, None if self.constrained else asked)
        metadata = getattr(answer, "response_metadata", None) or {}
        if metadata.get("finish_reason") == "length" and self._may_be_cut(raw, found):
            found["errors"].append(ParseError(_CUT, raw))
        return found

    def _may_be_cut(self, raw: str, found: KorExtraction) -> bool:
        """A grammar brings an answer to an end when its tokens run out; of others JSON alone tells where it is cut."""
        if isinstance(self.encoder, JSONEncoder):
            return self.constrained or self.encoder.ends_open(raw)
        return self.constrained or bool(found["errors"]) or not raw.endswith(("\n", ">"))

    def _extract(
        self, input: Any, run_manager: CallbackManagerForChainRun, config: RunnableConfig, **kwargs: Any
    ) -> KorExtraction:
        below = patch_config(config, callbacks=run_manager.get_child())
        asked: Any = self.prompt.invoke(input, below)
        return self._read(self.llm.invoke(asked, below, **kwargs), asked)

    async def _aextract(
        self, input: Any, run_manager: AsyncCallbackManagerForChainRun, config: RunnableConfig, **kwargs: Any
    ) -> KorExtraction:
        below = patch_config(config, callbacks=run_manager.get_child())
        asked: Any = await self.prompt.ainvoke(input, below)
        return self._read(await self.llm.ainvoke(asked, below, **kwargs), asked)


def create_extraction_chain(
    llm: Any,
    node: Any,
    *,
    encoder_or_encoder_class: Any = "csv",
    type_descriptor: Any = "typescript",
    validator: Any = None,
    input_formatter: Any = None,
    instruction_template: Any = None,
    constrain: bool = False,
    verbose: None = None,
    **encoder_kwargs: Any,
) -> ExtractionChain:
    """The chain for an Object, ours or Kor's; the arguments are those of Kor 3.

    `encoder_or_encoder_class`: "csv" (attributes of one value each), "json" or "xml", or an encoder of your own;
    `encoder_kwargs` are its settings, such as use_tags. `type_descriptor`: "typescript", "bullet_point", or a function
    of the node. `validator`: what `from_pydantic` gives, or an object with clean_data. `input_formatter`: None,
    "triple_quotes" or "text_prefix" for long texts, or a function. `instruction_template`: other instructions, with
    places for {type_description} and {format_instructions}. `constrain`: a ChatLocal writes nothing but the encoding of
    such an Object; with JSON and the validator of a class also nothing that the schema of the class refuses.
    UnsupportedInput for what these do not take, and for constrain with another model; UnsupportedNode where the
    encoding has no way to write the node.
    """
    if verbose is not None:
        raise UnsupportedInput("verbose is gone: langchain_core.globals.set_debug(True) shows every call.")
    if not isinstance(llm, Runnable):
        raise UnsupportedInput(f"llm is a LangChain model, such as ChatLocal(), got {llm!r:.80}.")
    if validator is not None and not callable(getattr(validator, "clean_data", None)):
        raise UnsupportedInput(
            f"validator is an object with clean_data, as from_pydantic gives it, got {validator!r:.80}."
        )
    read = as_object(node)
    encoder = encoder_for(encoder_or_encoder_class, read, **encoder_kwargs)
    prompt = ExtractionPrompt(
        input_variables=["text"],
        encoder=encoder,
        node=read,
        type_descriptor=type_descriptor,
        input_formatter=input_formatter,
        instruction_template=read_template(instruction_template),
    )
    format_text("", input_formatter)  # wrong ones are told of now, and not at the first text
    if hasattr(type_descriptor, "describe"):  # one of Kor's visits the nodes that Kor made
        described = type_description(type_descriptor, node)
        prompt.type_descriptor = lambda _: described
    else:
        type_description(type_descriptor, read)
    asked: Any = _constrained(llm, encoder, validator) if constrain else llm
    return ExtractionChain(prompt, asked, read, encoder, validator, constrain)


def _constrained(llm: Any, encoder: Any, validator: Any) -> Any:
    """The model, held to the grammar of the encoding."""
    inner = llm
    while hasattr(inner, "bound"):
        inner = inner.bound
    if not isinstance(getattr(type(inner), "engine", None), property) or getattr(inner, "_llm_type", "") != "chatlocal":
        raise UnsupportedInput(
            f"constrain=True takes a ChatLocal, and {type(inner).__name__} cannot be held to a grammar: leave it out."
        )
    if isinstance(encoder, JSONEncoder) and isinstance(validator, PydanticValidator):
        encoder.record_schema = validator.record_schema()
    return llm.bind(response_format=encoder.spec())
