# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp train send``: a goal for nodes that train, followed to its end."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
import json
import signal
import subprocess
from typing import Any

from intradp_ros.cli.arguments import number
from intradp_ros.cli.call import add_key_file
from intradp_ros.cli.command_errors import CommandError, status_of
from intradp_ros.cli.output import add_json, Output, output, plain
from intradp_ros.cli.train_run import lines
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.systems.training.service.training_job import Progress

DESCRIPTION = """\
Send a goal to the action ~/train of a node (a coordinator of device nodes, or a trainer node), and
follow it to its end. Where that node is lost (DDS notices it within 20 s) and another one of
--nodes goes on with the training, the command follows that one; with --resume it joins a training
of the task that is in flight already.

Ctrl-C has the node save a checkpoint and end; a second Ctrl-C leaves it training."""

EPILOG = """\
examples:
  intradp train send
  intradp train send /home/robot/mytask.py:task --nodes /coordinator /standby --resume

exit status: 0 trained, 1 training came to nothing or no node answers, 130 ended by Ctrl-C"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('task', nargs='?', default='', metavar='TASK',
                        help="as the node's parameter tasks names it (default: its first one)")
    parser.add_argument('--nodes', nargs='+', default=['/coordinator_node'], metavar='NODE',
                        help='nodes that serve ~/train; the first that does not refuse trains '
                             '(default: /coordinator_node)')
    parser.add_argument('--resume', action='store_true',
                        help='join the training of this task that is in flight, else go on with '
                             'its newest checkpoint')
    parser.add_argument('--deadline', type=number(0.0, 1e6), default=0.0, metavar='S',
                        help='seconds after which it is saved and ended (default: none)')
    parser.add_argument('--seconds', type=number(0.0, 1e6, above=True), default=20.0,
                        help='how long to wait for a node (default %(default)s)')
    add_key_file(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Send the goal, and say what came of it."""
    if not 0 <= args.deadline < 1e6:
        raise CommandError('--deadline must be 0 to 1000000 seconds')
    asked = {'nodes': args.nodes, 'task': args.task, 'resume': args.resume,
             'deadline': args.deadline, 'seconds': args.seconds, 'key_file': args.key_file}
    command = Command('send', module_arguments('intradp_ros.nodes.training.train_request',
                                               json.dumps(asked)))
    watch = command.watch()
    with output(args.json) as out, out.steps() as step:
        with subprocess.Popen(command.line(), env=command.variables(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as process:
            try:
                last, interrupted = _follow(process, step, out)
            except BaseException:
                process.kill()
                raise
            if 'result' not in last:
                errors = process.stderr.read() if process.stderr else ''
                end = watch.end(process.wait())
                raise CommandError(last.get('failed') or (
                    errors.strip().splitlines() or [f'the process that sends {end}'])[-1])
        result = last['result']
        done = result['fate'] in ('done', 'resumed')
        accuracy = result['check_accuracy']
        out.show(f'{plain(last["node"])}: {result["fate"]}'
                 + (f', round {result["round"]} of {result["rounds"]}, loss {result["loss"]:.4g}'
                    if result['round'] else '')
                 + (f', accuracy {accuracy:.1%} on samples that it never saw'
                    if result['round'] and accuracy == accuracy else '')
                 + (f': {plain(result["reason"])}' if result['reason'] else ''))
        if result['checkpoint']:
            out.show(f'checkpoint on its machine: {plain(result["checkpoint"])}'
                     + (f', SHA-256 {plain(result["digest"])}' if result['digest'] else ''))
        out.result({'node': last['node'], **result})
    return 0 if done else status_of(interrupted or KeyboardInterrupt()) \
        if result['fate'] == 'cancelled' else 1


def _follow(process: subprocess.Popen[str], step: Callable[[str], None], out: Output,
            ) -> tuple[Mapping[str, Any], KeyboardInterrupt | None]:
    """Show what the process that sends says; return the last of it, and what ended it."""
    assert process.stdout is not None
    heard, last = lines(step, out), dict[str, Any]()
    interrupted: KeyboardInterrupt | None = None
    while True:
        try:
            line = process.stdout.readline()
        except KeyboardInterrupt as end:
            if interrupted:
                raise
            interrupted = end
            step('the node saves the checkpoint and ends (Ctrl-C again: leave it training)')
            process.send_signal(signal.SIGINT)
            continue
        if not line:
            return last, interrupted
        last = json.loads(line)
        if 'sent' in last:
            step(f'goal sent to {plain(last["sent"])}')
        elif 'waiting' in last:
            out.warn(last['waiting'])
        elif 'lost' in last:
            step(f'{plain(last["lost"])}: looking for a node that goes on')
        elif 'feedback' in last:
            heard(_progress(last['feedback']))


def _progress(feedback: Mapping[str, Any]) -> Progress:
    joules = feedback['joules']
    return Progress(
        feedback['state'], feedback['round'], feedback['rounds'], feedback['loss'],
        feedback['samples_per_second'], None if joules != joules else joules, feedback['who'], 0,
        tuple(feedback['lost']))
