# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
`intradp demo-language`: a language model on three small boards, of which none could hold it.

One question is answered by ours, by a plain pipeline with offloading, by one device that reads
from its disk, and by accelerate's `disk_offload`, each with the same memory for each process;
tokens and logits are compared with one process.  At last a device is killed in the middle
of two answers.
"""
from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from intradp_lab.cli.claimed_folder import claim_folder
from intradp_lab.emulation import device_limits, network
from intradp_lab.language.demo_scene import MB, OURS, run_scene, Scene
from intradp_lab.report.page import number_text
from intradp_ros.cli.arguments import number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import Output, output, plain, table
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.core.cache_folder import cache_folder
from intradp_ros.core.child_end import OUT_OF_MEMORY
from intradp_ros.core.control_groups import DISK, MEMORY
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.report.language_plot import BlockSpan, draw_blocks
from intradp_ros.report.result_tables import write_json
from intradp_ros.report.view.recorded import TRACE
from intradp_ros.report.view.standing_page import write_page
from intradp_ros.systems.language.families import MissingPackageError
from intradp_ros.systems.language.smollm2 import smollm2

RESULTS = ('gantt.png', 'nodes', 'page.html', 'report.json', TRACE)
BOARDS = {'rover': 64 * MB, 'drone': 22 * MB, 'dock': 22 * MB}
#: Largest difference of a logit from one process.
LOSSLESS = 1e-4
#: Tokens in the picture.
_DRAWN = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options."""
    parser.description = (
        'Ask SmolLM2-135M-Instruct (Q4_1, 97 MB) one question on three emulated devices with '
        'little memory, slow disks and a shaped link, in several ways, and compare each token '
        'with one process; then kill a device in the middle of two answers. Writes report.json, '
        'gantt.png and page.html. Needs root, for network namespaces and control groups.')
    parser.add_argument('--air', type=number(1.0, 1000.0), default=100.0, metavar='MBPS',
                        help='rate that all devices share (default %(default)s)')
    parser.add_argument('--disk', type=number(10.0, 1e5), default=200.0, metavar='MBYTES',
                        help='1e6 bytes a second that each disk reads (default %(default)s)')
    parser.add_argument('--tokens', type=whole(12, 400), default=32, metavar='N',
                        help='tokens of the answer (default %(default)s)')
    parser.add_argument('--out', type=result_folder, default='out/demo-language',
                        help='folder to write to')


def run(args: argparse.Namespace) -> int:
    """Run the demo; return the exit code."""
    with output(False) as out:
        try:
            claim_folder(args.out, 'demo-language', RESULTS)
            if reason := network.available() or device_limits.available(MEMORY, DISK):
                raise CommandError(reason)
            smollm2()
            prepare_process(1)
            cache = cache_folder() / 'demo-language'
            cache.mkdir(parents=True, exist_ok=True)
            scene = Scene(BOARDS, args.disk * MB, args.air, args.tokens)
            report = run_scene(args.out / 'nodes', cache, scene,
                               lambda text: out.show(f'{text} ...'))
        except (MissingPackageError, ModuleNotFoundError, network.NetworkError,
                device_limits.LimitError) as error:
            raise CommandError(str(error)) from error
        traces, began = report.pop('trace'), report.pop('began')
        write_json(args.out / 'report.json', report | {'said': said(report)})
        write_json(args.out / TRACE, {'began': began, 'trace': traces})
        if drawn := spans(traces, began):
            draw_blocks(drawn, tuple(traces), args.out / 'gantt.png', f'{_DRAWN} tokens')
        write_page(args.out)
        _show(report, out)
        out.show(f'Wrote {args.out}/report.json, gantt.png and page.html')
    return 0 if well(report) else 1


def well(report: Mapping[str, Any]) -> bool:
    """Return whether ours answered, with and without a kill, and all answers are one process's."""
    killed = report['killed']
    return bool(not report['systems'][OURS]['failed'] and report['identical']
                and report['max_logit_diff'] < LOSSLESS and not killed['failed']
                and report['bit_equal'] and not killed['lost'] and killed['identical'])


def spans(traces: Mapping[str, Sequence[tuple[str, float, float]]], began: float,
          ) -> list[BlockSpan]:
    """Return what to draw: some tokens in the middle of the answer."""
    head = next(iter(traces), '')
    drawn = [stop for text, _, stop in traces.get(head, ()) if text.startswith('D')
             and stop > began]
    if not drawn:
        return []
    middle = len(drawn) // 2
    first, last = drawn[middle], drawn[min(middle + _DRAWN, len(drawn) - 1)]
    return [BlockSpan(name, text[0] == 'L', max(start, first), min(stop, last))
            for name, trace in traces.items() for text, start, stop in trace
            if text[0] in 'RL' and '>' not in text and stop > first and start < last]


def _killed_text(report: Mapping[str, Any]) -> str:
    killed = report['killed']
    if killed['failed']:
        return f'A device was killed in the middle of two answers, which failed: {killed["log"]}'
    return (f'A device killed in the middle of {killed["requests"]} answers: '
            f'{killed["requests"] - killed["lost"]} went on'
            + (' with the same tokens' if killed['identical'] else ', not all with the same '
               'tokens') + f', after {killed["gap_ms"] / 1e3:.1f} s.')


def _logits_text(report: Mapping[str, Any]) -> str:
    return ('The largest difference of a logit from one process is '
            f'{report["max_logit_diff"]:.1e}; among plans and after the kill logits '
            f'{"have the same bits" if report["bit_equal"] else "do NOT have the same bits"}.')


def said(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page says of a report: title, headline, remarks, how it was measured."""
    return {
        'title': 'A language model on three small boards', 'well': well(report),
        'headline': 'Every token is that of one process.' if well(report) else
        'Not all is as it must be.',
        'remarks': [_killed_text(report), _logits_text(report)],
        'measured': [
            ('model', f'{report["model"]["stored_mb"]:.0f} MB as its file has them ('
                      f'{", ".join(report["model"]["types"])}), computed in float32; one process: '
                      'the same in float32'),
            ('a token', 'median between tokens of one answer; the mean where blocks are read '
                        'from disk, which pauses'),
            ('limit', 'each weight is read once a token from memory, or from the disk before; '
                      'rates of memory, disk and hops are those measured in this run, of disks at '
                      'least what they gave while tokens were computed'),
            ('devices', f'processes of this machine behind an access point of {report["mbit"]:g} '
                        f'Mbit/s, each disk limited to {report["disk"] / MB:g} MB/s; memory is '
                        'what the process has to itself, interpreter and libraries included'),
            ('again', '`make demo-language` makes these figures again; one run')]}


def _show(report: Mapping[str, Any], out: Output) -> None:
    shown = table('One question to SmolLM2-135M', 'system', 'ms a token', 'predicted', 'limit',
                  'x limit', 'what binds, or failed', left=1)
    for name, row in report['systems'].items():
        shown.add_row(name, *(number_text(row[key]) for key in (
            'ms_per_token', 'predicted_ms', 'limit_ms', 'x')),
            row['failed'] or row.get('binds', ''))
    out.show(shown)
    ours = report['systems'][OURS]
    if not ours['failed']:
        each = table('Each token of ours', 'device', 'computing, ms', 'disk, ms', 'others, ms',
                     'sent, kB', 'received, kB')
        for name, row in ours['per_token'].items():
            each.add_row(name, *(number_text(row[key]) for key in (
                'computing_ms', 'disk_ms', 'peers_ms', 'sent_kb', 'received_kb')))
        out.show(each)
    for name, row in report['systems'].items():
        if row['failed'] and not row['failed'].startswith(OUT_OF_MEMORY):
            out.show(plain(f'{name}: {row["log"]}'))
    out.show(f'Tokens {"are" if report["identical"] else "are NOT"} those of one process. '
             + _logits_text(report))
    out.show(plain(_killed_text(report)))
