"""Is the program found that a response means? Forms of response by kinds of problem, graded in the sandbox.

    python -m benchmarks.extraction [--json FILE] [--verbose]

Each form (`tests/support/response_forms.py`) is filled with a right program, beside a wrong draft where it has one, and
with a wrong program beside a right draft. A line each: how many of its right answers pass, and of its wrong ones.
Exit code 1 where fewer than .99 of the right answers pass, or a wrong one does.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from raypoly.core.config import ScorerConfig
from raypoly.data.formats import program_of
from raypoly.verifier import LocalPool
from raypoly.verifier.code_extraction import extract_code
from tests.support.response_forms import FORMS, KINDS, SAMPLES

LEAST = 0.99


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the counts")
    parser.add_argument("--verbose", action="store_true", help="print what was taken for each failure")
    options = parser.parse_args()
    tried = [
        (form, sample, is_right, form.response(sample, *pair))
        for form in FORMS
        for sample in SAMPLES
        if sample.kind in form.kinds
        for is_right, pair in ((True, (sample.right, sample.wrong)), (False, (sample.wrong, sample.right)))
    ]
    problems = {sample.name: sample.problem for sample in SAMPLES}
    found = [(problems[sample.name], extract_code(problems[sample.name], text)) for _, sample, _, text in tried]
    codes = [(problem, None if code is None else program_of(problem, code)) for problem, code in found]
    with LocalPool(ScorerConfig(workers=2)) as pool:
        verdicts = list(pool.score(codes))
    counts: Counter[tuple[str, str, bool, bool]] = Counter()
    for (form, sample, is_right, text), (_, code), verdict in zip(tried, codes, verdicts, strict=True):
        counts[form.name, sample.kind, is_right, verdict.passed] += 1
        if options.verbose and is_right != verdict.passed:
            print(f"--- {form.name}, {sample.name}: {verdict.detail}\n{text}\n--- taken:\n{code}\n")
    print(
        f"{len(FORMS)} forms, {len(tried):,} responses: right answers that pass\n{'':32}"
        + "".join(f"{k:>12}" for k in KINDS)
    )
    for form in FORMS:
        cells = []
        for kind in KINDS:
            passed, failed = counts[form.name, kind, True, True], counts[form.name, kind, True, False]
            fooled = counts[form.name, kind, False, True]
            cells.append(f"{passed}/{passed + failed}" + f" ({fooled} wrong)" * bool(fooled) if passed + failed else "")
        print(f"{form.name:32}" + "".join(f"{cell:>12}" for cell in cells))
    right = sum(counts[key] for key in counts if key[2])
    share = sum(counts[key] for key in counts if key[2] and key[3]) / right
    fooled = sum(counts[key] for key in counts if not key[2] and key[3])
    print(f"\nright answers that pass: {share:.4f} of {right} (at least {LEAST}); wrong ones that pass: {fooled}")
    if options.json is not None:
        rows = [
            {"form": f, "kind": k, "right": r, "passed": p, "count": n} for (f, k, r, p), n in sorted(counts.items())
        ]
        options.json.write_text(json.dumps({"share": share, "wrong": fooled, "counts": rows}, indent=1))
    if share < LEAST or fooled:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
