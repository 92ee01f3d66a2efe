"""Numbers that a double cannot hold have no place under a grammar of JSON."""

from __future__ import annotations

import pytest

from chatlocal.engine.errors import UnsupportedInput
from tests.engine.constraints.test_json_schema import TOKENIZER, compiled, expect


def test_numbers_stay_within_double_precision():
    expect(
        compiled({"type": "array", "items": {"type": "number"}}),
        ["[1e308]", "[1.7976931348623157e308]", "[-1E+0005, 1e-400, 12e3]", "[" + "9" * 308 + "]"],
        ["[1e309]", "[-1.8E+308]", "[10e308]", "[" + "9" * 309 + "]", "[0, 1e99999]"],
    )
    expect(compiled({"type": "string"}), ['"1e999"', '"\\"1e999"'], [])


def test_the_digit_that_would_leave_double_precision_is_barred():
    state = compiled({"type": "number"}).start()
    digits = [TOKENIZER.convert_tokens_to_ids(str(digit)) for digit in range(10)]
    (letter,) = TOKENIZER.encode("e", add_special_tokens=False)
    for id in [digits[2], letter, digits[3], digits[0]]:
        state.advance(id)
    assert [digit for digit, id in enumerate(digits) if state.mask()[id]] == list(range(8))
    with pytest.raises(UnsupportedInput):
        state.advance(digits[8])
    state.advance(digits[7])
    assert state.may_end
    assert not any(state.mask()[id] for id in digits)
    state.rollback(2)
    assert all(state.mask()[id] for id in digits)
