"""What the engines' measurements come to: sums, the table, and what was not as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from grammar_child import Measured, Walked
from grammar_samples import Document, Sample

Pair = tuple[Sample, Measured]


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    """One engine's sums over the schemas."""
    walks = [
        (measured, document, walked) for sample, measured in pairs for document, walked in walked_of(sample, measured)
    ]
    passed = [(measured, document) for measured, document, walked in walks if not document.valid and walked.accepted]
    valid = [(document, walked) for _, document, walked in walks if document.valid]
    return {
        **{status: sum(measured.status == status for _, measured in pairs) for status in STATUSES},
        "invalid judged": len(walks) - len(valid),
        "invalid accepted": len(passed),
        "invalid accepted, not excused": sum(not document.broken <= measured.left for measured, document in passed),
        "valid judged": len(valid),
        "valid refused": sum(not walked.accepted for _, walked in valid),
        "not walked to the end": sum(len(s.documents) - len(m.walks) for s, m in pairs if m.status == "accepted")
        + sum(bool(walked.failure) for *_, walked in walks),
        **figures(pairs),
    }


STATUSES = ("accepted", "refused", "timed out", "died")


def figures(pairs: Sequence[Pair]) -> dict[str, float | None]:
    """Times, and the share of the bytes of valid documents that were known before they came."""
    compiled = [measured.seconds * 1e3 for _, measured in pairs if measured.status == "accepted"] or [float("nan")]
    masks = [mask * 1e6 for _, measured in pairs for walked in measured.walks for mask in walked.masks] or [
        float("nan")
    ]
    known = [
        (walked.forced, sum(map(len, document.pieces)))
        for sample, measured in pairs
        for document, walked in walked_of(sample, measured)
        if walked.forced is not None
    ]
    return {
        "compile, ms, median": float(np.median(compiled)),
        "compile, ms, worst": max(compiled),
        "mask, us, median": float(np.median(masks)),
        "mask, us, p99": float(np.percentile(masks, 99)),
        "mask, us, worst": max(masks),
        "forced": sum(forced for forced, _ in known) / sum(size for _, size in known) if known else None,
    }


def walked_of(sample: Sample, measured: Measured) -> Iterator[tuple[Document, Walked]]:
    """The documents that were walked: there are fewer walks where one ran out of time."""
    return zip(sample.documents, measured.walks, strict=False)


def table(report: dict[str, Any]) -> str:
    engines = report["engines"].values()
    lines = [
        "{schemas} schemas, {valid} valid and {invalid} invalid documents; {tokenizer}; {machine}".format(**report),
        row("", report["engines"].keys(), str),
        row("", (each["version"] for each in engines), str),
    ]
    for label, keys, form in ROWS:
        lines.append(row(label.format(**report), ([each[key] for key in keys] for each in engines), form))
    lines.append(f"on the {report['common']} schemas that all accept:")
    for label, keys, form in FIGURES:
        lines.append(row("  " + label, ([each["common"][key] for key in keys] for each in engines), form))
    lines += [f"{name} is not installed" for name in report["missing"]]
    if report["unspelled"]:
        lines.append(f"{report['unspelled']} more documents cannot be spelled by this tokenizer")
    return "\n".join(lines)


def row(label: str, cells: Any, form: Callable[[Any], str]) -> str:
    return f"{label:36}" + "".join(f"{form(cell):>16}" for cell in cells)


def count(values: list[int]) -> str:
    return " of ".join(map(str, values))


def pair(values: list[int]) -> str:
    return " / ".join(map(str, values))


def number(values: list[float]) -> str:
    return f"{values[0]:,.1f}" if values[0] < 100 else f"{values[0]:,.0f}"


def share(values: list[float | None]) -> str:
    return "-" if values[0] is None else f"{values[0]:.0%}"


Row = tuple[str, tuple[str, ...], Callable[[Any], str]]
FIGURES: tuple[Row, ...] = (
    ("compile + first mask, median ms", ("compile, ms, median",), number),
    ("compile + first mask, worst ms", ("compile, ms, worst",), number),
    ("mask, median us", ("mask, us, median",), number),
    ("mask, p99 us", ("mask, us, p99",), number),
    ("mask, worst us", ("mask, us, worst",), number),
    ("bytes known to be forced", ("forced",), share),
)
ROWS: tuple[Row, ...] = (
    ("schemas accepted", ("accepted", "schemas"), count),
    ("timed out ({limit:g} s) / died", ("timed out", "died"), pair),
    ("invalid documents accepted", ("invalid accepted", "invalid judged"), count),
    ("  of these not excused", ("invalid accepted, not excused",), count),
    ("valid documents refused", ("valid refused", "valid judged"), count),
    ("documents not walked to the end", ("not walked to the end",), count),
    ("set up once for a tokenizer, s", ("set up, s",), number),
    *FIGURES,
)


def findings(name: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """One line for each thing that was not as it should be, and for the slowest."""
    for sample, measured in pairs:
        if measured.status != "accepted" or measured.detail:
            yield f"{name}: {sample.id}: {measured.status} {measured.detail}"
        for document, walked in walked_of(sample, measured):
            if walked.failure:
                yield f"{name}: {sample.id}: could not go on: {walked.failure}"
            elif document.valid and not walked.accepted:
                place = sum(map(len, document.pieces[: len(walked.masks)]))
                text = b"".join(document.pieces)
                behind, before = text[:place][-60:], text[place:][:60]
                yield f"{name}: {sample.id}: refused a valid document between {behind!r} and {before!r}"
            elif walked.accepted and not document.valid:
                broken = ", ".join(sorted(document.broken))
                excuse = "left to validation" if document.broken <= measured.left else "no excuse"
                yield f"{name}: {sample.id}: accepted an invalid document ({broken}: {excuse})"
    slow = sorted(pairs, key=lambda each: -each[1].seconds)[:3]
    yield from (f"{name}: {sample.id}: compiled in {measured.seconds * 1e3:.0f} ms" for sample, measured in slow)
    slow = sorted(pairs, key=lambda each: -slowest(each[1]))[:3]
    yield from (f"{name}: {sample.id}: a mask took {slowest(measured) * 1e6:.0f} us" for sample, measured in slow)


def slowest(measured: Measured) -> float:
    return max((mask for walked in measured.walks for mask in walked.masks), default=0.0)
