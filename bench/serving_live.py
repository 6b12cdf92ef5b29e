# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Live figures of serving on this machine: ``python bench/serving_live.py --json FILE``.

socket   processor milliseconds of the gateway for each request of 150 kB by an unchanged client of
         openpi, to a real executor, and the milliseconds that it adds at the median, for one
         client and for eight
together the rate of eight such clients over that of one, executors take t(8) = 2.4 t(1)
ray      answers in time of one site over those of Ray Serve, by turns on the same machine: times
         of batches as above, requests by chance, 0.8 and 2 times what batches of 8 can do; Ray
         Serve in the best of several settings (needs ``ray[serve]``, left out without it)
kills    three sites, one of which is killed again and again while robots ask: requests without a
         fate or with two, and when goodput is back at what the sites that are left can do
changes  robots change gateways each second, two sites of three are killed in turn (--minutes):
         frames that end out of order or never, and the KiB by which the site that stays and the
         robots grow in the last three quarters

Needs ``openpi-client`` (installed without its dependencies, which pin an old NumPy).
"""
from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
import json
import os
from pathlib import Path
import resource
import socket
from statistics import median
import tempfile
import threading
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from intradp_lab.cli.demo_serving import recovered_ms
from intradp_lab.language.emulated_fleet import Talking
from intradp_lab.serving.site_process import Settings
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.graph.batch_ladder import capture_ladder, save_ladder
from intradp_ros.nodes.serving.frame_order import Frame, FrameOrder
from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate, InferRequest
from intradp_ros.systems.serving.executor import emulated_answer
from intradp_ros.systems.serving.service import parse_services
from intradp_ros.systems.serving.site_functions import warmed
from intradp_ros.web.serving_client import ServingClient

PICTURE = (3, 224, 224)  # 150,528 bytes
SITES = ('dock', 'hall', 'yard')
POLICY = """
services:
  policy:
    model: emulated
    deadline: 2 s
    inputs: {image: uint8 3x224x224}
    outputs: {actions: float32 50x7}
    seconds: {1: 50 ms, 8: 120 ms}
"""
#: Two sites can do 0.9 of what robots ask for: t(4) = 32 ms, 125 a second each.
KILLED = """
services:
  detector:
    model: emulated
    deadline: 200 ms
    batches: [1, 2, 3, 4]
    inputs: {image: uint8 3x64x64}
    outputs: {boxes: float32 10x4}
    seconds: {1: 20 ms, 4: 32 ms}
"""
ASKED = 225.0


class Mean(nn.Module):
    """Next to no work on a picture."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return a number for each colour."""
        return image[:, :, ::16, ::16].float().mean((2, 3))


@contextmanager
def sites(folder: Path, services: str, names: tuple[str, ...],
          ) -> Iterator[tuple[dict[str, Talking], dict[str, str], Callable[[str], None]]]:
    """Run sites; yield their processes, addresses, and what starts one anew."""
    (folder / 'services.yaml').write_text(services)
    places = {name: f'127.0.0.1:{_free_port()}' for name in names}
    running: dict[str, Talking] = {}

    def start(name: str) -> None:
        settings = Settings(name, places, str(folder / 'services.yaml'), str(folder / name))
        running[name] = Talking(Command(name, module_arguments(
            'intradp_lab.serving.site_process',
            str(settings.written(folder / f'{name}.json')))), folder / f'{name}.log')
    for name in names:
        start(name)
    try:
        for process in running.values():
            assert process.hear('ready', 120.0)['ready']
        yield running, places, start
    finally:
        for process in running.values():
            process.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])


def processor_seconds(pid: int) -> float:
    """Return what a process has used, without its children."""
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def drive(address: str, clients: int, each: int, before: Callable[[], None] = lambda: None,
          ) -> tuple[list[float], float]:
    """Let unchanged clients ask one after another; return what each answer added, and the time."""
    from openpi_client.websocket_client_policy import WebsocketClientPolicy
    picture = np.random.default_rng(0).integers(0, 256, PICTURE).astype(np.uint8)
    added: list[float] = []
    ready = threading.Barrier(clients + 1)

    def ask() -> None:
        client = WebsocketClientPolicy(f'ws://{address}/policy')
        for _ in range(5):
            client.infer({'image': picture})
        ready.wait()
        for _ in range(each):
            start = time.perf_counter()
            answer = client.infer({'image': picture})
            took = time.perf_counter() - start
            added.append(1e3 * took - answer['serving']['compute_ms']
                         - answer['serving']['queue_ms'])
    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    before()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return added, time.perf_counter() - start


def socket_figures(folder: Path, each: int) -> dict[str, Any]:
    """Measure what the gateway costs for each request."""
    save_ladder(capture_ladder(Mean().eval(), (torch.zeros(1, *PICTURE, dtype=torch.uint8),)),
                folder / 'mean.graph')
    found: dict[str, Any] = {}
    with sites(folder, 'services:\n  policy: {model: mean.graph, deadline: 2 s, inputs: {image: '
               'uint8 3x224x224}, outputs: {colours: float32 3}}\n', ('dock',)) as (
            running, places, _):
        time.sleep(10.0)  # until the functions are compiled
        for clients in (1, 8):
            since = [0.0]
            pid = running['dock'].process.pid

            def before(since: list[float] = since, pid: int = pid) -> None:
                since[0] = processor_seconds(pid)
            added, _ = drive(places['dock'], clients, each // clients, before)
            found[f'{clients} clients'] = {
                'processor_ms': 1e3 * (processor_seconds(pid) - since[0]) / len(added),
                'added_median_ms': median(added)}
    return found


def together_figures(folder: Path, each: int) -> dict[str, float]:
    """Measure how the rate grows with the clients."""
    with sites(folder, POLICY, ('dock',)) as (_, places, _start):
        time.sleep(10.0)
        rates = [clients * each / drive(places['dock'], clients, each)[1] for clients in (1, 8)]
    return {'one_per_s': rates[0], 'eight_per_s': rates[1], 'ratio': rates[1] / rates[0]}


#: Of Ray Serve: requests that a replica holds, requests that may wait before it (-1: any number),
#: and seconds that a batch waits for more.  With 0 s it computes request by request.
QUEUES = {'default': (100, -1, 0.01), 'bounded': (16, 8, 0.01), 'patient': (16, 8, 0.05),
          'longer': (16, 8, 0.1)}
DEADLINE = 0.36  # three batches of 8
#: A share in time below this counts as this, where one is divided by it.
LEAST = 1e-3


def ray_figures(folder: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """Compare with Ray Serve; each system has the machine in turn."""
    import ray
    from ray import serve
    service, = parse_services(POLICY)
    port = _free_port()
    ray.init(include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options=serve.HTTPOptions(port=port, request_timeout_s=DEADLINE))
        for name, (ongoing, queued, wait) in QUEUES.items():
            serve.run(_deployment(serve, service.seconds, ongoing, queued, wait), name=name,
                      route_prefix=f'/{name}')
        with sites(folder, POLICY, ('dock',)) as (_, places, _start):
            time.sleep(10.0)
            urls = {'ours': f'http://{places["dock"]}/v2/models/policy/infer',
                    **{name: f'http://127.0.0.1:{port}/{name}' for name in QUEUES}}
            found: dict[str, Any] = {}
            for load in (0.8, 2.0):
                counts: dict[str, list[float]] = {name: [] for name in urls}
                for number in range(rounds):
                    for name, url in urls.items():
                        counts[name].append(asyncio.run(_ask_by_chance(
                            url, load * 8 / service.seconds[7], seconds, number)))
                shares = {name: median(each) for name, each in counts.items()}
                best = max(QUEUES, key=lambda name: shares[name])
                found[f'load {load}'] = {
                    'in_time': shares, 'best': best,
                    'ratio': shares['ours'] / max(shares[best], LEAST),
                    'ratios': [a / max(b, LEAST) for a, b in zip(counts['ours'], counts[best])]}
            return found
    finally:
        serve.shutdown()
        ray.shutdown()


def _deployment(serve: Any, seconds: Sequence[float], ongoing: int, queued: int,
                wait: float) -> Any:
    """Return an application that takes as long as a table, in batches of up to 8."""
    @serve.deployment(max_ongoing_requests=ongoing, max_queued_requests=queued,
                      ray_actor_options={'num_cpus': 0.1})
    class Policy:
        @serve.batch(max_batch_size=8, batch_wait_timeout_s=wait)  # type: ignore[untyped-decorator]
        async def run(self, pictures: list[bytes]) -> list[bytes]:
            await asyncio.sleep(seconds[len(pictures) - 1])
            return [bytes([sum(picture[:64]) % 127]) * 1400 for picture in pictures]

        async def __call__(self, request: Any) -> Any:
            from starlette.responses import Response
            return Response(await self.run(await request.body()))
    return Policy.bind()  # type: ignore[attr-defined]


async def _ask_by_chance(url: str, rate: float, seconds: float, seed: int) -> float:
    """Return the share of requests that are answered within the deadline."""
    import aiohttp
    head = json.dumps({'parameters': {'timeout': 1e6 * (DEADLINE - 0.01),
                                      'binary_data_output': True}, 'inputs': [
        {'name': 'image', 'shape': PICTURE, 'datatype': 'UINT8',
         'parameters': {'binary_data_size': 150528}}]}).encode()
    ours = url.endswith('infer')
    headers = {'Inference-Header-Content-Length': str(len(head))} if ours else {}
    body = (head if ours else b'') + bytes(150528)
    chance = np.random.default_rng(seed)
    sent = np.sort(chance.uniform(0, seconds, int(chance.poisson(rate * seconds))))
    good = [0]

    async def ask(session: aiohttp.ClientSession, at: float) -> None:
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        begun = time.monotonic()
        try:
            async with session.post(url, data=body, headers=headers) as answer:
                fine = answer.status == 200 and len(await answer.read()) >= 1400
        except (aiohttp.ClientError, asyncio.TimeoutError):
            return
        good[0] += fine and time.monotonic() - begun <= DEADLINE
    async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=2 * DEADLINE)) as session:
        start = time.monotonic() + 0.2
        await asyncio.gather(*(ask(session, start + float(at)) for at in sent))
    await asyncio.sleep(1.0)
    return good[0] / max(1, len(sent))


def kill_figures(folder: Path, kills: int) -> dict[str, Any]:
    """Kill a site again and again; each time another, started anew afterwards."""
    service, = parse_services(KILLED)
    rounds: list[Mapping[str, Any]] = []
    with sites(folder, KILLED, SITES) as (running, places, start):
        time.sleep(10.0)
        for number in range(kills):
            victim = SITES[number % len(SITES)]
            rounds.append(_kill_once(number, victim, running, places, service))
            running[victim].stop()
            start(victim)
            assert running[victim].hear('ready', 120.0)['ready']
            _meet(running)
    back = [one['recovered_ms'] for one in rounds]
    return {'kills': kills, 'requests': sum(one['requests'] for one in rounds),
            'lost': sum(one['lost'] for one in rounds),
            'doubled': sum(one['doubled'] for one in rounds),
            'wrong': sum(one['wrong'] for one in rounds), 'rounds': rounds,
            'worst_recovered_ms': None if None in back else max(back)}


def change_figures(folder: Path, minutes: float) -> dict[str, Any]:
    """Let robots change gateways while sites are killed and come again."""
    with sites(folder, KILLED, SITES) as (running, places, start):
        time.sleep(10.0)
        robots = [_Robot(places, k) for k in range(6)]
        begun, kills, moved = time.monotonic(), 0, 0
        grown: list[dict[str, int]] = []
        pids = {'robots': os.getpid(), SITES[0]: running[SITES[0]].process.pid}
        while (spent := time.monotonic() - begun) < 60 * minutes:
            for robot in robots:
                robot.ask()
            time.sleep(0.03)
            if spent > moved:
                robots[moved % len(robots)].move(moved)
                moved += 1
            if spent > 15 * (kills + 1):
                victim = SITES[1 + kills % 2]
                running[victim].kill()
                running[victim].stop()
                start(victim)
                kills += 1
            if len(grown) == 0 and spent > 15 * minutes:
                grown.append({name: _kibibytes(pid) for name, pid in pids.items()})
        time.sleep(2.0)
        grown.append({name: _kibibytes(pid) for name, pid in pids.items()})
        for robot in robots:
            robot.client.close()
        fates = sum((robot.order.counts for robot in robots), Counter[str]())
        return {'minutes': minutes, 'kills': kills, 'moves': moved,
                'frames': sum(robot.asked for robot in robots), **fates,
                'never': sum(robot.asked - robot.out for robot in robots),
                'out_of_order': sum(robot.wrong for robot in robots),
                'grown_kib': {name: grown[-1][name] - grown[0][name] for name in pids}}


class _Robot:
    """Asks for frames, and looks at the order in which they end."""

    def __init__(self, places: Mapping[str, str], number: int) -> None:
        self._places = list(places.values())
        self.client = ServingClient(self._of(number))
        self.order = FrameOrder(64, self._ended)
        self.asked = self.out = self.wrong = 0

    def _of(self, number: int) -> list[str]:
        first = number % len(self._places)
        return self._places[first:] + self._places[:first]

    def move(self, number: int) -> None:
        """Go to another gateway."""
        self.client.move(self._of(number))

    def ask(self) -> None:
        """Ask for a frame, if there is room."""
        if not self.order.wait_for_room(0.0):
            return
        now = time.monotonic()
        frame = Frame((), (), {'image': np.full((3, 64, 64), self.asked % 251, np.uint8)}, now,
                      now + 0.2)
        self.asked += 1
        self.order.begin(frame)
        self.client.submit(InferRequest('detector', frame.tensors, 0.2),
                           partial(self.order.end, frame))

    def _ended(self, frame: Frame) -> None:
        self.out += 1
        self.wrong += frame.number != self.out


def _kibibytes(pid: int) -> int:
    return int(Path(f'/proc/{pid}/statm').read_text().split()[1]) * resource.getpagesize() >> 10


def _meet(running: Mapping[str, Talking]) -> None:
    end = time.monotonic() + 30.0
    while True:
        for process in running.values():
            process.ask(state=0)
        states = [process.hear('state', 20.0)['state'] for process in running.values()]
        if all(len(state['links']) == len(SITES) - 1 for state in states):
            return
        assert time.monotonic() < end, 'sites do not find each other'
        time.sleep(0.1)


def _kill_once(number: int, victim: str, running: Mapping[str, Talking],
               places: Mapping[str, str], service: Any, seconds: float = 8.0) -> dict[str, Any]:
    chance = np.random.default_rng(number)
    count = int(chance.poisson(ASKED * seconds))
    sent = np.sort(chance.uniform(0, seconds, count))
    clients = [ServingClient([places[home], *(places[o] for o in SITES if o != home)])
               for home in SITES for _ in range(2)]
    ends: dict[int, InferEnd] = {}
    doubled, wrong = [0], [0]
    left = threading.Semaphore(0)
    start, killed = time.monotonic() + 0.2, -1.0
    for k in range(count):
        wait = start + float(sent[k]) - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        if killed < 0 and sent[k] > 0.4 * seconds:
            running[victim].kill()
            killed = time.monotonic() - start
        picture = np.full((3, 64, 64), k % 251, np.uint8)

        def heard(end: InferEnd, k: int = k) -> None:
            doubled[0] += k in ends
            ends[k] = end
            if end.fate is InferFate.IN_TIME:
                expected = emulated_answer(service, {'image': np.full((3, 64, 64), k % 251,
                                                                      np.uint8)})
                wrong[0] += not np.array_equal(end.tensors['boxes'], expected['boxes'])
            left.release()
        clients[int(chance.integers(len(clients)))].submit(
            InferRequest('detector', {'image': picture}, 0.2), heard)
    until = time.monotonic() + 3.0
    for _ in range(count):
        if not left.acquire(timeout=max(0.0, until - time.monotonic())):
            break
    for client in clients:
        client.close()
    good = np.array([k in ends and ends[k].fate is InferFate.IN_TIME for k in range(count)])
    return {'site': victim, 'requests': count, 'lost': count - len(ends),
            'doubled': doubled[0], 'wrong': wrong[0], 'in_time': int(good.sum()),
            'late': sum(end.fate is InferFate.LATE for end in ends.values()),
            'before': float(good[sent < killed].mean()),
            'after': float(good[sent > killed + 3.0].mean()),
            'recovered_ms': recovered_ms(sent, good, killed)}


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', choices=('socket', 'together', 'ray', 'kills', 'changes'))
    parser.add_argument('--each', type=int, default=1000, help='requests over the policy socket')
    parser.add_argument('--seconds', type=float, default=20.0, help='of a round against Ray')
    parser.add_argument('--rounds', type=int, default=5, help='against Ray')
    parser.add_argument('--kills', type=int, default=20)
    parser.add_argument('--minutes', type=float, default=20.0, help='of changes')
    parser.add_argument('--json', type=result_file)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warmed()
    parts: Mapping[str, Callable[[Path], Any]] = {
        'socket': lambda folder: socket_figures(folder, args.each),
        'together': lambda folder: together_figures(folder, 80),
        'ray': lambda folder: ray_figures(folder, args.seconds, args.rounds),
        'kills': lambda folder: kill_figures(folder, args.kills),
        'changes': lambda folder: change_figures(folder, args.minutes)}
    found = {}
    for name, measure in parts.items():
        if args.only == name or (args.only is None and (name != 'ray' or find_spec('ray'))):
            with tempfile.TemporaryDirectory(prefix='intradp-serving-') as folder:
                found[name] = measure(Path(folder))
            print(name, json.dumps({key: value for key, value in found[name].items()
                                    if key != 'rounds'}), flush=True)
    if args.json:
        write_atomically(args.json, json.dumps(found, indent=1))


if __name__ == '__main__':
    main()
