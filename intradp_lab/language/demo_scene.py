# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One question to SmolLM2 on three small emulated devices, answered in several ways.

None of the devices could hold the model.  Each way runs as real processes with limits of
memory and disk, over a shaped link; tokens and logits are compared with one process.  A way that
fails is a row that says by what; the others are measured all the same.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
import json
from pathlib import Path
import statistics
import time
from types import MappingProxyType
from typing import Any

import torch

from intradp_lab.emulation.device_limits import DeviceLimits, limited_devices
from intradp_lab.emulation.processes import ChildError
from intradp_lab.language.accelerate_process import forget, offload
from intradp_lab.language.emulated_fleet import (
    EmulatedDevice,
    language_fleet,
    Talking,
)
from intradp_lab.language.reference import whole_answer, whole_model
from intradp_lab.language.settings import costs_of
from intradp_ros.blobs.store import BlobStore
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.child_end import OUT_OF_MEMORY
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.estimate import play
from intradp_ros.systems.language.expert_reads import round_bytes
from intradp_ros.systems.language.import_model import import_model, load_tokenizer
from intradp_ros.systems.language.limits import DeviceRates, fleet_limit, plan_limit
from intradp_ros.systems.language.manifest import Manifest, read_manifest
from intradp_ros.systems.language.measure import measure_blocks
from intradp_ros.systems.language.segment_plan import parse_plan
from intradp_ros.systems.language.smollm2 import smollm2

MB = 1_000_000
QUESTION = 'Name three things that a robot should check before it leaves its dock.'
#: Bytes that a process takes without a plan: the interpreter, torch, transformers, DDS.
FLOOR = 520 * MB
OURS, PLAIN, ALONE, ACCELERATE = 'language', 'plain pipeline', 'one device', 'accelerate'
#: Seconds of a hop, and tokens, before any was measured.
_HOP = 1.2e-3
_WARM = 8
#: Answers until one is given by one plan; the last one counts.
_TRIES = 4
_TOKENS, _LANE = 512, 64
#: How much more memory a rival gets each time that it was killed for want of it, and how often.
_MORE, _TIMES = 1.5, 3
#: Seconds that a rival may take for its few tokens, and a device until both answers go on.
_RIVAL, _GOES_ON = 600.0, 240.0


@dataclass(frozen=True)
class Scene:
    """Devices with bytes for plans, bytes/s of each disk, Mbit/s of the air, tokens to answer."""

    memory: Mapping[str, int]
    disk: float = 200 * MB
    mbit: float = 100.0
    tokens: int = 32
    slow_tokens: int = 4


@dataclass(frozen=True)
class Prepared:
    """The model in blobs, the question in tokens, and what one process answers."""

    manifest: Manifest
    store: BlobStore
    prompt: list[int]
    answer: list[int]
    logits: Path
    planning: dict[str, Any]
    text: str


def prepare(folder: Path, scene: Scene) -> Prepared:
    """Import the model, once; measure its blocks; let one process answer."""
    store = BlobStore(folder / 'blobs', 1 << 44)
    known = folder / 'model'
    with suppress(OSError):
        digest = known.read_text()
    if not known.exists() or store.nbytes(digest) is None:
        digest = import_model(smollm2(), store.put, name='SmolLM2-135M-Instruct').digest
        write_atomically(known, digest)
    text = store.load(digest)
    assert text is not None
    manifest = read_manifest(bytes(text.numpy().data).decode(), digest)
    assert manifest.tokenizer
    data = store.load(manifest.tokenizer.digest)
    assert data is not None
    tokenizer = load_tokenizer(data)
    prompt = list(tokenizer.apply_chat_template(
        [{'role': 'user', 'content': QUESTION}], add_generation_prompt=True, tokenize=True,
        return_dict=False))
    model = whole_model(manifest, store)
    answer, logits = whole_answer(model, prompt, scene.tokens,
                                  frozenset((tokenizer.eos_token_id,)))
    kept = folder / f'logits-{scene.tokens}.pt'
    torch.save(logits, kept)
    del model
    measured = measure_blocks(manifest, store)
    return Prepared(manifest, store, prompt, answer, kept, {
        'model': digest, 'attention': measured.attention, 'mlp': measured.mlp,
        'blocks': measured.blocks, 'head_seconds': measured.head, 'hop': _HOP,
        'tokens': _TOKENS, 'lane': _LANE},
        tokenizer.decode(answer))


def measure_fleet(prepared: Prepared, scene: Scene, folder: Path, kind: str,
                  names: Sequence[str]) -> dict[str, Any]:
    """Return figures of a fleet that answers the question with plans of a kind."""
    devices = [EmulatedDevice(name, scene.memory[name], FLOOR + scene.memory[name], scene.disk)
               for name in names]
    planning = {**prepared.planning, 'kind': {PLAIN: 'plain', ALONE: 'language'}.get(kind, kind)}
    with language_fleet(folder, devices, prepared.store.folder, scene.mbit, planning) as fleet:
        rates = fleet.rates()
        fleet.answer(prompt_tokens=prepared.prompt, max_tokens=1)  # all have their layers
        for device in fleet.devices.values():
            device.ask(ask='trace')
        warm = fleet.answer(prompt_tokens=prepared.prompt, max_tokens=_WARM)
        costs = _costs(planning, scene, names, prepared)
        states = fleet.states()
        for _ in range(_TRIES):  # a plan that changes meanwhile is measured anew
            before, plan = states, parse_plan(states[names[0]]['in_use'])
            predicted = play(plan, _measured(costs, states, rates))
            began = time.time()
            end = fleet.answer(prompt_tokens=prepared.prompt, max_tokens=scene.tokens,
                               logits=str(prepared.logits))
            states = fleet.states()
            if parse_plan(states[names[0]]['in_use']) == plan:
                break
        fleet.check()
        rates = _best(rates, fleet.rates())
    if len(end['times']) < 2:
        raise ChildError(f'{kind}: {_fate(end)}')
    gaps = sorted(1e3 * (b - a) for a, b in zip(end['times'], end['times'][1:]))
    streaming = any(plan.streamed(name) for name in plan.slots)
    # a disk that is limited reads in bursts and pauses: its rate bounds no token, but all together
    measured = statistics.fmean(gaps) if streaming else statistics.median(gaps)
    fastest = gaps[len(gaps) // 10]
    hop = _hop(states, began)
    for name, state in states.items():
        rates[name]['disk_rate'] = max(rates[name]['disk_rate'], _read_rate(
            state['trace'], began, len(plan.streamed(name)),
            round_bytes(plan, prepared.manifest, name)))
    device_rates = {name: DeviceRates(r['memory_rate'], r['disk_rate'], scene.memory[name])
                    for name, r in rates.items()}
    context = len(prepared.prompt) + len(prepared.answer)
    limit = plan_limit(plan, prepared.manifest, device_rates, hop, context)
    whole = fleet_limit(prepared.manifest, device_rates, hop, names[0], context)
    meters = {name: {key: count - before[name]['meter'][key] for key, count in s['meter'].items()}
              for name, s in states.items()}
    rounds = max(1, *(meter['rounds'] for meter in meters.values()))
    drawing = statistics.median([stop - start for text, start, stop in states[names[0]]['trace']
                                 if text[0] == 'D' and start > began] or [0.0])
    computing = sum(meter['computing'] for meter in meters.values()) / rounds \
        + plan.hops * hop + drawing
    reading = max(round_bytes(plan, prepared.manifest, name) / rates[name]['disk_rate']
                  for name in names)
    return {
        'ms_per_token': measured, 'ms_of_fastest_tenth': fastest,
        'predicted_ms': 1e3 * predicted.seconds,
        'limit_ms': 1e3 * limit.seconds, 'x': measured / (1e3 * limit.seconds),
        'of_limit': 1e3 * limit.seconds / measured, 'binds': limit.binds,
        'fleet_limit_ms': 1e3 * whole.seconds, 'x_fleet': measured / (1e3 * whole.seconds),
        'computing_and_hops_ms': 1e3 * computing, 'reading_ms': 1e3 * reading,
        'peak_mb': {name: s['peak'] / MB for name, s in states.items()},
        'limit_mb': {d.name: d.limit / MB for d in devices},
        'streamed': {name: len(plan.streamed(name)) for name in names},
        'blocks': {name: len(plan.blocks_of(name)) for name in names},
        'hop_ms': 1e3 * hop, 'rates': rates,
        'per_token': {name: {
            'computing_ms': 1e3 * meter['computing'] / rounds,
            'disk_ms': 1e3 * meter['disk'] / rounds, 'peers_ms': 1e3 * meter['peers'] / rounds,
            'sent_kb': meter['sent'] / rounds / 1e3,
            'received_kb': meter['received'] / rounds / 1e3} for name, meter in meters.items()},
        'tokens': end['answer'], 'difference': end['difference'], 'bits': end['bits'],
        'first_ms': 1e3 * end['first'], 'began': began, 'warm': warm['answer'],
        'trace': {name: s['trace'] for name, s in states.items()}}


def measure_accelerate(prepared: Prepared, scene: Scene, folder: Path, name: str,
                       offloaded: Path, limit: int) -> dict[str, Any]:
    """Return figures of accelerate's `disk_offload` with a device's disk and bytes of memory."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (offloaded / 'index.json').exists():
        offload(prepared.store, prepared.manifest.digest, offloaded)
    forget(offloaded)
    with limited_devices({name: DeviceLimits(0.0, limit, scene.disk)},
                         prepared.store.folder) as groups:
        child = Talking(Command(ACCELERATE, module_arguments(
            'intradp_lab.language.accelerate_process', str(prepared.store.folder),
            prepared.manifest.digest, str(offloaded), json.dumps(prepared.prompt),
            str(scene.slow_tokens)), groups=groups.of(name)),
            folder / f'{ACCELERATE}-{limit / MB:.0f}.log')
        try:
            end = child.hear('fate', _RIVAL)
        finally:
            child.stop()
    measured = 1e3 * statistics.median(b - a for a, b in zip(end['times'], end['times'][1:]))
    return {'ms_per_token': measured, 'predicted_ms': None, 'limit_ms': None, 'x': None,
            'peak_mb': {name: end['peak'] / MB}, 'limit_mb': {name: limit / MB},
            'tokens': end['answer'], 'difference': None}


def kill_one(prepared: Prepared, scene: Scene, folder: Path, after: int = 0, which: str = '',
             ) -> dict[str, Any]:
    """
    Kill a device in the middle of two answers; return what became of them.

    That is the last one, after half of one answer's tokens in both, where nothing is said.
    """
    names = list(scene.memory)
    devices = [EmulatedDevice(name, scene.memory[name], FLOOR + scene.memory[name], scene.disk)
               for name in names]
    killed = which or names[-1]
    ends: list[dict[str, Any]] = []
    with language_fleet(folder, devices, prepared.store.folder, scene.mbit,
                        {**prepared.planning, 'kind': 'language'}, patience=30.0) as fleet:
        fleet.answer(prompt_tokens=prepared.prompt, max_tokens=1)  # the head has its plan
        for number in (1, 2):
            fleet.head.ask(ask='text', id=number, prompt_tokens=prepared.prompt,
                           max_tokens=scene.tokens, logits=str(prepared.logits))
        said = 0
        while said < (after or scene.tokens // 2) and len(ends) < 2:
            heard = fleet.head.hear('id', _GOES_ON)
            said += 'text' in heard
            ends += [heard] if 'fate' in heard else []
        fleet.devices[killed].kill()
        while len(ends) < 2:
            ends.append(fleet.head.hear('fate', _GOES_ON))
    gaps = [b - a for end in ends for a, b in zip(end['times'], end['times'][1:])]
    lost = [end for end in ends if end['fate'] not in ('done', 'resumed')]
    return {'requests': len(ends), 'lost': len(lost), 'gap_ms': 1e3 * max(gaps, default=0.0),
            'identical': all(_same(end['answer'], prepared.answer) for end in ends),
            'bits': [end['bits'] for end in ends], 'fates': [end['fate'] for end in ends]}


def _best(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]],
          ) -> dict[str, dict[str, Any]]:
    """Return the higher rates of two measurements: what a machine can do, it can always."""
    return {name: {key: max(before[name][key], after[name][key])
                   for key in ('memory_rate', 'disk_rate')} for name in before}


def _read_rate(trace: Sequence[tuple[str, float, float]], began: float, blocks: int,
               nbytes: float) -> float:
    """Return the bytes a second that a disk gave in a run; `nbytes` have so many blocks."""
    loads = [(start, end) for text, start, end in trace
             if text[0] == 'L' and '>' not in text and start > began]
    if not loads or not blocks:
        return 0.0
    return nbytes / blocks * len(loads) / (max(end for _, end in loads)
                                           - min(start for start, _ in loads))


def _costs(planning: Mapping[str, Any], scene: Scene, names: Sequence[str],
           prepared: Prepared) -> LanguageCosts:
    return costs_of({**planning, 'store': str(prepared.store.folder), 'mbit': scene.mbit,
                     'devices': [{'name': name, 'memory': scene.memory[name],
                                  'disk': scene.disk or 1e9} for name in names]})


def _measured(costs: LanguageCosts, states: Mapping[str, Mapping[str, Any]],
              rates: Mapping[str, Mapping[str, Any]]) -> LanguageCosts:
    """Return costs as they were measured in the first tokens."""
    kinds: tuple[list[float], list[float], list[float]] = ([], [], [])
    for state in states.values():
        for text, start, stop in state['trace']:
            if text[0] == 'R':
                kinds[int(text[1:].split('.')[0]) % 2].append(stop - start)
            elif text[0] == 'D':
                kinds[2].append(stop - start)
    attention, mlp, head = (statistics.median(k) if k else 0.0 for k in kinds)
    media = tuple(replace(m, bytes_per_second=rates[m.name.split()[-1]]['disk_rate'])
                  if m.name.startswith('disk of') else m for m in costs.topology.media)
    ways = [replace(costs, hop=0.0).hop_seconds(a, b) for a in states for b in states if a != b]
    hop = max(0.0, _hop(states, 0.0) - statistics.mean(ways)) if ways else 0.0
    return replace(costs, attention=attention, mlp=mlp, head=head, hop=hop, blocks=(),
                   topology=replace(costs.topology, media=media))


def _hop(states: Mapping[str, Mapping[str, Any]], since: float) -> float:
    """Return the median seconds from a hidden state's sending to when it was waited for."""
    sent: dict[tuple[str, str], list[float]] = {}
    for state in states.values():
        for text, start, _ in state['trace']:
            if text[0] == 'S' and start > since:
                what, target = text[1:].split('>')
                sent.setdefault((what, target), []).append(start)
    hops = []
    for name, state in states.items():
        for text, start, stop in state['trace']:
            if text[0] == 'A':
                begun = [t for t in sent.get((text[1:].split('<')[0], name), ())
                         if start < t < stop]
                hops += [stop - begun[-1]] if begun else []
    return statistics.median(hops) if hops else 0.0


def _same(tokens: Sequence[int], wanted: Sequence[int]) -> bool:
    return list(tokens) == list(wanted)


def _fate(end: Mapping[str, Any]) -> str:
    """Return in words what became of an answer that did not come."""
    return f'the request was {end["fate"]}' + (f': {end["reason"]}' if end.get('reason') else '')


def run_scene(folder: Path, cache: Path, scene: Scene, say: Callable[[str], None],
              ) -> dict[str, Any]:
    """
    Run everything; return the report, with the traces of ours under "trace".

    What fails is said under "failed", of a system or of the kill.

    :raises NetworkError, LimitError: if the system refuses namespaces or limits.
    """
    names = list(scene.memory)
    say('importing the model, and asking one process')
    prepared = prepare(cache, scene)
    systems: dict[str, dict[str, Any]] = {}
    for kind, who in ((OURS, names), (PLAIN, names), (ALONE, names[:1])):
        say(f'asking: {kind}')
        limits = {name: (FLOOR + scene.memory[name]) / MB for name in who}
        systems[kind] = _measured_or_failed(limits, partial(
            measure_fleet, prepared, scene, folder / kind.replace(' ', '-'), kind, who))
    say(f'asking: {ACCELERATE}')
    systems |= rival_rows(ACCELERATE, names[0], FLOOR + scene.memory[names[0]], lambda limit:
                          measure_accelerate(prepared, scene, folder / ACCELERATE, names[0],
                                             cache / 'offloaded', limit))
    say('killing a device in the middle of two answers')
    killed = _measured_or_failed({}, lambda: kill_one(prepared, scene, folder / 'killed'))
    ours = systems[OURS]
    answered = [s for s in systems.values() if not s['failed']]
    bits = [s.pop('bits') for s in answered if 'bits' in s] + killed.pop('bits', [])
    return {'prompts': 1, 'question': QUESTION, 'answer': prepared.text,
            'tokens': len(prepared.answer),
            'identical': all(_same(s['tokens'], prepared.answer[:len(s['tokens'])])
                             for s in answered),
            'max_logit_diff': max((s['difference'] or 0.0 for s in answered), default=0.0),
            'bit_equal': bool(bits) and all(each and each == bits[0] for each in bits),
            'model': {'stored_mb': prepared.manifest.nbytes / MB,
                      'types': list(prepared.manifest.types)},
            'trace': ours.pop('trace', {}), 'began': ours.pop('began', 0.0), 'systems': systems,
            'killed': killed, 'mbit': scene.mbit, 'disk': scene.disk or 1e9}


#: What a row has that was not measured.
_BLANK: Mapping[str, Any] = MappingProxyType({
    'ms_per_token': None, 'predicted_ms': None, 'limit_ms': None, 'x': None, 'difference': None})


def _measured_or_failed(limit_mb: Mapping[str, float], measure: Callable[[], dict[str, Any]],
                        ) -> dict[str, Any]:
    """Return what is measured, or a row that says by what it failed; it never raises that."""
    try:
        return measure() | {'failed': ''}
    except (ChildError, ImportError, OSError) as error:
        what = error.what if isinstance(error, ChildError) else str(error)
        return {**_BLANK, 'peak_mb': {}, 'limit_mb': dict(limit_mb), 'tokens': [],
                'failed': what, 'log': str(error)}


def rival_rows(name: str, device: str, limit: int, measure: Callable[[int], dict[str, Any]],
               ) -> dict[str, dict[str, Any]]:
    """
    Return the rows of a rival that is one process on a device, with `limit` bytes of memory.

    Where it was killed for want of memory it gets more until it answers: a row of its own, which
    says what it takes.
    """
    rows: dict[str, dict[str, Any]] = {}
    first = limit
    for _ in range(1 + _TIMES):
        label = name if limit == first else f'{name}, {limit / MB:.0f} MB'
        row = rows[label] = _measured_or_failed({device: limit / MB}, partial(measure, limit))
        if not row['failed'].startswith(OUT_OF_MEMORY):
            break
        limit = round(_MORE * limit)
    if rows[name]['failed'] and not row['failed']:
        rows[name]['failed'] += (f': below what it takes by itself, {row["peak_mb"][device]:.0f} '
                                 f'MB and its files')
    return rows
