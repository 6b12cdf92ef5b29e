# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The command ``intradp``.

Every subcommand is a module with ``add_arguments(parser)`` and
``run(args) -> int``.  Only the one that is asked for is imported, so that
``intradp --help`` does not wait for torch.
"""
from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
import difflib
import gc
import importlib
import itertools
import os
import re
import signal
import sys
import threading
import traceback
from types import FrameType
from typing import Any, NoReturn, TextIO
import warnings

from intradp_ros import __version__
from intradp_ros.cli.command_errors import CommandError, Ended, printable, status_of
from intradp_ros.cli.lab_commands import LAB, lab_command
from intradp_ros.cli.output_paths import result_file, result_picture
from intradp_ros.core.cache_folder import file_error
from intradp_ros.core.processes import (
    NO_DIRECTORY,
    open_standard_streams,
    out_of_memory,
    OutputError,
    search_working_directory,
    working_directory,
)
from intradp_ros.importers.loading_error import LoadingError

COMMANDS = {
    'model': ('model_archive', 'make an archive of a model with its card, for robot and server'),
    'inspect': ('inspect_model', 'show the operators of a model and how far they can be split'),
    'verify': ('verify_model', 'split a model at random regions and compare with the unsplit one'),
    'profile': ('profile_model', 'measure how long the operators take on this machine'),
    'plan': ('plan_model', 'compute the schedule table for a robot and a server'),
    'run': ('run_model', 'share inferences in this process, over a link of a given bandwidth'),
    'bench': (LAB, 'compare systems on emulated devices, over DDS and a replayed link; the '
                       "paper's evaluation"),
    'fleet': ('fleet', 'networks computed by several machines together'),
    'language': ('language', 'a language model on several small machines, without loss'),
    'train': ('train', 'a network that learns on several machines, any of which may leave'),
    'serve': ('serve', 'requests of many robots, answered in time by several sites'),
    'node': ('node', 'start a node, as `ros2 run` does where there is no ros2'),
    'call': ('call', 'call a service of a running node, sealed with its key'),
    'key': ('key', 'make the key by which nodes know each other'),
    'status': ('status', 'report which robots, servers and fleets run, and how they do'),
    'view': ('view', 'a live page of what runs, for a browser; or of a recording'),
    'trace': ('trace', "a running robot's next frames as a trace for Perfetto and Chrome"),
    'doctor': ('doctor', 'check this machine, its network and the nodes on it, and name the fix'),
    'demo': (LAB, 'robot, server and planner as ROS 2 nodes on a real video'),
    'demo-pipeline': (LAB, 'from a plain camera to typed messages and a bag, through '
                                       'a link that is cut'),
    'demo-fleet': (LAB, 'one network over four devices that share the air: plans of '
                                 'several planners, each run'),
    'demo-language': (LAB, 'a language model on three small boards, in several '
                                       'ways; one of them is killed'),
    'demo-serving': (LAB, 'twelve robots ask three sites, of which one is killed'),
    'demo-training': (LAB, 'a network learns digits on three devices, of which one '
                                       'is killed; the result of one process'),
}

DESCRIPTION = """\
Robots and nearby machines compute one neural network together, with the original model's result.

sharing:    one inference on a robot and a server, row by row (inspect to run, bench, demo)
perception: camera in, typed ROS messages out (model, demo-pipeline)
fleet:      one network in stages over several machines (fleet, demo-fleet)
language:   one language model over several small machines (language, demo-language)
training:   one network learns on several machines, any of which may leave (train, demo-training)
serving:    requests of many robots, answered in time by several sites (serve, demo-serving)

These commands need no ROS, except for node, call, bench, status, view, trace, doctor, the demos,
fleet ask and train send."""

EPILOG = """\
in this order a model becomes known:
  intradp inspect torchvision.models:resnet50 --input 1x3x224x224
  intradp verify  torchvision.models:resnet50 --input 1x3x224x224
  intradp run     torchvision.models:resnet50 --input photo.jpg --size 224x224 --mbps 20

`intradp COMMAND --help` explains a command, with examples.
exit status: 0 done, 1 the result is not as it must be, 2 the command cannot be carried out"""

CANNOT = 2
#: What argparse says of words rather than of what an argument's value may be.
_USAGE = ('invalid choice', 'expected ', 'not allowed with', 'ambiguous')
ENDING = (signal.SIGTERM, signal.SIGHUP)


class _ArgumentError(CommandError):
    """An argument has a value that cannot be; the text begins with the command."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that names every default."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, value = action.help or '', action.default
        shown = not value or value == argparse.SUPPRESS or 'default' in text
        return text if shown else f'{text} (default ' + (
            ' '.join(map(str, value)) if isinstance(value, (list, tuple)) else
            str(value)).replace('%', '%%') + ')'


class _Parser(argparse.ArgumentParser):
    """A parser to which a value that cannot be is an error of one line, as others are."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{'formatter_class': _Help, **options})

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with a value; show the usage where the words are wrong."""
        if message.startswith('argument ') and not any(word in message for word in _USAGE):
            raise _ArgumentError(f'{self.prog}: {message.removeprefix("argument ")}')
        if (wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)):
            message += _meant(wrong[1], re.findall(r"[^', ]+", wrong[2]))
        super().error(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is not known here, where it is known what may have been meant."""
        known = list(self._option_string_actions)
        if not any(action.nargs in (argparse.PARSER, argparse.REMAINDER)
                   for action in self._actions):
            for word in itertools.takewhile(lambda word: word != '--', args):
                name = word.partition('=')[0]
                if name[:2] == '--' and not any(each.startswith(name) for each in known):
                    self.error(f'unrecognized argument: {word}{_meant(name, known)}')
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f'unrecognized arguments: {" ".join(unknown)}')
        self._keep_apart(found)
        return found, unknown

    def _keep_apart(self, found: argparse.Namespace) -> None:
        """Refuse two results that go to one file, where only the last would be left."""
        seen = dict[str, argparse.Action]()
        for action in self._actions:
            path = getattr(found, action.dest, None)
            if action.type in (result_file, result_picture) and path and (
                    path.is_file() or not path.exists()):
                first = seen.setdefault(os.path.realpath(path), action)
                if first.dest != action.dest:
                    self.error(f'argument {"/".join(action.option_strings)}: {str(path)!r} is '
                               f'the file of {"/".join(first.option_strings)}, too: name another')


def _meant(word: str, known: Sequence[str]) -> str:
    alike = difflib.get_close_matches(word, known, 1)
    return f'; did you mean {alike[0]}?' if alike else ''


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    if argv is None:
        open_standard_streams(results=True)
    if not working_directory():  # MKL would end the process, with other words
        print(f'intradp: {NO_DIRECTORY}', file=sys.stderr)
        return CANNOT
    try:
        if argv is None:
            os.write(sys.stdout.fileno(), b'')  # /dev/full says so before any work
        try:
            return _main(list(sys.argv[1:] if argv is None else argv))
        finally:
            if argv is None:
                _end_at_once()
            sys.stdout.flush()
    except KeyboardInterrupt as end:  # one more, while the last words were said
        return status_of(end)
    except OSError as error:  # of standard output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # who reads it, such as head, has seen enough
            return 128 + signal.SIGPIPE
        print(f'intradp: standard output: {error.strerror}', file=sys.stderr)
        return CANNOT


def _main(arguments: list[str]) -> int:
    os.environ.setdefault('TORCH_CPP_LOG_LEVEL', 'ERROR')  # no warnings of its sockets
    name = 'intradp'
    try:
        with _ending_in_order() as came:
            arguments = _spelled_out(arguments)
            args = _parser(arguments).parse_args(arguments)  # imports the command
            if came:  # and a library that was being imported took the signal for a failure
                raise Ended(came[0])
            name = f'intradp {args.command}'
            search_working_directory()  # MODEL may name a module of it
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                # PyTorch warns of a call of its own.
                warnings.filterwarnings('ignore', '.*LeafSpec', FutureWarning)
                status: int = args.run(args)
                return status
    except KeyboardInterrupt as end:
        print(f'{name}: {str(end) or "interrupted"}', file=sys.stderr)
        return status_of(end)
    except _ArgumentError as error:
        print(_one_line(error), file=sys.stderr)
        return CANNOT
    except ModuleNotFoundError as error:
        if name != 'intradp':
            raise
        print(f'intradp: {error}, which the package needs: pip brings what rosdep does not '
              '(requirements.txt)', file=sys.stderr)
        return CANNOT
    except (BrokenPipeError, OutputError):  # as of output that is read no more
        raise
    except (CommandError, LoadingError, OSError) as error:
        print(f'{name}: {_one_line(error)}', file=sys.stderr)
        return CANNOT
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        print(f'{name}: out of memory: take a smaller input or model, or another '
              f'machine ({_one_line(error)})', file=sys.stderr)
        return CANNOT


def _end_at_once() -> None:
    """
    Let Python end soon: without a look for garbage among all that libraries made, for seconds.

    From here on a signal ends the process; Python would print where it was at its end.
    """
    gc.freeze()
    for number in (signal.SIGINT, *ENDING):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _ending_in_order() -> Iterator[list[int]]:
    """
    Raise `Ended` at a signal that would end the process; not if it is ignored.

    Yield those that came while something was imported.  Libraries make other errors of them, or
    none: such an error is `Ended`, too.
    """
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        if any(each.f_code.co_filename.startswith('<frozen importlib')
               for each, _ in traceback.walk_stack(frame)):
            came.append(number)
        raise Ended(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)
              if threading.current_thread() is threading.main_thread()}
    taken = {number: handler for number, handler in before.items()
             if handler in (signal.SIG_DFL, signal.default_int_handler)}
    for number in taken:
        signal.signal(number, end)
    try:
        yield came
    except Exception as error:
        if came and not isinstance(error, (CommandError, OSError)):
            raise Ended(came[0]) from error
        raise
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def _spelled_out(arguments: list[str]) -> list[str]:
    """Return the arguments with what ``bench MODEL`` is short for."""
    if arguments[:1] != ['bench']:
        return arguments
    return ['bench', *lab_command('bench').spelled_out(arguments[1:])]


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog='intradp', description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument('--version', action='version', version=f'intradp {__version__}')
    commands = parser.add_subparsers(metavar='COMMAND', dest='command', required=True)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name in arguments:
            implementation = lab_command(name) if module is LAB else importlib.import_module(
                f'intradp_ros.cli.{module}')
            implementation.add_arguments(command)
            command.set_defaults(run=implementation.run)
    return parser


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return printable(file_error(error))
    return printable(' '.join(str(error).split()))


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int,
                  file: TextIO | None = None, line: str | None = None) -> None:
    """Print a warning without the place in the source that raised it."""
    print(f'intradp: warning: {_one_line(Warning(message))}', file=sys.stderr)


if __name__ == '__main__':
    sys.exit(main())
