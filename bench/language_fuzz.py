# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
100,000 requests of strangers to a language model: ``python bench/language_fuzz.py``.

80,000 go to the OpenAI endpoint (in this process, without sockets), 20,000 to a real action
server.  Each has one answer, memory stays, and the model answers as before.

Before them come 3,000 files of models with sizes, offsets, types and texts that lie
(``--only files``).  Each is a model, or is refused: within seconds, for few MB, and with
nothing left in the store.
"""
from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
import importlib
import json
import math
from pathlib import Path
import random
import shutil
import sys
import tempfile
import threading
import time
from typing import Any

import torch

from intradp_lab.language.reference import whole_answer, whole_model
from intradp_ros.blobs.store import BlobStore
from intradp_ros.runtime.requests.admission import AdmissionLimits, ClientRates, Fate
from intradp_ros.systems.language.head import HeadPolicy
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.web.access import Clients
from intradp_ros.web.guard import Guard
from intradp_ros.web.openai_api import openai_app

sys.path.append(str(Path(__file__).resolve().parents[1] / 'test'))  # small random models

small = importlib.import_module('language_models')
gguf_files = importlib.import_module('gguf_files')
hostile = importlib.import_module('hostile_models')
save_tiny_model = importlib.import_module('tiny_language_model').save_tiny_model

MB = 1e6
#: Requests in flight at once; seconds in which they must have ended.
AT_ONCE, PATIENCE = 20, 60.0


def fuzz(folder: Path, scale: float) -> dict[str, Any]:
    """Send requests of strangers to endpoint and action; each must have one answer."""
    torch.set_num_threads(1)
    store = BlobStore(folder / 'blobs', 1 << 40)
    manifest = import_model(save_tiny_model(folder / 'model'), store.put)
    given = replace(small.costs(manifest, 2), tokens=1024)
    with LocalLanguage(given, 'a', small.Scripted(given, 1, False), {'a': store}, LanguageOptions(
            policy=HeadPolicy(limits=AdmissionLimits(8, 32, 1 << 20)))) as fleet:
        fleet.wait_ready()
        found = {'endpoint': fuzz_endpoint(fleet.head, round(80000 * scale)),
                 'action': fuzz_action(fleet.head, round(20000 * scale))}
        good = fleet.ask([5, 6, 7], 8)
        assert good.wait(60).fate is Fate.DONE
        assert good.tokens == whole_answer(whole_model(manifest, store), [5, 6, 7], 8,
                                           frozenset())[0]
        state = fleet.head.state()
        assert not state.serving and not state.waiting
        found['fates'] = state.fates
    return found


def fuzz_files(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Import files of which parts are other ones; say what became of them, and the costliest."""
    source = random.Random(seed)
    model = small.tiny_model(folder / 'tiny')[2]
    model.save_pretrained(folder / 'first')
    model.save_pretrained(folder / 'first-shards', max_shard_size='20KB')
    save_tiny_model(folder / 'first-text')
    path = gguf_files.write_gguf(folder / 'first.gguf', model)
    good = hostile.Gguf.read(path)
    for each in ('first', 'first-shards', 'first-text', 'first.gguf'):
        assert not hostile.outcome(folder / each, folder / 'warm')[0]
    ends: dict[str, int] = {}
    costly, slow = (0.0, ''), (0.0, '')
    for number in range(count):
        kind = source.choice(('first.gguf', 'first', 'first-shards', 'first-text'))
        changed = folder / f'changed{Path(kind).suffix}'
        if kind == 'first.gguf':
            changed.write_bytes(hostile.any_gguf(good, source))
        else:
            shutil.rmtree(changed, ignore_errors=True)
            shutil.copytree(folder / kind, changed)
            _change_folder(changed, source)
        try:
            said, grown, seconds = hostile.outcome(changed, folder / 'blobs')
        except BaseException:
            kept = Path(tempfile.gettempdir()) / f'language-file-{seed}-{number}'
            changed.rename(kept)
            print(f'kept as {kept}', file=sys.stderr)
            raise
        name = f'{kind}: {"refused" if said else "a model"}'
        ends[name] = ends.get(name, 0) + 1
        costly, slow = max(costly, (grown, said)), max(slow, (seconds, said))
    assert costly[0] < 200 and slow[0] < 60, (costly, slow)
    return {'files': count, 'ends': ends, 'most MB': costly, 'most seconds': slow}


def _change_folder(folder: Path, source: random.Random) -> None:
    path = source.choice(sorted(folder.iterdir()))
    if source.random() < 0.1:
        data = path.read_bytes()
        at = source.randrange(len(data))
        path.write_bytes(data[:at] + source.choice((b'', source.randbytes(9) + data[at + 9:])))
    elif path.suffix == '.safetensors':
        header, data = hostile.parts(path.read_bytes())
        path.write_bytes(hostile.safetensors(hostile.any_json(header, source), data))
    elif path.suffix == '.json':
        path.write_text(json.dumps(hostile.any_json(json.loads(path.read_text()), source)))


def fuzz_endpoint(model: Any, count: int) -> dict[str, Any]:
    """Send bodies of all kinds through the application, without sockets; count the answers."""
    app = Guard(openai_app(model), Clients(None, ClientRates(1e9, 1 << 30)))
    source = random.Random(0)
    statuses: dict[str, int] = {}
    good: dict[str, Any] = {
        'model': model.name, 'messages': [{'role': 'user', 'content': 'hello'}],
        'prompt': 'hello', 'max_tokens': 2, 'temperature': 0.5, 'top_p': 0.9, 'top_k': 3,
        'seed': 1, 'stop': ['x'], 'stream': False, 'n': 1, 'deadline': 5.0, 'priority': 0,
        'response_format': {'type': 'text'}}

    async def one(number: int) -> None:
        body = dict(good)
        for _ in range(source.choice((0, 0, 1, 1, 2, 5))):
            body[source.choice([*good, 'tools', 'logit_bias', 'x' * 50])] = strange(source)
        data = json.dumps(body).encode(errors='surrogatepass')
        if source.random() < 0.2:
            place = source.randrange(len(data))
            data = data[:place] + bytes(source.randrange(256) for _ in range(
                source.randrange(20))) + data[place + source.randrange(20):]
        path = source.choice(['/v1/chat/completions'] * 6 + ['/v1/completions'] * 4 + [
            '/v1/models/' + str(strange(source))[:200], '/v1/models', '/health', '/'])
        leaves = source.random() < 0.1
        got: list[Any] = []
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if not given:
                given = True
                return {'type': 'http.request', 'body': data, 'more_body': False}
            await asyncio.sleep(0 if leaves else 60)
            return {'type': 'http.disconnect'}

        async def send(message: Any) -> None:
            if message['type'] == 'http.response.start':
                got.append(message['status'])
        await app({'type': 'http', 'asgi': {'version': '3.0'}, 'http_version': '1.1',
                   'method': source.choice(['POST'] * 18 + ['GET', 'PUT']), 'scheme': 'http',
                   'path': path, 'raw_path': path.encode(errors='replace'), 'query_string': b'',
                   'root_path': '', 'client': ('127.0.0.1', number % 60000), 'server': ('x', 1),
                   'headers': [(b'content-type', b'application/json'),
                               (b'content-length', str(len(data)).encode())]}, receive, send)
        assert len(got) <= 1
        name = str(got[0]) if got else 'gone'
        statuses[name] = statuses.get(name, 0) + 1

    async def all_() -> int:
        before = 0
        for begin in range(0, count, 20):
            await asyncio.wait_for(asyncio.gather(*(one(k) for k in range(begin, begin + 20))), 60)
            if begin == count // 5 // 20 * 20:
                before = _anonymous()
        return before
    start = time.perf_counter()
    before = asyncio.run(all_())
    return {'requests': count, 'statuses': dict(sorted(statuses.items())),
            'memory after a fifth, MB': before / MB, 'at the end, MB': _anonymous() / MB,
            'seconds': time.perf_counter() - start}


def fuzz_action(model: Any, count: int) -> dict[str, Any]:
    """Send goals of all kinds to a real action server; count the ends."""
    import rclpy
    from rclpy.action.client import ActionClient
    from rclpy.executors import SingleThreadedExecutor

    from intradp_ros.action import GenerateResponse
    from intradp_ros.msg import SamplingConfig
    from intradp_ros.nodes.language.text_actions import TextActions
    source, ends = random.Random(1), dict[str, int]()
    context = rclpy.Context()
    rclpy.init(context=context)
    server, asker = (rclpy.create_node(name, context=context) for name in ('served', 'asker'))
    actions = TextActions(server, model, 2)
    client: Any = ActionClient(asker, GenerateResponse, '/served/generate_response')
    executors = [SingleThreadedExecutor(context=context) for _ in range(2)]
    for executor, node in zip(executors, (server, asker)):
        executor.add_node(node)
        threading.Thread(target=executor.spin, daemon=True).start()
    assert client.wait_for_server(20)

    def ended(future: Any) -> Any:
        over = threading.Event()
        future.add_done_callback(lambda _: over.set())
        assert over.wait(60), 'no end'
        return future.result()
    before, start = 0, time.perf_counter()
    for begin in range(0, count, 10):
        sent = []
        for _ in range(10):
            text = ''.join(chr(source.choice((0, 10, 65, 233, 8364, 128512)) or 97)
                           for _ in range(source.choice((0, 1, 8, 40, 2000))))
            def mostly(usual: Any, *others: Any) -> Any:
                return source.choice(others) if source.random() < 0.1 else usual
            sent.append(client.send_goal_async(GenerateResponse.Goal(
                prompt=text, max_tokens=mostly(2, 0, -1, (1 << 31) - 1),
                stop=[text[:3]] * mostly(0, 1, 40), priority=source.choice((0, 1, -5, 1 << 30)),
                deadline=mostly(0.0, 5.0, -1.0, math.inf, math.nan, 1e-9),
                sampling_config=SamplingConfig(
                    temp=mostly(1.0, 0.0, -1.0, math.nan, 1e30),
                    top_k=mostly(0, 5, -3, (1 << 31) - 1),
                    top_p=mostly(1.0, 0.5, 0.0, 2.0, math.nan), seed=source.randrange(1 << 32),
                    grammar_schema=mostly('', '{', '{"type": 5}', '[]', '{"type": "object"}')))))
        for future in sent:
            goal = ended(future)
            if not goal.accepted:
                name = 'rejected'
            else:
                if source.random() < 0.1:
                    goal.cancel_goal_async()
                name = f'status {ended(goal.get_result_async()).status}'
            ends[name] = ends.get(name, 0) + 1
        _forget(client)
        if begin == count // 5 // 10 * 10:
            before = _anonymous()
    found = {'goals': count, 'ends': ends, 'memory after a fifth, MB': before / MB,
             'at the end, MB': _anonymous() / MB, 'seconds': time.perf_counter() - start}
    actions.close()
    for executor in executors:
        executor.shutdown()
    context.shutdown()
    return found


def _forget(client: Any) -> None:
    """
    Drop the futures that no answer will complete.

    For each goal the client of rclpy (kilted) makes two and forgets the first: 10 MB in 16,000
    goals, which are not the server's.
    """
    with client._lock:
        awaited = {*client._pending_goal_requests.values(),
                   *client._pending_result_requests.values(),
                   *client._pending_cancel_requests.values()}
        for future in [each for each in client._futures if each not in awaited]:
            client.remove_future(future)


def strange(source: random.Random) -> Any:
    """Return a value that nobody expects."""
    return source.choice((
        None, True, -1, 0, 1e308, 1 << 70, '', 'x' * source.randrange(2000), '\ud83d', '\0', [],
        {}, [[]], [None] * 30, {'type': 'json_schema'}, {'type': 'json_object'},
        {'type': 'json_schema', 'json_schema': {'schema': {'type': 'integer'}}},
        [{'role': 'user', 'content': 'x' * source.randrange(600)}], [{'role': 'robot'}],
        [{'role': 'user', 'content': [{'type': 'text', 'text': 'hi'}]}], ['a', 'b'], 0.3, 7))


def _anonymous() -> int:
    for line in Path('/proc/self/status').read_text().splitlines():
        if line.startswith('RssAnon'):
            return 1024 * int(line.split()[1])
    return 0


def main() -> None:
    """Run, and print what became of the requests."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--scale', type=float, default=1.0, help='part of the requests')
    parser.add_argument('--only', choices=('files', 'requests'), help='one of both')
    parser.add_argument('--seed', type=int, default=0, help='of the files')
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        if given.only != 'requests':
            found['files'] = fuzz_files(Path(folder), round(3000 * given.scale), given.seed)
        if given.only != 'files':
            found |= fuzz(Path(folder), given.scale)
    print(json.dumps(found, indent=1))


if __name__ == '__main__':
    main()
