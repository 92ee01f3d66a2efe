"""A translation as a record, in Kor's way of writing a schema.

    python examples/translation.py
    python examples/translation.py --model path/or/hub-id

The schema has one field, the Chinese translation of any text. Kor puts it into the prompt and hopes; with
`constrain=True` a model in this process cannot write anything that is not the record, in JSON in <json> tags. The
embedded model is small and knows little Chinese: give it a larger model for a good translation.
"""

from __future__ import annotations

import argparse

from chatlocal import ChatLocal
from chatlocal.extractors import Object, Text, create_extraction_chain

SCHEMA = Object(
    id="translate_result",
    description="任意文本的翻译结果。",
    attributes=[
        Text(
            id="chinese",
            description="中文翻译结果",
            examples=[
                ("Good morning!", "早上好！"),
                ("The weather is nice today.", "今天天气很好。"),
            ],
        )
    ],
)
TEXT = (
    "We've trained a model, based on GPT-4, called CriticGPT to catch errors in ChatGPT's code output. We found that"
    " when people get help from CriticGPT to review ChatGPT code they outperform those without help 60% of the time."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    parser.add_argument("--text", default=TEXT, help="what to translate")
    given = parser.parse_args()
    llm = ChatLocal(model=given.model, temperature=0, max_tokens=200)

    chain = create_extraction_chain(llm, SCHEMA, encoder_or_encoder_class="json", constrain=True)
    print("# Prompt")
    print(chain.prompt.format_prompt(text="[user input]").to_string())
    print("\n# Result")
    found = chain.invoke(given.text)
    print("raw    ", found["raw"])
    print("data   ", found["data"])
    print("errors ", found["errors"])


if __name__ == "__main__":
    main()
