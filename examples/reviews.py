"""What a restaurant review says about each aspect, from a Pydantic class, in Chinese.

    python examples/reviews.py
    python examples/reviews.py --model path/or/hub-id

Each record has the aspect, the words that judge it, the sentiment and the part of the review. `from_pydantic` makes
Kor's nodes of the class and a validator that gives instances back. First the model is only asked, as Kor does it; then
it is held to the grammar of the class; then it is shown two worked reviews besides.
"""

from __future__ import annotations

import argparse
import enum
from typing import Any

from pydantic import BaseModel, Field

from chatlocal import ChatLocal
from chatlocal.extractors import create_extraction_chain, from_pydantic


class Sentiment(enum.Enum):
    positive = "positive"
    negative = "negative"
    neutral = "neutral"


class Dianping(BaseModel):
    aspect: str = Field(description="评价属性")
    sentiment_word: str = Field(description="对评价属性的评价词，从原文中抽取")
    sentiment: Sentiment | None = Field(description="对评价属性的情感，positive、negative、neutral中的一个")
    reference: str = Field(description="评价的原文")


REVIEW = "整体来说，环境可以，味道的话也还不错，但价格有一点小贵。"
EXAMPLES: list[tuple[str, list[dict[str, str]]]] = [
    (
        "味道真不错，下次还来！",
        [{"aspect": "味道", "sentiment_word": "真不错", "sentiment": "positive", "reference": "味道真不错"}],
    ),
    (
        "服务很慢，不过装修挺漂亮。",
        [
            {"aspect": "服务", "sentiment_word": "很慢", "sentiment": "negative", "reference": "服务很慢"},
            {"aspect": "装修", "sentiment_word": "挺漂亮", "sentiment": "positive", "reference": "装修挺漂亮"},
        ],
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    parser.add_argument("--review", default=REVIEW)
    given = parser.parse_args()
    llm = ChatLocal(model=given.model, temperature=0, max_tokens=250)

    print(f"Review  {given.review}")
    show("asked", llm, given.review, examples=[], constrain=False)
    show("held to the grammar", llm, given.review, examples=[], constrain=True)
    show("with examples", llm, given.review, examples=EXAMPLES, constrain=True)


def show(title: str, llm: ChatLocal, review: str, *, examples: Any, constrain: bool) -> None:
    schema, validator = from_pydantic(Dianping, description="对评价的解析结果", examples=examples, many=True)
    chain = create_extraction_chain(
        llm, schema, encoder_or_encoder_class="json", validator=validator, constrain=constrain
    )
    found = chain.invoke(review)
    print(f"\n# {title}")
    for record in found["validated_data"] or ():
        sentiment = record.sentiment.value if record.sentiment else "-"
        print(f"{record.aspect}  {record.sentiment_word}  {sentiment}  {record.reference}")
    for error in found["errors"]:
        print(f"error: {str(error)[:160]}")


if __name__ == "__main__":
    main()
