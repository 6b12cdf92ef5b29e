# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp profile``: measure how long the operators of a model take on this machine."""
from __future__ import annotations

import argparse
import json

from intradp_ros.cli.arguments import whole
from intradp_ros.cli.output import add_json, milliseconds, Output, output, percent, plain, table
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cli.profile_arguments import own_profile
from intradp_ros.cli.subject import add_model, load_subject, MODEL_HELP, Subject
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.limits import MAX_OPERATORS
from intradp_ros.dds.transport_cost import with_transport_cost
from intradp_ros.power.power_states import PowerStates
from intradp_ros.profiling.cache import cache_path, example_key
from intradp_ros.profiling.profile import CHUNK_BYTES, OperatorTiming, Profile
from intradp_ros.split.checks.flops import operator_flops

DESCRIPTION = f"""\
Measure how long every operator takes on this machine, for all of its rows, for a half, a
quarter, an eighth and a sixteenth of them, and where times lie off the line between these: half
of the rows rarely take half of the time.  Plans use typical times (medians); the shortest are
shown next to them.

The result is kept by model, split axis and device ($INTRADP_CACHE, or ~/.cache/intradp_ros), so
a repeat is immediate.  Where the machine has a sensor of what it draws (INA3221 on Jetsons, RAPL
on processors), its power in standby and while it computes is measured as well.  Measure on an
idle machine, once on the robot and once on the server, with the number of threads that inferences
will have; `intradp plan` takes the two files.

{MODEL_HELP}"""

EPILOG = """\
examples:
  intradp profile intradp_lab.zoo.hed:hed --input 1x3x272x640 --dtype uint8 -o robot.json
  intradp profile pytorchcv.models.resnet:resnet50 --input 1x3x224x224 --threads 2 --fresh"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    parser.add_argument('-o', '--output', type=result_file, metavar='FILE',
                        help='write the profile here, as JSON')
    parser.add_argument('--fresh', action='store_true',
                        help='measure again, even if there is a profile')
    parser.add_argument('--top', type=whole(0, MAX_OPERATORS), default=15, metavar='N',
                        help='how many operators the table shows (default 15)')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    with output(args.json) as out:
        subject = load_subject(args, out)
        profile = own_profile(subject, out, args.fresh)
        with out.status('measuring what moving bytes costs'):
            profile = with_transport_cost(profile)
        if args.output:
            write_atomically(args.output, profile.to_json() + '\n')
        _show(subject, profile, args.top, out)
        out.written(args.output)
        # What -o writes, so that both can be given to `intradp plan`.
        out.result(json.loads(profile.to_json()))
    return 0


def _show(subject: Subject, profile: Profile, top: int, out: Output) -> None:
    split = subject.shared.split
    kept = cache_path(profile.digest, profile.axis, example=example_key(subject.inputs))
    total = sum(t.seconds[-1] for t in profile.timings)
    heaviest = sorted(zip(split.operators, profile.timings), key=lambda e: -e[1].seconds[-1])
    shown = table(f'{subject.name}: the heaviest operators on this machine', 'operator', 'kind',
                  'rows', 'ms', 'least ms', 'share', 'half the rows', 'heights', 'GFLOP/s', left=2)
    for local, timing in heaviest[:top]:
        seconds = timing.seconds[-1]
        rate = operator_flops(split.graph, local.operator) / seconds if seconds else 0.0
        shown.add_row(plain(local.operator.name), local.kind.value, str(local.rows),
                      milliseconds(seconds),
                      milliseconds(timing.least[-1]) if timing.least else '-',
                      percent(seconds / total), _half(timing), str(len(timing.rows)),
                      f'{rate / 1e9:.1f}')
    out.show(shown, (
        f'[bold]{milliseconds(profile.whole_seconds)} ms[/bold] for all {len(profile.timings)} '
        f'operators in turn, {milliseconds(total)} ms as the sum of single ones\n'
        f'{_typical(profile)}\n'
        f'device  {profile.device}\n'
        f'{_moving(profile)}\n'
        f'{_joining(profile)}\n'
        f'power   {_power(profile.power)}\n'
        f'kept in {kept}'))


def _typical(profile: Profile) -> str:
    """Say how the typical times, which plans use, differ from the shortest."""
    if not profile.least_seconds:
        return 'times are typical ones; the shortest are not known'
    more = profile.whole_seconds / profile.least_seconds - 1.0
    return (f'times are medians, of which half lie within {percent(profile.spread)}; at the '
            f'shortest {milliseconds(profile.least_seconds)} ms, so that {percent(more)} more '
            'are typical')


def _moving(profile: Profile) -> str:
    """Say what moving bytes takes from operators."""
    if not profile.crowded:
        return f'{profile.cores} cores, so moving bytes takes no time from operators'
    send, receive = (profile.moving.sending(CHUNK_BYTES), profile.moving.receiving(CHUNK_BYTES))
    return (f'no core other than those that compute: sending {CHUNK_BYTES / 1e3:g} kB takes '
            f'{milliseconds(send)} ms from operators, receiving {milliseconds(receive)} ms')


def _joining(profile: Profile) -> str:
    """Say what putting rows together takes."""
    if not profile.joining.seconds(1, 1):
        return 'no operator reads beyond its rows, so that none are put together'
    megabyte = milliseconds(profile.joining.seconds(1, 10**6))
    return f'rows of several pieces: putting 1 MB together for an operator takes {megabyte} ms'


def _power(power: PowerStates) -> str:
    """Say what the device draws, and who says so."""
    return f'{power.compute:.2f} W computing, {power.idle:.2f} in standby ({power.source})'


def _half(timing: OperatorTiming) -> str:
    """Return what half of the rows cost, as a share of all."""
    rows = timing.rows[-1]
    if rows < 2 or not timing.seconds[-1]:
        return '-'
    return percent(float(timing.table(rows)[rows // 2]) / timing.seconds[-1])
