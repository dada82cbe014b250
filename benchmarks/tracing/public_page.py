"""The table of traced against published figures, written into docs/tracing.md from truth/traced/public.jsonl.

python benchmarks/tracing/public_page.py [--check]      (--check: end with 1 when the page is not current)
"""

import sys
from collections import defaultdict

from public.outcomes import ROOT, outcomes
from public.score import Point, Share, points, refused, shares
from public.words import EXPLAINED

PAGE = ROOT / "docs" / "tracing.md"
BEGIN, END = "<!-- public: begin, written by benchmarks/tracing/public_page.py -->", "<!-- public: end -->"
WORST = 20


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is current."""
    before = PAGE.read_text()
    head, rest = before.split(BEGIN)
    after = head + BEGIN + "\n" + section() + END + rest.split(END)[1]
    if "--check" in arguments:
        return int(after != before)
    PAGE.write_text(after)
    return 0


def section() -> str:
    """The shares, the worst rows with what is known of them, and what is not executed."""
    found = points(ROOT / "truth", outcomes())
    return "\n".join([*share_table(found), "", *worst_table(found), "", *refusals(), ""])


def share_table(found: list[Point]) -> list[str]:
    """Rows within 1 % and 3 %, all together and by source."""
    lines = ["| source | counter | rows | median | within 1 % | within 3 % |", "|---|---|---|---|---|---|"]
    return lines + [_share_line(share) for share in shares(found)]


def _share_line(share: Share) -> str:
    within = " | ".join(f"{100 * part:.0f} %" for part in (share.within_1, share.within_3))
    return f"| {share.source} | {share.measure} | {share.rows} | {100 * share.median:.2f} % | {within} |"


def worst_table(found: list[Point]) -> list[str]:
    """Every row off by more than 1 %, the worst first, with its mechanism where it is known."""
    far = sorted((point for point in found if abs(point.error) > 0.01), key=lambda point: -abs(point.error))
    lines = ["| row off by more than 1 % | counter | published | traced | error | why |", "|---|---|---|---|---|---|"]
    for point in far[:WORST]:
        sizes = f"{point.measured_gib:.2f} GiB | {point.traced_gib:.2f} GiB | {100 * point.error:+.1f} %"
        lines.append(f"| {point.id} | {point.measure} | {sizes} | {EXPLAINED.get(point.id, '')} |")
    return lines


def refusals() -> list[str]:
    """The rows with an allocator's counter that are not executed, by reason."""
    why = defaultdict[str, list[str]](list)
    for row, reason in refused(ROOT / "truth", outcomes()):
        why[reason].append(row)
    ranked = sorted(why.items(), key=lambda item: -len(item[1]))
    lines = ["| rows not executed | why | for example |", "|---|---|---|"]
    return lines + [f"| {len(rows)} | {reason} | {rows[0]} |" for reason, rows in ranked]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
