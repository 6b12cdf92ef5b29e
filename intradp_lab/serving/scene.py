# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Three sites and a dozen robots: the processes, links and requests of the demo."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
import secrets
import socket
import time
from typing import Any

import numpy as np
import torch

from intradp_lab.emulation import device_limits, network
from intradp_lab.emulation.device_limits import DeviceLimits, limited_devices
from intradp_lab.emulation.fleet_network import address, fleet_network
from intradp_lab.emulation.processes import ChildError
from intradp_lab.language.emulated_fleet import Talking
from intradp_lab.serving import robots_process, site_process
from intradp_lab.serving.robots_process import Requests
from intradp_lab.zoo.mobilenet_v2 import mobilenet_v2
from intradp_lab.zoo.video import frames
from intradp_ros.core.atomic_write import replacing, write_atomically
from intradp_ros.core.control_groups import CPU
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.graph.batch_ladder import as_run, capture_ladder, save_ladder

#: Pixels of a side of each service's picture, and the seconds that an answer is of use.
SERVICES = {'objects': (224, 0.8), 'glances': (128, 0.4)}
#: Shares of requests: by service, and by the site that robots stand at.
SHARES = {'objects': 0.4, 'glances': 0.6}
SITES = {'dock': 0.6, 'hall': 0.25, 'yard': 0.15}
ROBOTS, EXAMPLES = 12, 16
PORT = 8400
#: Seconds until all services are loaded; within which a process answers.
LOADING, ANSWER = 240.0, 20.0


@dataclass(frozen=True)
class Scene:
    """Sites and robots that run; `how` says what is emulated."""

    sites: Mapping[str, Talking]
    robots: Talking
    how: str
    homes: Sequence[str]

    def policy(self, name: str) -> None:
        """Let all sites that run choose sites in a way."""
        for talking in self._running().values():
            talking.ask(policy=name)
            talking.hear('policy', ANSWER)

    def states(self) -> dict[str, dict[str, Any]]:
        """Return what became of requests at each site that runs."""
        found = {}
        for name, talking in self._running().items():
            talking.ask(state=0)
            found[name] = talking.hear('state', ANSWER)['state']
        return found

    def _running(self) -> dict[str, Talking]:
        return {name: talking for name, talking in self.sites.items()
                if talking.process.poll() is None}

    def play(self, requests: Requests, folder: Path,
             meanwhile: Callable[[float], None] | None = None) -> dict[str, Any]:
        """Play requests; `meanwhile` is called with the time of their begin (monotonic)."""
        folder.mkdir(parents=True, exist_ok=True)
        requests.save(folder / 'requests.npz')
        self.robots.ask(play=str(folder))
        begun = float(self.robots.hear('begun', ANSWER)['begun'])
        if meanwhile:
            meanwhile(begun)
        self.robots.hear('played', float(requests.time[-1]) + 60.0)
        with np.load(folder / 'ends.npz') as file:
            return {name: file[name] for name in file.files}


def make_models(folder: Path, step: Callable[[str], None]) -> Path:
    """Write archives with batches, the services' file and examples; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model = mobilenet_v2().eval()
    lines = ['services:']
    examples: dict[str, Any] = {}
    for name, (side, deadline) in SERVICES.items():
        step(f'capturing MobileNetV2 for {side}x{side} pixels, in batches')
        ladder = capture_ladder(model, (torch.zeros(1, 3, side, side, dtype=torch.uint8),))
        save_ladder(ladder, folder / f'{name}.graph')
        lines.append(f'  {name}: {{model: {name}.graph, deadline: {1e3 * deadline:g} ms, '
                     f'inputs: {{image: uint8 3x{side}x{side}}}, '
                     'outputs: {logits: float32 1000}}')
        for k, frame in enumerate(frames(EXAMPLES, (side, side), every=10)):
            picture = np.ascontiguousarray(frame.transpose(2, 0, 1))
            examples[f'{name}/{k}/input'] = picture
            examples[f'{name}/{k}/output'] = as_run(ladder.one)(
                [torch.from_numpy(picture)[None]])[0][0].numpy()
    write_atomically(folder / 'services.yaml', '\n'.join(lines) + '\n')
    with replacing(folder / 'examples.npz') as part, part.open('wb') as stream:
        np.savez(stream, **examples)
    return folder


@contextmanager
def scene(folder: Path, models: Path, mbps: float, cores: float) -> Iterator[Scene]:
    """
    Run sites and robots until the context is left; all services are loaded when it begins.

    As root each site has a network namespace of its own and a part of the processor, and robots
    share `mbps` of air.

    :raises ChildError: if a process ends, or does not load in time.
    """
    lacking = network.available()
    names = [*SITES, 'robots']
    limits = {name: DeviceLimits(cpus=cores) for name in SITES}
    limiting = lacking is None and device_limits.available(CPU) is None
    with nullcontext() if lacking else fleet_network(names, mbps, wired=tuple(SITES)) as net, \
            limited_devices(limits, folder) if limiting else nullcontext() as groups:
        places = {name: f'{address(k)}:{PORT}' if net else f'127.0.0.1:{_free_port()}'
                  for k, name in enumerate(SITES)}
        started: list[Talking] = []

        def start(name: str, module: str, settings: Path) -> Talking:
            prefix = [*(groups.exec_prefix(name) if groups and name in SITES else []),
                      *(net.exec_prefix(name) if net else [])]
            started.append(Talking(Command(
                name, module_arguments(f'intradp_lab.serving.{module}', str(settings)),
                prefix=prefix), folder / f'{name}.log'))
            return started[-1]
        try:
            keys = _keys(folder, names)
            sites = {name: start(name, 'site_process', site_process.Settings(
                name, places, str(models / 'services.yaml'), str(folder / name),
                keys=keys['all'], key=keys[name]).written(
                    folder / f'{name}.json')) for name in SITES}
            homes = homes_of(ROBOTS)
            robots = start('robots', 'robots_process', robots_process.Settings(
                [[places[home], *(places[name] for name in SITES if name != home)]
                 for home in homes], list(SERVICES), str(models / 'examples.npz'),
                keys['robots']).written(folder / 'robots.json'))
            for name, site in sites.items():
                said = site.hear('ready', LOADING)
                if not said['ready']:
                    raise ChildError(f'{name} cannot load: {said["problems"]}')
            robots.hear('ready', LOADING)
            _meet(Scene(sites, robots, '', homes))
            how = (f'{len(SITES)} namespaces, robots share {mbps:g} Mbit/s of air' if net else
                   f'no emulated links: {lacking}') + (
                f'; each site has {cores:g} of a processor' if groups else '')
            yield Scene(sites, robots, how, homes)
        finally:
            for process in reversed(started):
                process.stop()


def _keys(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Write a key for each name, and a file of all keys; return the paths by name."""
    lines = {name: f'{name} {secrets.token_hex(24)}\n' for name in names}
    texts = {'all': ''.join(lines.values()), **lines}
    paths = {name: folder / f'{name}.key' for name in texts}
    for name, path in paths.items():
        path.touch(0o600)
        path.write_text(texts[name])
    return {name: str(path) for name, path in paths.items()}


def _meet(found: Scene) -> None:
    """Wait until all sites have heard of each other."""
    end = time.monotonic() + ANSWER
    while any(len(state['links']) < len(SITES) - 1 for state in found.states().values()):
        if time.monotonic() > end:
            raise ChildError('sites do not find each other')
        time.sleep(0.1)


def homes_of(robots: int) -> list[str]:
    """Return the site that each robot stands at, in shares as `SITES` says."""
    names = list(SITES)
    edges = np.cumsum(list(SITES.values()))
    return [names[int(np.searchsorted(edges, (k + 0.5) / robots))] for k in range(robots)]


def make_requests(rate: float, seconds: float, seed: int) -> Requests:
    """Return requests at random times, so many a second."""
    chance = np.random.default_rng(seed)
    count = max(1, int(chance.poisson(rate * seconds)))
    service = chance.choice(len(SERVICES), count, p=list(SHARES.values()))
    deadlines = np.array([deadline for _, deadline in SERVICES.values()])
    return Requests(np.sort(chance.uniform(0, seconds, count)), chance.integers(0, ROBOTS, count),
                    service, chance.integers(0, EXAMPLES, count), deadlines[service])


def capacities(states: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return requests a second of the demo's mix that each site can compute, as it promises."""
    found = {}
    for site, state in states.items():
        seconds = 0.0
        for name, share in SHARES.items():
            place = state['services'][name]['batches'][0]
            size = place['size']
            seconds += share * place['promised_ms'][str(size)] / 1e3 / size
        found[site] = 1 / seconds
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])
