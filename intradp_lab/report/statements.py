# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What figures of a run mean, in plain words: who wins by how much, and what was left to win."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Rows = Mapping[str, Mapping[str, Any]]
#: Ours, planned for the least latency and for the least energy; and with the paper's solver.
OURS, FRUGAL, EVOLVED = 'shared', 'shared-energy', 'shared-de'
#: A difference below this part is called none: two runs differ by as much.
SAME = 0.02
ALONE = 'local'
#: The robot alone uses no link, so that a larger median error than this is one of the emulation.
EMULATED = 0.03
#: A median prediction error above this is worth a sentence.
FAR_OFF = 0.15


def milliseconds(value: float) -> str:
    """Return a time with three significant digits."""
    return f'{value:.0f} ms' if value >= 99.5 else f'{value:.1f} ms'


def percent(share: float) -> str:
    """Return a share from 0 to 1 as a whole percentage."""
    return f'{100 * share:.0f} %'


def best_other(rows: Rows, figure: str = 'mean_ms') -> str | None:
    """Return the system that is not ours and has the least of a figure; None if there is none."""
    others = {name: row[figure] for name, row in rows.items()
              if name not in (OURS, FRUGAL, EVOLVED)}
    return min(others, key=lambda name: others[name], default=None)


def gain(rows: Rows, other: str | None = None) -> float | None:
    """
    Return by which part ours is faster than another system (negative: slower).

    By default that is the best other; None if one of the two is not there.
    """
    other = other or best_other(rows)
    if other is None or not {OURS, other} <= rows.keys():
        return None
    return 1 - float(rows[OURS]['mean_ms']) / float(rows[other]['mean_ms'])


def headline(rows: Rows) -> str:
    """Return the sentence that says who wins."""
    difference, other = gain(rows), best_other(rows)
    if difference is None or other is None:
        name = next(iter(rows))
        return f'{name} takes {milliseconds(rows[name]["mean_ms"])} an inference in the mean.'
    ours, best = (milliseconds(rows[name]['mean_ms']) for name in (OURS, other))
    if abs(difference) < SAME:
        return f'No difference: sharing takes {ours} an inference, {other} {best}.'
    if difference > 0:
        return (f'Sharing wins: {ours} an inference, {percent(difference)} less than {other}, '
                f'the best of the others ({best}).')
    return (f'Sharing loses: {ours} an inference, {percent(-difference)} more than {other} '
            f'({best}).')


def remarks(rows: Rows, bound_ms: float | None) -> list[str]:
    """Return further sentences: the bound, energy, predictions that missed, outages."""
    found = [*_bound(rows, bound_ms), *_energy(rows), *emulation_remarks([rows])]
    ours = rows.get(OURS)
    if ours:
        found += _prediction(ours) + _recovery(ours)
    return found


def _bound(rows: Rows, bound_ms: float | None) -> list[str]:
    if bound_ms is None or not bound_ms > 0:
        return []
    times = ', '.join(f'{name} {rows[name]["mean_ms"] / bound_ms:.2f}'
                      for name in sorted(rows, key=lambda name: float(rows[name]['mean_ms'])))
    return [f'No schedule can take less than {milliseconds(bound_ms)} in the mean on this link '
            f'and these devices. Times that bound: {times}.']


def _energy(rows: Rows) -> list[str]:
    if len(rows) < 2 or OURS not in rows:
        return []
    least = min(rows, key=lambda name: float(rows[name]['energy_j']))
    joules = rows[OURS]['energy_j']
    if least == OURS:
        return [f'It also costs the robot the least energy: {joules:.2f} J an inference '
                '(modelled).']
    return [f'The robot spends {joules:.2f} J an inference when it shares; {least} is the most '
            f'frugal with {rows[least]["energy_j"]:.2f} J (modelled).']


def emulation_remarks(cases: Iterable[Rows]) -> list[str]:
    """Say whether emulated devices kept their times: those of the robot alone are known."""
    errors = [error for rows in cases
              if (error := rows.get(ALONE, {}).get('error_median')) is not None]
    if max(errors, default=0.0) <= EMULATED:
        return []
    return ['The machine was too busy to emulate the devices well: the robot alone missed the '
            f'time of its profile by up to {percent(max(errors))} (median of a case), though it '
            'uses no link. Other systems suffer more: do not trust these figures.']


def _prediction(ours: Mapping[str, Any]) -> list[str]:
    error = ours['error_median']
    if error is None or error <= FAR_OFF:
        return []
    return [f'Shared inferences took {percent(error)} more or less than the schedule table had '
            'predicted (median): the link or the devices were not what was planned for.']


def outage_sentence(found: Mapping[str, Any]) -> str:
    """Say whether frames were answered while the link failed, and sharing came back after it."""
    if not found['shared']:
        return (f'At {found["mbps"]:.3g} Mbit/s the robot shared nothing, so that outages change '
                'nothing.')
    rows = found['rows']
    missed = sum(bool(row['missed']) for row in rows)
    answer = f'As wanted, in {_count(len(rows))}' if not missed else \
        f'Not as wanted in {missed} of {_count(len(rows))}'
    worst = milliseconds(max(row['worst_ms'] for row in rows))
    return (f'{answer}: all {found["frames"]} inferences had their result, the longest while the '
            f'link was off took {worst} (at most {milliseconds(found["limit_ms"])} wanted)'
            f'{_return(found)}')


def _return(found: Mapping[str, Any]) -> str:
    """Say when sharing began again, and what would fix that it was late."""
    rows, wanted = found['rows'], found['back_within_s']
    back = [row['back_s'] for row in rows if row['back_s'] is not None]
    never = len(rows) - len(back)
    again = f', sharing began again within {max(back):.2f} s of its return' if back else ''
    if never:
        again += f', and did not while the run saw it after {_count(never)}'
    late = never or max(back, default=0.0) > wanted
    if late and found['transport'].startswith('large_data'):
        again += ('. Here TCP waits, the longer the longer nothing gets through; over UDP '
                  '(--transport udp) robots are back sooner')
    return f'{again}.'


def _count(outages: int) -> str:
    return f'{outages} outage' if outages == 1 else f'{outages} outages'


def _recovery(ours: Mapping[str, Any]) -> list[str]:
    if not ours['recovered']:
        return []
    return [f'{ours["recovered"]} of {ours["frames"]} shared inferences were finished by the '
            'robot alone because the link or the server was silent; none was lost.']
