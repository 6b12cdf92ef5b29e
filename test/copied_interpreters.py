# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Children that begin as copies of an interpreter which has imported torch and much else already.

Importing it takes a child longer than most tests take.  `copies` gives `Child` of
`intradp_lab.emulation.processes` children which skip that, and are else the same: a module of the
package that runs as ``__main__``, in a process, a session and an environment of its own.  Other
commands start as ever.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
import ctypes
import gc
import importlib
import json
import os
from pathlib import Path
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, BinaryIO
import warnings

import pytest

from intradp_lab.emulation import processes
from intradp_ros.core.processes import module_arguments

#: What most children import, and what captures of models do; nothing of it starts a thread, as ROS
#: does.
IMPORTED = (
    'torch', 'torch._dynamo', 'torch.export._trace', 'torch._functorch.aot_autograd', 'cv2',
    'intradp_ros.graph.capture', 'intradp_ros.perception.card_sources',
    'intradp_ros.perception.decode', 'intradp_ros.perception.overlay',
    'intradp_ros.profiling.cache', 'intradp_ros.profiling.measure',
    'intradp_ros.runtime.member.fleet_coordinator', 'intradp_ros.runtime.member.fleet_member',
    'intradp_ros.runtime.pipeline.stage_role', 'intradp_ros.systems.fleet.pipeline_planner',
    'intradp_ros.systems.sharing.book.book_keeper', 'intradp_ros.systems.sharing.session.server',
    'intradp_ros.systems.sharing.session.stream')
_TIED = ('setpriv', '--pdeathsig', 'KILL')
_IN_NAMESPACE = ('ip', 'netns', 'exec')
#: What the ROS wheels set when they restart an interpreter; see `Command.variables`.
_BOOTSTRAPPED = ('_ROS_WHEELS_BOOTSTRAP_COMPLETE', 'LD_LIBRARY_PATH')
_PR_SET_PDEATHSIG, _CLONE_NEWNET, _CLONE_NEWNS = 1, 0x40000000, 0x20000
_MS_REC, _MS_SLAVE, _MNT_DETACH = 0x4000, 0x80000, 2
_LONGEST = 1 << 20


class Copy:
    """A child, as `Popen` has it: `wait` and `poll` return how it ended."""

    def __init__(self, origin: Origin, pid: int) -> None:
        self._origin, self.pid = origin, pid

    def poll(self) -> int | None:
        """Return how it ended (minus the signal's number if by a signal); None while it runs."""
        return self._origin.ended(self.pid)

    def wait(self) -> int:
        """Wait for the end."""
        while (status := self.poll()) is None:
            time.sleep(0.005)
        return status


class Origin:
    """
    The interpreter that is copied, and how its copies ended.

    Raises
    ------
    ChildProcessError
        If it ends: imports have failed, or have started threads.

    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._ends: dict[int, int] = {}
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        tied = _TIED if shutil.which('setpriv') else ()
        with its:
            self._process = subprocess.Popen(
                [*tied, sys.executable, __file__, str(its.fileno())], pass_fds=[its.fileno()],
                env={**environment, 'PYTHONUNBUFFERED': '1', 'OMP_NUM_THREADS': '1'},
                stdin=subprocess.DEVNULL, start_new_session=True)
        self._hear()  # it has imported all

    def start(self, words: Sequence[str], namespace: str, environment: Mapping[str, str],
              output: BinaryIO) -> Copy:
        """Let a copy run the module `words[0]` with the rest of them as arguments."""
        order = json.dumps({'words': words, 'namespace': namespace, 'folder': os.getcwd(),
                            'environment': dict(environment)}).encode()
        with self._lock:
            socket.send_fds(self._socket, [order], [output.fileno()])
            while not (pid := self._hear()):
                pass
        return Copy(self, pid)

    def ended(self, pid: int) -> int | None:
        """Return how a copy ended, None while it runs."""
        with self._lock:
            while pid not in self._ends and select.select([self._socket], [], [], 0.0)[0]:
                self._hear()
        return self._ends.get(pid)

    def close(self) -> None:
        """End it, and with it what is left of its copies."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def _hear(self) -> int:
        """Take a message; return who has started if it says so, else 0."""
        said = self._socket.recv(_LONGEST)
        if not said:
            raise ChildProcessError(f'nothing to copy: it ended with {self._process.wait()}')
        pid, *status = json.loads(said)
        if status:
            self._ends[pid] = status[0]
        return 0 if status else int(pid)


def _module_of(line: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the network namespace and the words of a command that a copy can do."""
    words, namespace = list(line), ''
    if tuple(words[:3]) == _TIED:
        del words[:3]
    if tuple(words[:3]) == _IN_NAMESPACE:
        namespace = words[3]
        del words[:4]
    before = module_arguments('')[:-1]
    same = words[:len(before)] == before and words[len(before)].startswith('intradp')
    return (namespace, words[len(before):]) if same else None


@contextmanager
def copies() -> Iterator[None]:
    """Let `Child` start modules of the package as copies."""
    origins: list[Origin | None] = []
    now = dict(os.environ)

    def start(line: Sequence[str], *, env: Mapping[str, str], stdout: BinaryIO,
              **options: Any) -> Any:
        module = _module_of(line)
        if module and not origins:
            try:
                origins.append(Origin(now))
            except ChildProcessError as error:
                warnings.warn(f'children start from nothing: {error}', stacklevel=2)
                origins.append(None)
        if module and (origin := origins[0]):
            return origin.start(module[1], module[0], env, stdout)
        return subprocess.Popen(line, env=env, stdout=stdout, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, 'subprocess', SimpleNamespace(
            Popen=start, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT))
        yield
    for each in filter(None, origins):
        each.close()


def serve(control: socket.socket) -> dict[str, Any]:
    """Make copies as long as the other side is there; return, in a copy only, what it shall do."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waking)
    while True:
        readable = select.select([control.fileno(), woken], [], [])[0]
        if woken in readable:
            os.read(woken, 4096)
            with suppress(ChildProcessError):
                while (end := os.waitpid(-1, os.WNOHANG))[0]:
                    control.send(json.dumps([end[0], os.waitstatus_to_exitcode(end[1])]).encode())
        if control.fileno() in readable:
            said, outputs, *_ = socket.recv_fds(control, _LONGEST, 1)
            if not said:
                raise SystemExit
            [output] = outputs
            begun, beginning = os.pipe()
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become(output)
                for each in (woken, waking, begun, beginning, output, control.detach()):
                    os.close(each)  # the one who made it goes on when `beginning` is closed
                return dict(json.loads(said))
            for each in (beginning, output):
                os.close(each)
            os.read(begun, 1)
            os.close(begun)
            control.send(json.dumps([pid]).encode())


def become(output: int) -> None:
    """Make a copy a process that ends with its origin, and writes elsewhere."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def enter(namespace: str) -> None:
    """Enter a network namespace as `ip netns exec` does, with what /sys shows of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f'/var/run/netns/{namespace}') as file:
        for call, *arguments in ((libc.setns, file.fileno(), _CLONE_NEWNET),
                                 (libc.unshare, _CLONE_NEWNS),
                                 (libc.mount, b'', b'/', b'none', _MS_SLAVE | _MS_REC, None),
                                 (libc.umount2, b'/sys', _MNT_DETACH),
                                 (libc.mount, b'sys', b'/sys', b'sysfs', 0, None)):
            if call(*arguments):
                raise OSError(ctypes.get_errno(), f'cannot enter {namespace}')


def run(words: Sequence[str], namespace: str, folder: str, environment: Mapping[str, str]) -> None:
    """Run a module as ``python -m`` does, in an environment."""
    import numpy as np
    if namespace:
        enter(namespace)
    os.chdir(folder)
    bootstrapped = {name: os.environ[name] for name in _BOOTSTRAPPED if name in os.environ}
    os.environ.clear()
    os.environ.update({**environment, **bootstrapped})
    given = environment.get('PYTHONPATH', '').split(os.pathsep)
    sys.path[:0] = [path for path in given if path and path not in sys.path]
    sys.argv[:] = ['-c', *words[1:]]
    np.random.seed()
    runpy.run_module(words[0], run_name='__main__', alter_sys=True)


def main() -> None:
    """Import, and make copies."""
    sys.path.remove(str(Path(__file__).parent))
    for name in IMPORTED:
        importlib.import_module(name)
    if len(os.listdir('/proc/self/task')) > 1:
        raise SystemExit('a process with threads cannot be copied')
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=int(sys.argv[1]))
    control.send(json.dumps([0]).encode())
    run(**serve(control))


if __name__ == '__main__':
    main()
