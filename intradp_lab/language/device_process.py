# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One device of an emulated fleet that computes a language model: its member over DDS.

The first argument is a file of settings (`DeviceSettings`).  The head takes requests, a JSON
object a line, and writes what becomes of them in the same way; all write their state when
they are asked to.
"""
from __future__ import annotations

from dataclasses import asdict, replace
import hashlib
import json
from pathlib import Path
import sys
import threading
import time
from typing import Any

from rclpy.context import Context
import torch

from intradp_lab.language.settings import COORDINATOR, DeviceSettings, FLEET, PeakMemory
from intradp_ros.blobs.store import BlobStore
from intradp_ros.dds.dds_peers import DdsPeers
from intradp_ros.profiling.disk import measure_disk
from intradp_ros.runtime.member.fleet_member import FleetMember
from intradp_ros.runtime.requests.text_requests import Piece, Sampling, TextEnd, TextRequest
from intradp_ros.runtime.weights.exchange import WeightPolicy
from intradp_ros.systems.language.actions import Action, Embed
from intradp_ros.systems.language.engine import Meter
from intradp_ros.systems.language.head import HeadPolicy
from intradp_ros.systems.language.measure import memory_rate
from intradp_ros.systems.language.role import LanguageOptions, LanguageRole

#: Actions of which times are kept, the newest.
_TRACED = 4000
_BYTES, _MEASURED = 1 << 44, 64 << 20


def main(arguments: list[str] | None = None) -> None:
    """Run until standard input ends."""
    words = sys.argv[1:] if arguments is None else arguments
    settings = DeviceSettings(**json.loads(Path(words[0]).read_text()))
    torch.set_num_threads(settings.threads)
    sys.setswitchinterval(0.0005)
    context = Context()
    context.init()
    channel = DdsPeers(context, FLEET, settings.name)
    store = BlobStore(Path(settings.store), _BYTES)
    options = LanguageOptions(settings.memory,
                              HeadPolicy(chunk=settings.chunk, patience=settings.patience,
                                         drafts=settings.drafts))
    made: list[LanguageRole] = []

    def role(host: Any) -> LanguageRole:
        made.append(LanguageRole(host, store, options))
        return made[-1]

    member = FleetMember(channel, (role,), _log, lambda: _say({'plan': list(member.committed)}),
                         coordinators=(COORDINATOR,), weights=WeightPolicy(store=store))
    process = _Process(made[0], settings.store)
    _say({'ready': settings.name})
    try:
        for line in sys.stdin:
            process.take(json.loads(line))
    finally:
        member.close()
        channel.close()
        context.shutdown()


class _Process:
    """What a device is asked on standard input."""

    def __init__(self, role: LanguageRole, store: str) -> None:
        self._role, self._store, self._memory = role, store, PeakMemory()
        self._trace: list[tuple[str, float, float]] = []

    def take(self, asked: dict[str, Any]) -> None:
        """Do one thing that is asked."""
        if asked['ask'] == 'state':
            _say({'state': asked['id'], **self._state()})
        elif asked['ask'] == 'trace':
            self._begin_trace()
        elif asked['ask'] == 'rates':
            _say({'memory_rate': memory_rate(), 'disk_rate': measure_disk(
                Path(self._store), _MEASURED).bytes_per_second})
        elif asked['ask'] == 'drafts':
            if head := self._role.head:
                head.policy = replace(head.policy, drafts=asked['most'])
        else:
            self._request(asked)

    def _request(self, asked: dict[str, Any]) -> None:
        number, head = asked['id'], self._role.head
        if head is None:
            _say({'id': number, 'fate': 'refused', 'reason': 'no plan with this head is in use',
                  'answer': [], 'times': [], 'difference': 0.0, 'bits': []})
            return
        tokens: list[int] = []
        times: list[float] = []
        differences: list[float] = []
        bits: list[str] = []
        logits: list[torch.Tensor] | None = [] if asked.get('logits') or asked.get('bits') \
            else None
        reference = torch.load(asked['logits'], weights_only=True) if asked.get('logits') else None

        def heard(item: Piece | TextEnd) -> None:
            if isinstance(item, Piece):
                tokens.extend(item.tokens)
                times.append(time.time())
                if logits:
                    drawn = logits.pop()
                    if reference is not None:
                        differences.append(float(
                            (drawn - reference[len(differences)]).abs().max()))
                    bits.append(hashlib.sha256(drawn.numpy().data).hexdigest()[:16])
                _say({'id': number, 'text': item.text, 'tokens': item.tokens})
            else:
                _say({'id': number, 'fate': item.fate.value, 'reason': item.reason,
                      'answer': tokens, 'times': times, 'bits': bits,
                      'difference': max(differences, default=0),
                      'prompt': item.prompt_tokens, 'first': item.first_token_seconds,
                      'seconds': item.seconds})
        if 'prompt_tokens' in asked:
            head.submit_tokens(asked['prompt_tokens'], heard, asked['max_tokens'], logits=logits)
        else:
            head.submit(TextRequest(asked['prompt'], asked['max_tokens'],
                                    Sampling(**asked.get('sampling', {}))), heard)

    def _state(self) -> dict[str, Any]:
        engine = self._role.engine
        plan = engine.plan if engine else None
        return {'time': time.time(), 'in_use': plan.to_json() if plan else None,
                'peak': self._memory.nbytes,
                'meter': asdict(engine.meter if engine else Meter()),  # it may have no part
                'loaded': [engine.loader.seconds, engine.loader.nbytes] if engine else [0, 0],
                'trace': self._trace[-_TRACED:]}

    def _begin_trace(self) -> None:
        engine = self._role.engine
        if engine is None:
            return
        zero = time.time() - time.perf_counter()

        def done(action: Action, start: float, stop: float) -> None:
            if not isinstance(action, Embed):
                self._trace.append((str(action), zero + start, zero + stop))
                del self._trace[:-2 * _TRACED]

        def read(block: int, start: float, stop: float) -> None:
            self._trace.append((f'L{block}', zero + start, zero + stop))
        engine.trace, engine.loader.reading = done, read


_WRITING = threading.Lock()


def _say(what: dict[str, Any]) -> None:
    with _WRITING:
        sys.stdout.write(json.dumps(what) + '\n')
        sys.stdout.flush()


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == '__main__':
    main()
