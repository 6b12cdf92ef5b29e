# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the records say together, as numbers and as a table in markdown."""
from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median
from typing import Any

Record = dict[str, Any]

COLUMNS = (
    'name', 'source', 'captured by', 'axis', 'rows', 'GFLOP', 'local FLOPs', 'local bytes',
    'rows meet', 'double', 'float', 'reacts', 'seconds', 'result')


def summary(records: Sequence[Record]) -> Record:
    """Return counts and means over all records."""
    captured = [r for r in records if r.get('method')]
    exact = [r for r in captured if r['exact']]
    shares = [r['local_flops'] for r in captured]
    return {
        'architectures': len(records),
        'captured': len(captured), 'captured_share': _share(captured, records),
        'exact': len(exact), 'exact_share': _share(exact, captured),
        'constant': [r['name'] for r in captured if r['status'] == 'constant'],
        'undecided': [r['name'] for r in captured if r.get('undecided')],
        'not_exact': [r['name'] for r in captured if not (r['exact'] or r.get('undecided'))],
        'not_captured': [r['name'] for r in records if not r.get('method')],
        'local_flops_mean': mean(shares or [0.0]), 'local_flops_median': median(shares or [0.0]),
        'local_bytes_mean': mean([r['local_bytes'] for r in captured] or [0.0]),
        'meet_median': median([r['meet'] for r in captured] or [0]),
        'double_error': max((r.get('double_error', 0.0) for r in exact), default=0.0),
        'float_error': max((r['own_error'] for r in exact), default=0.0),
    }


def markdown(records: Sequence[Record]) -> str:
    """Return the summary, the table, and the reasons of what was not captured."""
    total = summary(records)
    lines = [
        '# Architectures split', '',
        f'{total["captured"]} of {total["architectures"]} captured '
        f'({total["captured_share"]:.1%}), {total["exact"]} of them exact '
        f'({total["exact_share"]:.1%}) with every local operator in 3 random parts: at most '
        f'{total["double_error"]:.1e} of the output\'s spread in double precision, '
        f'{total["float_error"]:.1e} in float. Local on average: '
        f'{total["local_flops_mean"]:.2%} of the FLOPs (median '
        f'{total["local_flops_median"]:.2%}), {total["local_bytes_mean"]:.2%} of the bytes.', '',
        'Exact in double precision, undecided in float (the unsplit model rounds as much): '
        f'{", ".join(total["undecided"]) or "none"}.', '',
        f'Outputs that do not react to the input: {", ".join(total["constant"]) or "none"}.', '',
        '| ' + ' | '.join(COLUMNS) + ' |', '|---' * len(COLUMNS) + '|',
        *('| ' + ' | '.join(_row(record)) + ' |' for record in records), '']
    reasons = [f'- {r["name"]}: {r["reason"]}' for r in records if r.get('reason')]
    return '\n'.join([*lines, *reasons, ''])


def _row(record: Record) -> list[str]:
    head = [record['name'], record['source']]
    if not record.get('method'):
        return [*head, *['-'] * (len(COLUMNS) - 3), record['status']]
    return [
        *head, record['method'], str(record['axis']), str(record['rows']),
        f'{record["flops"] / 1e9:.2f}', f'{record["local_flops"]:.2%}',
        f'{record["local_bytes"]:.2%}', str(record['meet']),
        f'{record.get("double_error", 0.0):.1e}', f'{record["own_error"]:.1e}',
        f'{record["reacts"]:.2f}', f'{sum(record["seconds"].values()):.0f}',
        record['status']]


def _share(part: Sequence[Record], whole: Sequence[Record]) -> float:
    return len(part) / len(whole) if whole else 0.0
