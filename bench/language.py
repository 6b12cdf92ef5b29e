# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Language models over several devices, in figures: ``python bench/language.py PART ...``.

Parts (Linux, as root where devices are processes):

blocks    a token through the blocks: module by module, fused, matrices alone
batch     8 requests at once against one; 1,000 short requests, and the memory after them
at_once   8 requests at once against one, on three device processes with half a core each
tokens    5 prompts x 32 tokens x 3 devices: resident, streaming, moved, switched, killed
resident  SmolLM2 on three device processes with all weights in memory
wide      random weights of width 2048, bfloat16, on three device processes
settings  ours and a plain pipeline: 1000, 100, 20 Mbit/s x 3 memories x 2 disks (20 minutes)
ablations ours without the planner, and without steps for keys and values
changes   how long answers wait when layers move, with their keys and values or without
drafts    tokens a second with drafts and without, 20 Mbit/s: JSON, code, prose
streaming a third of the blocks in each memory, two disks: against reading, computing and hops
kills     20 kills at random moments, with requests in flight
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
import hashlib
import json
import math
from pathlib import Path
import random
import statistics
import tempfile
import time
from typing import Any

import torch

from intradp_lab.language.demo_scene import (
    FLOOR,
    kill_one,
    MB,
    measure_fleet,
    OURS,
    PLAIN,
    prepare,
    Prepared,
    Scene,
)
from intradp_lab.language.emulated_fleet import EmulatedDevice, language_fleet
from intradp_lab.language.reference import whole_answer, whole_model
from intradp_ros.blobs.store import BlobStore
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Medium, Topology
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.cache_folder import cache_folder
from intradp_ros.runtime.member.planner import Planner, Proposal
from intradp_ros.runtime.requests.admission import AdmissionLimits
from intradp_ros.systems.language.block_math import KvPages, LaneRun, LibraryBlocks
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.fused_blocks import FusedBlocks
from intradp_ros.systems.language.head import HeadPolicy
from intradp_ros.systems.language.import_model import load_tokenizer, store_model
from intradp_ros.systems.language.kernels import kernels
from intradp_ros.systems.language.lanes import Lane, Part
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.measure import measure_blocks
from intradp_ros.systems.language.planner import build, Choice, Share
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.systems.language.segment_plan import FORMAT, parse_plan, SegmentPlan

NAMES = ('rover', 'drone', 'dock')
PROMPTS = ('What is the capital of France?', 'Name three colours.', 'How does a robot see?',
           'Write one line about the sea.', 'Count from one to ten.')
RESIDENT = dict(zip(NAMES, (74 * MB, 42 * MB, 42 * MB)))
#: Times that answers with drafts and without are measured, and their tokens.
TIMES, DRAFTED = 5, 96
#: Settings to compare in: MB of each device, MB/s of each disk, Mbit/s of all links together.
MEMORIES, DISKS, RATES = ((64, 22, 22), (58, 17, 17), (70, 26, 14)), (200, 95), \
    (1000.0, 100.0, 20.0)


def opened(scene: Scene) -> Prepared:
    """Return SmolLM2, and what one process answers."""
    folder = cache_folder() / 'demo-language'
    folder.mkdir(parents=True, exist_ok=True)
    return prepare(folder, scene)


def blocks(folder: Path) -> dict[str, Any]:
    """Measure blocks, matrices and head on one thread; the least of 12."""
    torch.set_num_threads(1)
    made = opened(Scene(RESIDENT))
    manifest, store = made.manifest, made.store
    data = [_bytes(store, file.digest) for file in manifest.blocks]
    kinds = {'modules': LibraryBlocks(manifest), 'fused': FusedBlocks(manifest)}
    runs = {name: [kind.bind(k, file.views(data[k])) for k, file in enumerate(manifest.blocks)]
            for name, kind in kinds.items()}
    matrices = [t for file, own in zip(manifest.blocks, data)
                for t in file.views(own).values() if len(t.shape) == 2]
    kv = KvPages(manifest, range(manifest.layers), 64)
    best: dict[str, float] = {}
    with torch.inference_mode():
        for _ in range(12):
            for count in (1, 8):
                lane = Lane(tuple(Part(100, 1, tuple(range(8 * k, 8 * k + 7)))
                                  for k in range(count)))
                hidden = torch.randn(count, manifest.width)
                for name, all_ in runs.items():
                    run, start = LaneRun(lane, kv), time.perf_counter()
                    kinds[name].run(all_, hidden, run)
                    _least(best, f'{name}, {count} tokens', start)
                rows = {m.shape[1]: torch.randn(count, m.shape[1]) for m in matrices}
                start = time.perf_counter()
                for matrix in matrices:
                    kernels().product(rows[matrix.shape[1]], matrix)
                _least(best, f'matrices alone, {count} tokens', start)
    head = measure_blocks(manifest, store)
    return {**{name: 1e3 * seconds for name, seconds in best.items()}, 'head': 1e3 * head.head,
            'memory_rate': head.memory_rate}


def batch(folder: Path) -> dict[str, Any]:
    """Measure requests at once, on three devices of this process, all resident."""
    torch.set_num_threads(1)
    made = opened(Scene(RESIDENT))
    found: dict[str, Any] = {}
    stories = long_answers(made)
    for lanes in (1, 3):
        with local(made.manifest, made.store, 1, False, lanes) as fleet:
            rates: dict[int, list[float]] = {1: [], 8: []}
            for count in (1, 8, 1, 8, 1, 8):
                start = time.perf_counter()
                asked = [fleet.ask(story, 32) for story in stories[:count]]
                for answering in asked:
                    answering.wait(300)
                made_tokens = sum(len(answering.tokens) for answering in asked)
                rates[count].append(made_tokens / (time.perf_counter() - start))
            found[f'tokens/s with {lanes} lanes'] = {
                '1': max(rates[1]), '8': max(rates[8]), 'gain': max(rates[8]) / max(rates[1])}
    with local(made.manifest, made.store, 1, False) as fleet:
        before, firsts = _anonymous(), []
        for begin in range(0, 1000, 50):
            asked = [fleet.ask([(begin + k) % 1000 + 5, 17, 3], 2) for k in range(50)]
            firsts += [answering.wait(300).first_token_seconds for answering in asked]
            if begin == 100:
                before = _anonymous()
        found |= {'memory after 150 short requests, MB': before / MB,
                  'memory after 1000, MB': _anonymous() / MB,
                  'first token, median ms (50 at once)': 1e3 * statistics.median(firsts)}
    return found


def at_once(folder: Path) -> dict[str, Any]:
    """Measure requests at once on three device processes that have half a core each."""
    made = opened(Scene(RESIDENT))
    stories = long_answers(made)
    devices = [EmulatedDevice(name, memory, FLOOR + memory, 0.0, 0.5)
               for name, memory in zip(NAMES, (340 * MB, 220 * MB, 220 * MB))]
    rates: dict[int, list[float]] = {1: [], 8: []}
    firsts: dict[int, list[float]] = {1: [], 8: []}
    with language_fleet(folder, devices, made.store.folder, 1000.0, {
            **made.planning, 'kind': OURS, 'tokens': 1024}, patience=60.0) as fleet:
        for count in (1, 8, 1, 8, 1, 8):
            start = time.perf_counter()
            for number in range(count):
                fleet.head.ask(ask='text', id=number, max_tokens=32,
                               prompt_tokens=stories[number])
            ends = [fleet.head.hear('fate', 300.0) for _ in range(count)]
            seconds = time.perf_counter() - start
            assert all(end['fate'] == 'done' for end in ends), ends
            rates[count].append(sum(len(end['answer']) for end in ends) / seconds)
            firsts[count] += [end['first'] for end in ends]
    return {**{f'{count} at once, tokens/s': statistics.median(rates[count]) for count in rates},
            'gain': statistics.median(rates[8]) / statistics.median(rates[1]),
            **{f'first token of {count}, ms': 1e3 * statistics.median(firsts[count])
               for count in firsts}}


def tokens(folder: Path) -> dict[str, Any]:
    """Compare tokens and logits with one process, in five situations."""
    made = opened(Scene(RESIDENT))
    whole = whole_model(made.manifest, made.store)
    prompts = [chat_prompt(made, text) for text in PROMPTS]
    ends = frozenset((tokenizer_of(made).eos_token_id,))
    wanted = [whole_answer(whole, prompt, 32, ends) for prompt in prompts]
    found: dict[str, Any] = {}

    def compare(name: str, fleet: LocalLanguage, during: Callable[[Any, int], None]) -> None:
        ids, difference = hashlib.sha256(), 0.0
        for number, (prompt, (answer, logits)) in enumerate(zip(prompts, wanted)):
            got: list[torch.Tensor] = []
            answering = fleet.ask(prompt, 32, got)
            during(answering, number)
            answering.wait(300)
            assert answering.tokens == answer, f'{name}: other tokens'
            ids.update(json.dumps(answering.tokens).encode())
            difference = max(difference, max(
                float((a - b).abs().max()) for a, b in zip(got, logits)))
        found[name] = {'sha256': ids.hexdigest()[:16], 'difference': difference}

    def nothing(answering: Any, number: int) -> None:
        return

    def after(answering: Any, count: int) -> None:
        while len(answering.tokens) < count and answering.ended is None:
            time.sleep(0.001)
    with local(made.manifest, made.store, 1, False) as fleet:
        compare('resident', fleet, nothing)

        def switch(answering: Any, number: int) -> None:
            after(answering, 3)
            fleet.coordinator.propose(fleet_plan(fleet.costs, NAMES, 5 - 4 * (number % 2), True))
        compare('plan switched', fleet, switch)
    with local(made.manifest, made.store, 5, True) as fleet:
        compare('streaming', fleet, nothing)

        def move(answering: Any, number: int) -> None:
            after(answering, 3)
            fleet.coordinator.propose(replace(fleet_plan(
                fleet.costs, NAMES, 1, False, number % 3), cache='c', keeps=True))
        compare('layers moved', fleet, move)
    for number in range(len(prompts)):
        with local(made.manifest, made.store, 5, True) as fleet:
            def kill(answering: Any, k: int, one: int = number) -> None:
                if k == one:
                    after(answering, 3)
                    fleet.kill(NAMES[1 + one % 2])
            compare(f'killed in answer {number + 1}', fleet, kill)
    assert len({row['sha256'] for row in found.values()}) == 1
    return found


def resident(folder: Path) -> dict[str, Any]:
    """Measure SmolLM2 on three device processes with all weights in memory."""
    scene = Scene(RESIDENT, disk=0.0, mbit=1000.0, tokens=64)
    return _short(measure_fleet(opened(scene), scene, folder / 'resident', OURS, NAMES))


def wide(folder: Path) -> dict[str, Any]:
    """Measure a random model of width 2048 on three device processes."""
    torch.set_num_threads(1)
    scene = Scene(dict.fromkeys(NAMES, 450 * MB), disk=0.0, mbit=1000.0, tokens=32)
    store = BlobStore(folder / 'blobs', 1 << 44)
    width, inner, layers = 2048, 5632, 9
    shapes = {'self_attn.q_proj.weight': (width, width), 'self_attn.k_proj.weight': (512, width),
              'self_attn.v_proj.weight': (512, width), 'self_attn.o_proj.weight': (width, width),
              'mlp.gate_proj.weight': (inner, width), 'mlp.up_proj.weight': (inner, width),
              'mlp.down_proj.weight': (width, inner), 'input_layernorm.weight': (width,),
              'post_attention_layernorm.weight': (width,)}
    every = {f'model.layers.{k}.{name}': shape for k in range(layers)
             for name, shape in shapes.items()}
    every |= {'model.embed_tokens.weight': (8192, width), 'model.norm.weight': (width,)}

    def find(name: str) -> torch.Tensor:
        torch.manual_seed(len(name))
        shape = every[name]
        return torch.ones(shape) if len(shape) == 1 else \
            torch.randn(shape) * 1.2 / math.sqrt(shape[1])
    config = {'model_type': 'llama', 'hidden_size': width, 'intermediate_size': inner,
              'num_hidden_layers': layers, 'num_attention_heads': 32, 'num_key_value_heads': 8,
              'head_dim': 64, 'vocab_size': 8192, 'max_position_embeddings': 2048,
              'tie_word_embeddings': True, 'eos_token_id': None, 'rms_norm_eps': 1e-5}
    manifest = store_model('random, width 2048', config, find, tuple(every), store.put,
                           torch.bfloat16, None)
    prompt = list(range(5, 21))
    answer, logits = whole_answer(whole_model(manifest, store), prompt, scene.tokens, frozenset())
    torch.save(logits, folder / 'logits.pt')
    measured = measure_blocks(manifest, store)
    made = Prepared(manifest, store, prompt, answer, folder / 'logits.pt', {
        'model': manifest.digest, 'attention': measured.attention, 'mlp': measured.mlp,
        'blocks': measured.blocks, 'head_seconds': measured.head, 'hop': 1e-3, 'tokens': 512,
        'lane': 64}, '')
    found = measure_fleet(made, scene, folder / 'wide', OURS, NAMES)
    return {**_short(found), 'identical': found['tokens'] == answer,
            'bytes': manifest.nbytes}


def streaming(folder: Path) -> dict[str, Any]:
    """Measure three boards with memory for a third of the blocks each, at each disk."""
    found = {}
    for disk in DISKS:
        scene = Scene(dict(zip(NAMES, (m * MB for m in MEMORIES[0]))), disk * MB, 100.0, 32)
        got = measure_fleet(opened(scene), scene, folder / str(disk), OURS, NAMES)
        least = max(got['computing_and_hops_ms'], got['reading_ms'])
        found[f'{disk} MB/s'] = {
            'of the larger of both': got['ms_per_token'] / least,
            'predicted by measured': got['predicted_ms'] / got['ms_per_token'],
            **{key: got[key] for key in (
                'ms_per_token', 'predicted_ms', 'limit_ms', 'of_limit', 'computing_and_hops_ms',
                'reading_ms', 'binds', 'blocks', 'streamed', 'difference')}}
    return found


def settings(folder: Path) -> dict[str, Any]:
    """Measure ours and a plain pipeline at each rate, memory and disk."""
    found = {}
    for memory in MEMORIES:
        for disk in DISKS:
            for mbit in RATES:
                scene = Scene(dict(zip(NAMES, (m * MB for m in memory))), disk * MB, mbit, 12)
                made, row = opened(scene), {}
                for kind in (OURS, PLAIN):
                    where = folder / f'{memory}-{disk}-{mbit:g}-{kind}'.replace(' ', '')
                    got = measure_fleet(made, scene, where, kind, NAMES)
                    row[kind] = {key: got[key] for key in (
                        'ms_per_token', 'predicted_ms', 'limit_ms', 'x', 'difference',
                        'computing_and_hops_ms', 'reading_ms', 'binds')}
                row['gain'] = row[PLAIN]['ms_per_token'] / row[OURS]['ms_per_token']
                row['predicted gain'] = row[PLAIN]['predicted_ms'] / row[OURS]['predicted_ms']
                found[f'{memory} MB, {disk} MB/s, {mbit:g} Mbit/s'] = row
                print(json.dumps({f'{memory} {disk} {mbit:g}': row}), flush=True)
    return found


def ablations(folder: Path) -> dict[str, Any]:
    """Measure ours with something left out."""
    scene = Scene(dict(zip(NAMES, (200 * MB, 150 * MB, 120 * MB))), 200 * MB, 100.0, 16)
    made, found = opened(scene), dict[str, Any]()
    for kind in (OURS, 'last step', 'even', PLAIN):
        got = measure_fleet(made, scene, folder / kind.replace(' ', '-'), kind, NAMES)
        found[kind] = {key: got[key] for key in ('ms_per_token', 'predicted_ms', 'difference')}
        found[kind]['ms of ours'] = found[OURS]['ms_per_token'] / got['ms_per_token']
        print(json.dumps({kind: found[kind]}), flush=True)
    return found


def changes(folder: Path) -> dict[str, Any]:
    """Measure how long answers wait for another plan: layers move, or all is computed anew."""
    torch.set_num_threads(1)
    made, found = opened(Scene(RESIDENT)), dict[str, Any]()
    question = chat_prompt(made, 'Tell a long story of a robot that lost its dock. ' * 20)
    for keeps in (True, False):
        gaps = []
        with local(made.manifest, made.store, 1, False) as fleet:
            for number in range(6):
                times: list[float] = []
                answering = fleet.ask([number + 5, *question], 40)
                while answering.ended is None:
                    if len(answering.tokens) > len(times):
                        times.append(time.perf_counter())
                        if len(times) == 10:
                            fleet.coordinator.propose(replace(fleet_plan(
                                fleet.costs, NAMES, 1, False, number % 3), cache='c',
                                keeps=keeps))
                    time.sleep(0.0005)
                gaps.append(max(b - a for a, b in zip(times, times[1:])))
        found['longest gap, ms, ' + ('keys and values move' if keeps else 'computed anew')] = \
            1e3 * statistics.median(gaps)
    return found


def drafts(folder: Path) -> dict[str, Any]:
    """Measure answers with tokens looked up and without, in turn, on three devices."""
    scene = Scene(RESIDENT, disk=0.0, mbit=20.0, tokens=DRAFTED)
    made, found = opened(scene), dict[str, Any]()
    tokenizer = tokenizer_of(made)
    texts = {'JSON': 'Robots, one object each, all of them idle:\n[' + ',\n '.join(
                 f'{{"name": "robot{k}", "state": "idle", "battery": 81}}' for k in range(1, 6)),
             'code': 'for k in range(10):\n' + ''.join(
                 f'    print("value of x{k} is", x{k})\n' for k in range(5)),
             'prose': 'The old lighthouse keeper had never seen a storm like this one. He'}
    devices = [EmulatedDevice(name, scene.memory[name], FLOOR + scene.memory[name], 0.0)
               for name in NAMES]
    seconds: dict[tuple[str, int], list[float]] = {}
    rounds: dict[tuple[str, int], list[float]] = {}
    answers: dict[str, tuple[list[int], list[str]]] = {}
    with language_fleet(folder, devices, made.store.folder, scene.mbit,
                        {**made.planning, 'kind': 'language'}) as fleet:
        for number in range(1 + TIMES):
            for kind, text in texts.items():
                for most in (0, 7) if number % 2 else (7, 0):
                    fleet.head.ask(ask='drafts', most=most)
                    before = fleet.states()[NAMES[0]]['meter']['rounds']
                    end = fleet.answer(prompt_tokens=tokenizer(text).input_ids, bits=True,
                                       max_tokens=scene.tokens)
                    made_in = fleet.states()[NAMES[0]]['meter']['rounds'] - before
                    times, said = end['times'], (end['answer'], end['bits'])
                    assert answers.setdefault(kind, said) == said, f'{kind}: other tokens or bits'
                    if number:  # the first one measures what tokens cost
                        seconds.setdefault((kind, most), []).append(
                            (times[-1] - times[0]) / max(1, len(said[0]) - 1))
                        rounds.setdefault((kind, most), []).append(len(said[0]) / made_in)
        blocks_of = {name: len(parse_plan(state['in_use']).blocks_of(name))
                     for name, state in fleet.states().items()}
    for kind in texts:
        without, with_ = (statistics.median(seconds[kind, most]) for most in (0, 7))
        found[kind] = {'tokens/s without': 1 / without, 'tokens/s with drafts': 1 / with_,
                       'gain': without / with_, 'gains': [
                           a / b for a, b in zip(seconds[kind, 0], seconds[kind, 7])],
                       'tokens a round': statistics.median(rounds[kind, 7])}
    return {**found, 'blocks': blocks_of, 'same bits': True}


def kills(folder: Path) -> dict[str, Any]:
    """Kill a device 20 times at random moments of answers; none may be wrong or lost."""
    scene = Scene(dict(zip(NAMES, (250 * MB, 200 * MB, 200 * MB))), 0.0, 1000.0, 48)
    made, source = opened(scene), random.Random(0)
    found = []
    for number in range(20):
        killed = kill_one(made, scene, folder / f'kill-{number}',
                          after=source.randrange(1, 90), which=source.choice(NAMES[1:]))
        found.append(killed)
        print(json.dumps(killed), flush=True)
    return {'kills': len(found), 'requests': sum(k['requests'] for k in found),
            'lost': sum(k['lost'] for k in found),
            'identical': all(k['identical'] for k in found),
            'gap_ms, median': statistics.median(k['gap_ms'] for k in found),
            'gap_ms, most': max(k['gap_ms'] for k in found)}


class Scripted(Planner):
    """Makes one kind of plan for the devices that are there."""

    format = FORMAT  # noqa: A003

    def __init__(self, costs: LanguageCosts, segments: int, streamed: bool) -> None:
        self._costs, self._segments, self._streamed = costs, segments, streamed

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        """Return it."""
        names = tuple(name for name in NAMES if name in alive)
        return Proposal(replace(fleet_plan(self._costs, names, self._segments, self._streamed),
                                cache='c')) if names[:1] == NAMES[:1] else None


def fleet_plan(costs: LanguageCosts, names: tuple[str, ...], segments: int, streamed: bool,
               more: int = 0) -> SegmentPlan:
    """Return an even plan; of a streamed one each device reads half of its MLPs."""
    layers = costs.manifest.layers
    counts = [(k + 1) * layers // len(names) - k * layers // len(names)
              for k in range(len(names))]
    counts[more] += 2
    counts[(more + 1) % len(counts)] -= 2
    return build(costs, names[0], Choice(0.0, segments, {
        name: Share(count, 0, count // 2 if streamed else 0)
        for name, count in zip(names, counts)}))


def local(manifest: Manifest, store: BlobStore, segments: int, streamed: bool, lanes: int = 0,
          ) -> LocalLanguage:
    """Return three devices of this process with a plan."""
    plain = [Device(name) for name in NAMES]
    joined = behind_access_point(plain, 125e6)
    topology = Topology(tuple(replace(d, disk=f'disk {d.name}') for d in plain), joined.media
                        + tuple(Medium(f'disk {d.name}', 1e9) for d in plain), joined.paths)
    costs = LanguageCosts(manifest, topology, 3e-4, 8e-4, 6e-3, 5e-4, tokens=2048)
    made = LocalLanguage(costs, NAMES[0], Scripted(costs, segments, streamed), {NAMES[0]: store},
                         LanguageOptions(policy=HeadPolicy(
                             limits=AdmissionLimits(8, 64, 64), lanes=lanes)))
    made.wait_ready(120)
    return made


def tokenizer_of(made: Prepared) -> Any:
    """Return the model's tokenizer."""
    data = made.store.load(made.manifest.tokenizer.digest) if made.manifest.tokenizer else None
    assert data is not None
    return load_tokenizer(data)


def chat_prompt(made: Prepared, text: str) -> list[int]:
    """Return the tokens of a chat with one message."""
    return list(tokenizer_of(made).apply_chat_template(
        [{'role': 'user', 'content': text}], add_generation_prompt=True, tokenize=True,
        return_dict=False))


def long_answers(made: Prepared) -> list[list[int]]:
    """Return eight prompts that are answered at length."""
    return [chat_prompt(made, f'Write a long story about {who} and a lost robot.') for who in (
        'a girl', 'a whale', 'two brothers', 'the moon', 'an old ship', 'a king', 'a storm',
        'a cat')]


def _least(best: dict[str, float], name: str, start: float) -> None:
    best[name] = min(best.get(name, math.inf), time.perf_counter() - start)


def _bytes(store: BlobStore, digest: str) -> torch.Tensor:
    data = store.load(digest)
    assert data is not None
    return data.clone()


def _anonymous() -> int:
    for line in Path('/proc/self/status').read_text().splitlines():
        if line.startswith('RssAnon'):
            return 1024 * int(line.split()[1])
    return 0


def _short(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items()
            if key not in ('trace', 'tokens', 'warm', 'began')}


PARTS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    'blocks': blocks, 'batch': batch, 'at_once': at_once, 'tokens': tokens, 'resident': resident,
    'wide': wide, 'settings': settings, 'ablations': ablations, 'changes': changes,
    'drafts': drafts, 'streaming': streaming, 'kills': kills}


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('parts', nargs='+', choices=tuple(PARTS), metavar='PART')
    parser.add_argument('--json', type=result_file, metavar='FILE', help='write the figures')
    args = parser.parse_args()
    report = {}
    for part in args.parts:
        with tempfile.TemporaryDirectory() as folder:
            report[part] = PARTS[part](Path(folder))
        print(part, json.dumps(report[part], indent=1), flush=True)
    if args.json:
        write_atomically(args.json, json.dumps(report, indent=1))


if __name__ == '__main__':
    main()
