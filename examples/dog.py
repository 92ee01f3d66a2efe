"""A record out of a sentence, with LangChain and a model in this process.

    python examples/dog.py
    python examples/dog.py --model path/or/hub-id

`create_structured_output_chain` is the chain that tutorials of 2023 and 2024 use with `ChatOpenAI`. Here it runs with
`ChatLocal` in that place: once from langchain-classic, unchanged, and once from chatlocal itself, which can stream too.
The model may pick a wrong name, but never anything that is not a Dog.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from typing import Any

from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel, Field

from chatlocal import ChatLocal
from chatlocal.extractors import create_structured_output_chain


class Dog(BaseModel):
    """Identifying information about a dog."""

    name: str = Field(description="The dog's name")
    color: str = Field(description="The dog's color")


TEXT = "John had a dog named Harry, who was a brown beagle that loved chicken"
PROMPT = ChatPromptTemplate.from_messages(
    [
        (
            "system",
            "You are an algorithm for extracting information into structured formats, and respond with function call.",
        ),
        ("user", "extract information from the following input: {input}"),
    ]
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    llm = ChatLocal(model=parser.parse_args().model, temperature=0)  # the likeliest answer, the same every time

    loaded = llm.engine.describe()  # loads the model; the first time ever that takes a minute
    print(f"Model  {loaded['model']} ({loaded['device']}, {loaded['dtype']})")
    print(f"Text   {TEXT}")
    print("Asked  a Dog, which has a name and a color")

    print("\nThe chain of chatlocal, which streams:")
    stream_dog(llm)

    print("\nThe chain of langchain-classic:")
    if importlib.util.find_spec("langchain_classic"):
        run_classic_chain(llm)
    else:
        print("  not installed: pip install langchain-classic")


def stream_dog(llm: ChatLocal) -> None:
    """Show the record while it grows. With the schema for the class it grows as a dict: half a Dog is no Dog."""
    chain = create_structured_output_chain(Dog.model_json_schema(), llm, PROMPT)
    clock = Clock()
    record = {}
    for growing in chain.stream(TEXT, {"callbacks": [clock]}):
        record = growing["function"]
        print(f"  {record}", flush=True)
    print(f"  {Dog(**record)}")
    clock.show()


def run_classic_chain(llm: ChatLocal) -> None:
    """As the tutorials have it."""
    from langchain_classic.chains.openai_functions import create_structured_output_chain

    clock = Clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # langchain-classic says that all of it is old
        chain = create_structured_output_chain(Dog, llm, PROMPT)
        output = chain.run(TEXT, callbacks=[clock])
    print(f"  {output}")
    clock.show()


class Clock(UsageMetadataCallbackHandler):
    """Counts tokens and seconds of one run."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.perf_counter()
        self._first: float | None = None

    def on_llm_new_token(self, token: str, **_: Any) -> None:
        self._first = self._first or time.perf_counter()

    def show(self) -> None:
        now = time.perf_counter()
        [usage] = self.usage_metadata.values()
        read, written = usage["input_tokens"], usage["output_tokens"]
        if self._first is None:  # not streamed
            print(f"  ({read} tokens read and {written} written in {now - self._began:.1f} s)")
            return
        reading, writing = self._first - self._began, now - self._first
        speed = f"{(written - 1) / writing:.0f} tokens/s"
        print(f"  ({read} tokens read in {reading:.1f} s, {written} written in {writing:.1f} s, {speed})")


if __name__ == "__main__":
    main()
