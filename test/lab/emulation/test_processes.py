# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Child processes: started as asked, watched by their logs, ended for certain."""
from __future__ import annotations

from collections.abc import Callable, Iterator
import os
from pathlib import Path
import signal
import subprocess
import sys
import threading

import pytest
from resident import runs

from intradp_lab.emulation import network
from intradp_lab.emulation.network import shaped_link, ShapedLink
from intradp_lab.emulation.processes import Child, ChildError, ros_arguments, starter, wait_until
from intradp_ros.core.processes import Command

REASON = network.available()

Start = Callable[[Command], Child]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starter(tmp_path / 'logs', grace=2.0) as begin:
        yield begin


def script(name: str, code: str, **options: object) -> Command:
    return Command(name, [sys.executable, '-c', code], **options)


def test_waits_for_a_line(start: Start) -> None:
    child = start(script('talker', 'import time; print("port 7411"); time.sleep(600)'))
    assert child.wait_for_line(r'port (\d+)', 20)[1] == '7411'
    assert child.returncode is None


def test_later_lines_are_distinguished_from_earlier_ones(start: Start) -> None:
    child = start(script('counter', 'print("step 1"); print("step 2")'))
    child.wait(60)
    first = child.wait_for_line(r'step (\d)', 1)
    since = child.output().index(first.string) + len(first.string)
    assert child.wait_for_line(r'step (\d)', 1, since)[1] == '2'


def test_half_a_line_does_not_count(start: Start) -> None:
    child = start(script('slow', 'import time; print("rea", end=""); time.sleep(600)'))
    with pytest.raises(ChildError, match='did not print /rea/ within'):
        child.wait_for_line('rea', 1.0)


def test_a_failure_shows_the_log(start: Start) -> None:
    child = start(script('broken', 'raise SystemExit("no such model")'))
    with pytest.raises(ChildError, match=r"(?s)'broken' ended with code 1 .*no such model"):
        child.wait_for_line('ready', 20)


def test_waiting_for_a_condition_ends_with_the_process(start: Start) -> None:
    child = start(script('broken', 'raise SystemExit(3)'))
    with pytest.raises(ChildError, match='code 3 while waiting for the book'):
        wait_until(lambda: False, 20, 'the book', [child])


def test_waiting_for_a_condition_ends_in_time() -> None:
    with pytest.raises(ChildError, match=r'0\.05 s in vain for the book'):
        wait_until(lambda: False, 0.05, 'the book')


def test_environment_and_cores(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('_ROS_WHEELS_BOOTSTRAP_COMPLETE', '1')
    monkeypatch.setenv('KEPT', 'kept')
    core = max(os.sched_getaffinity(0))
    command = Command('show', ['sh', '-c', 'env; grep Cpus_allowed_list /proc/self/status'],
                      cores=(core,), environment={'GIVEN': 'given'})
    child = start(command)
    assert child.wait(60) == 0
    lines = child.output().splitlines()
    assert {'KEPT=kept', 'GIVEN=given', f'Cpus_allowed_list:\t{core}'} <= set(lines)
    assert not any(line.startswith('_ROS_WHEELS_BOOTSTRAP_COMPLETE') for line in lines)


def test_stop_lets_it_say_good_bye(start: Start) -> None:
    code = ('import signal, sys, time\n'
            'signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("bye")))\n'
            'print("ready"); time.sleep(600)')
    child = start(script('polite', code))
    child.wait_for_line('ready', 20)
    assert child.stop() == 0
    assert child.output().splitlines() == ['ready', 'bye']


def test_stop_kills_the_deaf(start: Start) -> None:
    code = ('import signal, time\n'
            'signal.signal(signal.SIGTERM, signal.SIG_IGN); print("ready"); time.sleep(600)')
    child = start(script('deaf', code))
    child.wait_for_line('ready', 20)
    assert child.stop(grace=0.2) == -signal.SIGKILL


def test_kill_takes_the_whole_family(start: Start) -> None:
    child = start(Command('family', ['sh', '-c', 'sleep 600 & echo $!; wait']))
    grandchild = int(child.wait_for_line(r'^(\d+)$', 20)[1])
    child.kill()
    assert child.returncode == -signal.SIGKILL
    wait_until(lambda: not runs(grandchild), 10, 'the end of the grandchild')


def test_the_pid_is_the_commands_own(start: Start) -> None:
    child = start(script('self', 'import os; print(os.getpid())',
                         cores=tuple(os.sched_getaffinity(0))))
    assert int(child.wait_for_line(r'^(\d+)$', 20)[1]) == child.pid


def test_a_second_start_has_its_own_log(start: Start) -> None:
    first, second = (start(Command('offload', ['echo', word])) for word in ('one', 'two'))
    assert first.wait(60) == second.wait(60) == 0
    assert [first.log.name, second.log.name] == ['offload.log', 'offload-2.log']
    assert [first.output(), second.output()] == ['one\n', 'two\n']


def test_all_end_with_the_context(tmp_path: Path) -> None:
    children = []
    with pytest.raises(KeyboardInterrupt), starter(tmp_path, grace=2.0) as begin:
        for name in ('robot', 'server'):
            children.append(begin(Command(name, ['sleep', '600'])))
        raise KeyboardInterrupt
    assert [child.returncode for child in children] == [-signal.SIGTERM] * 2


def test_children_end_with_a_killed_parent(tmp_path: Path) -> None:
    code = ('import time\nfrom pathlib import Path\n'
            'from intradp_lab.emulation.processes import starter\n'
            'from intradp_ros.core.processes import Command\n'
            f'with starter(Path({str(tmp_path)!r})) as start:\n'
            '    child = start(Command("child", ["sh", "-c", "echo ready; exec sleep 600"]))\n'
            '    child.wait_for_line("ready", 20)\n'
            '    print(child.pid, flush=True)\n'
            '    time.sleep(600)')
    with subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE,
                          text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until(lambda: not runs(pid), 10, 'the end of the child')


def test_only_the_main_thread_may_start(start: Start) -> None:
    errors: list[str] = []

    def attempt() -> None:
        try:
            start(Command('sleeper', ['sleep', '600']))
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert errors == ["start 'sleeper' from the main thread"]


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_runs_in_a_namespace(start: Start) -> None:
    with shaped_link(20.0, 'intradp-test-processes') as link:
        child = start(Command('inside', ['ip', '-brief', 'address'],
                              prefix=link.exec_prefix('server')))
        assert child.wait(60) == 0
        assert '10.77.0.2/24' in child.output()


NODE = """
import sys
import rclpy
from rclpy.node import Node
from rcl_interfaces.msg import ParameterDescriptor
from std_msgs.msg import String
rclpy.init(args=sys.argv)
node = Node('plain')
given = {name: node.declare_parameter(
    name, descriptor=ParameterDescriptor(dynamic_typing=True)).value
    for name in ('rate', 'model', 'strict', 'cores', 'from_file', 'twice')}
print(node.get_fully_qualified_name(), given, flush=True)
if given['strict']:
    publisher = node.create_publisher(String, 'words', 10)
    node.create_timer(0.1, lambda: publisher.publish(String(data='over the link')))
else:
    node.create_subscription(String, 'words', lambda m: print('heard', m.data, flush=True), 10)
rclpy.spin(node)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip('rclpy')
    pytest.importorskip('std_msgs')
    (tmp_path / 'plain_node_of_test.py').write_text(NODE)
    monkeypatch.setenv('PYTHONPATH', str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    return 'plain_node_of_test'


def test_parameters_and_names_reach_a_node(start: Start, module: str, tmp_path: Path) -> None:
    defaults = tmp_path / 'defaults.yaml'
    defaults.write_text('/**:\n  ros__parameters:\n    from_file: 7\n    twice: 1\n')
    child = start(Command('node', ros_arguments(
        module, node='offload', namespace='/lab', parameter_files=[defaults],
        parameters={'rate': 20.0, 'model': 'zoo.hed: "a" 1', 'strict': True, 'cores': [0, 1],
                    'twice': 2})))
    name, shown = child.wait_for_line(r'^(/\S+) (\{.*\})$', 60).groups()
    assert name == '/lab/offload'
    assert shown == str({'rate': 20.0, 'model': 'zoo.hed: "a" 1', 'strict': True,
                         'cores': [0, 1], 'from_file': 7, 'twice': 2})


def test_the_working_directory_hides_no_package(
        start: Start, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / 'checkout'
    checkout.mkdir()
    (checkout / f'{module}.py').write_text('raise SystemExit("not the installed one")\n')
    monkeypatch.chdir(checkout)
    child = start(Command('node', ros_arguments(
        module, parameters={'rate': 1.0, 'model': '', 'strict': True, 'cores': [0],
                            'from_file': 1, 'twice': 1})))
    child.wait_for_line('^/plain ', 60)


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_ros_nodes_find_each_other_over_the_link(start: Start, module: str) -> None:
    with shaped_link(20.0, 'intradp-test-ros') as link:
        listener, _ = (start(node_on(link, side, module, strict=side == 'robot'))
                       for side in ('server', 'robot'))
        listener.wait_for_line('heard over the link', 60)


def node_on(link: ShapedLink, side: str, module: str, strict: bool) -> Command:
    arguments = ros_arguments(module, node=side, parameters={'strict': strict},
                              remappings={'words': '/speech'})
    return Command(side, arguments, prefix=link.exec_prefix(side),
                   environment={'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'})
