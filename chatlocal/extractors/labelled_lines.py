"""A text with its values in labelled lines, as plain text that a model goes on with: what values are chosen by.

    Text: The green tent sleeps four people and weighs 3.2 kg.
    Product: tent
    Color: green
    Brand: not given

Models that were never trained for JSON know such lines best. The examples are the same for every schema, so that an
engine reads them once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.constraints.word_borders import is_unspaced

_LONGEST_LABEL = 80


@dataclass(frozen=True)
class Wording:
    """The words of one language. `space` stands between a label and its value, `comma` between two values."""

    text: str
    colon: str
    space: str
    comma: str
    absent: str
    true: str
    false: str
    every: str
    examples: str
    lists: str

    def label(self, name: str) -> str:
        """What a line begins with."""
        return f"{name[:1].upper()}{name[1:]}{self.colon}"

    def line(self, name: str, words: str) -> str:
        """A line that says so of a field."""
        return f"{self.label(name)}{self.space}{words}\n"


def wording_of(text: str) -> Wording:
    """Chinese for a text that has as many Chinese characters as words of another script, English for others."""
    unspaced = sum(map(is_unspaced, text))
    words = len(re.findall(r"[^\W\d_]+", "".join(" " if is_unspaced(each) else each for each in text)))
    return CHINESE if unspaced > words else ENGLISH


def label_of(name: str, schema: Mapping[str, Any]) -> str:
    """What a field is called: the first sentence of its description, else its name in words."""
    described = str(schema.get("description") or "").strip()
    first = re.split(r"(?<=[.。!?])\s|\n", described)[0].rstrip(".。:： ")
    if first and len(first) <= _LONGEST_LABEL:
        return first
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").strip() or name


ENGLISH = Wording(
    text="Text:",
    colon=":",
    space=" ",
    comma=",",
    absent="not given",
    true="yes",
    false="no",
    every=" (all)",
    examples="""Text: My uncle Bill worked for years on the Aurora, a ship built in 1962, and later on the Petrel. \
Its captain was Lena Ruud.
Ships (all): Aurora, Petrel
Year it was built: 1962
Captain: Lena Ruud
Length in meters: not given
Owner: not given

Text: On Monday Carla Nunez, head of repairs, sold two old vans to Petrel Ltd. for 7,500 dollars in cash. \
You can reach her at carla@vans.example.
Seller: Carla Nunez
Job: head of repairs
Buyer: Petrel Ltd.
What was sold: old vans
Number sold: 2
Paid in cash: yes
Phone: not given
Email: carla@vans.example
Weekday: Monday

Text: The tent sleeps four people and weighs 3.2 kg. It comes in green, grey and red. It leaked in the first night.
Product: tent
Colors: green, grey, red
Brand: not given
Weight: 3.2
Waterproof: no
Problem: leaked in the first night
""",
    lists="""Text: My uncle Bill worked for years on the Aurora, a ship built in 1962, and later on the \
Petrel and the Swift.
Name of the ship (all): Aurora, Petrel, Swift

Text: Since April Carla Nunez works full time in sales, Ahmed Said part time in the kitchen, \
Ines Roy in repairs and Bo Lindahl in the office. Their boss is Mr. Lee.
Employee (all): Carla Nunez, Ahmed Said, Ines Roy, Bo Lindahl

Text: The tent weighs 3.2 kg and costs 180 dollars. It comes in green, grey and red.
Colors (all): green, grey, red

Text: Rice is sold at 2.10, sugar at 1.45; oil costs 6.80 and salt 0.90.
Article (all): Rice, sugar, oil, salt

Text: The house stands on a hill. It was built in 1902 and belongs to Ann Cole.
Pets (all): not given

Text: On Monday it sails to Genoa at 08:00. On Friday it sails to Malta at 11:30.
Harbour (all): Genoa, Malta
""",
)

CHINESE = Wording(
    text="文本：",
    colon="：",
    space="",
    comma="、",
    absent="无",
    true="是",
    false="否",
    every="（全部）",
    examples="""文本：我叔叔在晨光号上工作了很多年，这艘船是1962年造的，后来又去了海燕号。晨光号的船长是姚兰。
船名（全部）：晨光号、海燕号
造船年份：1962
船长：姚兰
长度：无
船主：无

文本：星期一，维修部的刘敏把两辆旧车卖给了海燕公司，一共7500元，付的现金。
卖家：刘敏
部门：维修部
买家：海燕公司
商品：旧车
数量：2
付现金：是
电话：无
星期几：星期一

文本：帐篷可以睡四个人，重3.2公斤，有绿色、灰色和红色，第一晚就漏雨了。
产品：帐篷
颜色：绿色、灰色、红色
品牌：无
重量：3.2
防水：否
问题：第一晚就漏雨
""",
    lists="""文本：我叔叔在晨光号上工作了很多年，这艘船是1962年造的，后来又去了海燕号和白鸥号。
船名（全部）：晨光号、海燕号、白鸥号

文本：刘敏在销售部全职工作；马超在厨房兼职；罗英在维修部，每周三天；石磊在办公室。他们的上司是陈先生。
员工（全部）：刘敏、马超、罗英、石磊

文本：帐篷重3.2公斤，售价180元，有绿色、灰色和红色。
颜色（全部）：绿色、灰色、红色

文本：白糖每斤4元，食盐每斤2元，香油每斤21元。
商品（全部）：白糖、食盐、香油

文本：这座房子建在山坡上，1902年完工，归唐安所有。
宠物（全部）：无

文本：星期一08:00开往天津，星期五11:30开往大连。
港口（全部）：天津、大连
""",
)
