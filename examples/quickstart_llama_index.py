"""The first steps with LlamaIndex: complete, chat, stream a chat, get a record, do it in an event loop.

python examples/quickstart_llama_index.py
python examples/quickstart_llama_index.py --model path/or/hub-id
"""

from __future__ import annotations

import argparse
import asyncio

from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from pydantic import BaseModel

from chatlocal import LocalLLM


class Person(BaseModel):
    name: str
    age: int
    city: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    llm = LocalLLM(model=parser.parse_args().model, max_tokens=60)

    print("# complete")
    print(llm.complete("What is the capital of France? Answer in one sentence."))

    print("\n# chat")
    talk = [
        ChatMessage("What is the capital of Spain?", role="user"),
        ChatMessage("The capital of Spain is Madrid.", role="assistant"),
        ChatMessage("And the capital of Portugal?", role="user"),
    ]
    response = llm.chat(talk)
    print(response.message.content)
    print(response.raw["usage"])

    print("\n# stream_chat")
    for part in llm.stream_chat([ChatMessage("Write one sentence about the sea.", role="user")]):
        print(part.delta, end="", flush=True)
    print()

    print("\n# structured_predict: always a Person, if not always the right one")
    prompt = PromptTemplate("{text}")
    text = "Maria is 34 years old and works in a bank in Lisbon."
    print(llm.structured_predict(Person, prompt, text=text))

    print("\n# async")
    asyncio.run(ask_two(llm))


async def ask_two(llm: LocalLLM) -> None:
    questions = ("How many days has a week? Answer in one sentence.", "Name three fruits.")
    for reply in await asyncio.gather(*(llm.acomplete(question) for question in questions)):
        print(reply)


if __name__ == "__main__":
    main()
