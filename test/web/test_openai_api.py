# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The endpoint, over a real socket with the real client; what is refused, cancelled, cut off."""
from __future__ import annotations

from collections.abc import Callable, Iterator
import json
from pathlib import Path
import random
import socket
import struct
import threading
import time
from typing import Any
import urllib.error
import urllib.request

import openai
import pytest

from intradp_ros.runtime.requests.admission import ClientRates, Fate
from intradp_ros.runtime.requests.text_requests import ChatTurn, Piece, TextEnd, TextRequest
from intradp_ros.web.access import ApiKeys, check_address, Clients, MAX_BODY
from intradp_ros.web.guard import Guard
from intradp_ros.web.openai_api import openai_app
from intradp_ros.web.web_server import WebServer

PATIENCE = 60.0
KEY = 'a-key-of-enough-characters'


class Speller:
    """Repeats the last message, a letter a piece; words in it say what goes wrong."""

    name = 'speller'

    def __init__(self) -> None:
        self.requests: list[TextRequest] = []
        self.cancelled = threading.Event()

    def submit(self, request: TextRequest, heard: Callable[[Piece | TextEnd], None],
               ) -> Callable[[Fate], None]:
        self.requests.append(request)
        last = request.prompt[-1]
        text = request.prompt if isinstance(request.prompt, str) else \
            last.content if isinstance(last, ChatTurn) else str(request.prompt)
        if 'impossible' in text:
            raise ValueError('the prompt has 9000 tokens, the context 8192')

        def answer() -> None:
            if 'busy' in text:
                heard(TextEnd(Fate.REFUSED, 'the queue is full'))
                return
            for letter in () if 'silent' in text else text:
                heard(Piece(letter, (ord(letter),)))
            if 'endless' in text:
                self.cancelled.wait(PATIENCE)
                heard(TextEnd(Fate.CANCELLED))
            elif 'broken' in text:
                heard(TextEnd(Fate.REFUSED, 'the head device is lost'))
            elif 'unmet' in text:
                heard(TextEnd(Fate.REFUSED, 'no token goes on', wrong=True))
            else:
                heard(TextEnd(Fate.DONE, '', 'stop', 3, len(text)))
        threading.Thread(target=answer, daemon=True).start()
        return lambda fate: self.cancelled.set()


class Site:
    """A served speller."""

    def __init__(self, keys: Path | None = None, rate: float = 1e3, burst: int = 1000) -> None:
        self.model = Speller()
        self.guard = Guard(openai_app(self.model), Clients(
            ApiKeys.load(keys) if keys else None, ClientRates(rate, burst)))
        self.server = WebServer(self.guard, '127.0.0.1', 0)
        self.client = openai.OpenAI(base_url=f'{self.server.url}/v1', api_key=KEY, max_retries=0,
                                    timeout=PATIENCE)

    def chat(self, text: str, **options: Any) -> Any:
        return self.client.chat.completions.create(
            model='speller', messages=[{'role': 'user', 'content': text}], **options)

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        request = urllib.request.Request(self.server.url + path, body,
                                         {'content-type': 'application/json'})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.server.close()


def test_a_chat_is_answered_whole_and_streamed(site: Site) -> None:
    answer = site.chat('hello', max_tokens=9, temperature=0, seed=-1, extra_body={'deadline': 5.0})
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ('hello',
                                                                                    'stop')
    assert answer.usage.total_tokens == 8
    request = site.model.requests[0]
    assert (request.max_tokens, request.sampling.temperature) == (9, 0.0)
    assert 0 < request.remaining <= 5.0
    assert request.sampling.seed == (1 << 64) - 1
    chunks = list(site.chat('hello', stream=True, stream_options={'include_usage': True}))
    assert ''.join(c.choices[0].delta.content or '' for c in chunks if c.choices) == 'hello'
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == 'stop'
    assert chunks[-1].usage.completion_tokens == 5


def test_completions_and_models(site: Site) -> None:
    assert site.client.completions.create(model='speller', prompt='abc').choices[0].text == 'abc'
    assert [c.choices[0].text for c in site.client.completions.create(
        model='speller', prompt='abc', stream=True)] == ['a', 'b', 'c', '']
    assert [model.id for model in site.client.models.list()] == ['speller']
    assert site.client.models.retrieve('speller').id == 'speller'
    with pytest.raises(openai.NotFoundError, match='there is no model'):
        site.client.models.retrieve('other')


@pytest.mark.parametrize('named, options', [
    ('n', {'n': 0}), ('logprobs', {'top_logprobs': 3}),
    ('frequency_penalty', {'frequency_penalty': 1e5}),
    ('tools', {'tools': [{'type': 'function', 'function': {'name': 'f g'}}]}),
    ('tools.0.type', {'tools': [{'type': 'custom', 'custom': {'name': 'f'}}]}),
    ('temperature', {'temperature': -1}), ('top_p', {'top_p': -0.1}),
    ('stop texts', {'stop': ['x'] * 99}), ('max_tokens', {'max_tokens': 0}),
    ('max_completion_tokens', {'max_completion_tokens': 0}),
    ('deadline', {'extra_body': {'deadline': -1}}),
    ('deadline', {'extra_body': {'deadline': 1e300}}),  # no thread can wait so long
    ('response_format', {'response_format': {'type': 'yaml'}}),
    ('messages', {'extra_body': {'messages': 'hello'}}),
    ('role', {'extra_body': {'messages': [{'role': 'robot', 'content': 'x'}]}}),
    ('image_url', {'extra_body': {'messages': [
        {'role': 'user', 'content': [{'type': 'image_url'}]}]}})])
def test_what_is_not_understood_is_refused_with_its_name(site: Site, named: str, options: Any,
                                                         ) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        site.chat('hello', **options)
    assert named in error.value.body['message']
    assert not site.model.requests


def test_half_a_surrogate_pair_is_no_text(site: Site) -> None:
    for body in (rb'{"messages": [{"role": "user", "content": "x\ud83d"}]}',
                 rb'{"messages": [{"role": "user", "content": "x"}], "stop": "\udc00"}'):
        status, answer = site.post('/v1/chat/completions', body)
        assert status == 400 and b'surrogate' in answer
    assert not site.model.requests


def test_what_the_model_refuses_and_what_breaks_off_are_errors(site: Site) -> None:
    with pytest.raises(openai.BadRequestError, match='the context 8192'):
        site.chat('impossible')
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError, match='the queue is full') as error:
            site.chat('busy', stream=stream)
        assert error.value.status_code == 503
    with pytest.raises(openai.InternalServerError, match='the head device is lost'):
        site.chat('broken')
    with pytest.raises(openai.BadRequestError, match='no token goes on'):
        site.chat('unmet')
    heard = ''
    with pytest.raises(openai.APIError, match='the head device is lost'):
        for chunk in site.chat('broken', stream=True):
            heard += chunk.choices[0].delta.content or ''
    assert heard == 'broken'


@pytest.mark.parametrize('text, stream', [
    ('endless', False), ('endless', True), ('silent endless', True)])
def test_a_client_that_goes_away_cancels(site: Site, text: str, stream: bool) -> None:
    body = json.dumps({'messages': [{'role': 'user', 'content': text}],
                       'stream': stream}).encode()
    with socket.create_connection(('127.0.0.1', site.server.port)) as connection:
        connection.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n'
                           b'content-type: application/json\r\n'
                           b'content-length: %d\r\n\r\n' % len(body) + body)
        if stream and 'silent' not in text:
            assert connection.recv(100)
        else:
            while not site.model.requests:
                time.sleep(0.01)
    assert site.model.cancelled.wait(PATIENCE)


def test_a_client_that_resets_a_long_answer_fills_no_log(site: Site, caplog: Any) -> None:
    body = json.dumps({'messages': [{'role': 'user', 'content': 'x' * 60_000}],
                       'stream': True}).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(('127.0.0.1', site.server.port))
        connection.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n'
                           b'content-type: application/json\r\n'
                           b'content-length: %d\r\n\r\n' % len(body) + body)
        assert connection.recv(100)
        time.sleep(0.5)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    assert site.model.cancelled.wait(PATIENCE)
    assert not [record for record in caplog.records if record.name == 'asyncio']


def test_keys_say_who_asks_and_strangers_are_kept_out(tmp_path: Path) -> None:
    file = tmp_path / 'keys'
    file.write_text(f'# clients\nrobot1 {KEY}\n')
    file.chmod(0o600)
    site = Site(file, rate=0.001, burst=3)
    try:
        site.chat('hello')
        assert site.model.requests[0].client == 'robot1'
        stranger = site.client.with_options(api_key='guessed-by-somebody')
        for _ in range(3):
            with pytest.raises(openai.AuthenticationError):
                stranger.models.list()
        with pytest.raises(openai.RateLimitError):
            stranger.models.list()
        site.chat('hello')  # the stranger took nothing of the robot's
        site.chat('hello')
        with pytest.raises(openai.RateLimitError, match='too many requests of robot1'):
            site.chat('hello')
        assert site.guard.rejected == {'no_key': 4, 'rate': 1}
    finally:
        site.server.close()


@pytest.mark.parametrize('text', ['', 'robot1', 'robot1 short', f'rob\u00f6t {KEY}', KEY])
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / 'keys'
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ValueError, match='key'):
        ApiKeys.load(file)
    file.chmod(0o644)
    with pytest.raises(ValueError, match='chmod 600'):
        ApiKeys.load(file)


def test_without_keys_only_this_machine_is_listened_to() -> None:
    assert check_address('127.0.0.1', None) and check_address('::1', None)
    with pytest.raises(ValueError, match='API keys'):
        check_address('0.0.0.0', None)
    assert check_address('0.0.0.0', ApiKeys({b'': 'a'}))


def test_large_bodies_are_refused_unread(site: Site) -> None:
    with socket.create_connection(('127.0.0.1', site.server.port), PATIENCE) as connection:
        connection.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n'
                           b'content-length: %d\r\n\r\n' % (MAX_BODY + 1))
        assert b' 413 ' in connection.recv(100)
    with socket.create_connection(('127.0.0.1', site.server.port), PATIENCE) as connection:
        connection.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n'
                           b'transfer-encoding: chunked\r\n\r\n')
        part = b'100000\r\n' + bytes(1 << 20) + b'\r\n'
        with pytest.raises(OSError):  # closed on the way
            for _ in range(64):
                connection.sendall(part)
                time.sleep(0.02)


def test_no_body_brings_the_endpoint_down(site: Site) -> None:
    rng = random.Random(0)
    good = {'messages': [{'role': 'user', 'content': 'hi'}], 'max_tokens': 3, 'temperature': 0.5,
            'stop': ['x'], 'prompt': 'hi', 'response_format': {'type': 'text'}}
    odd = ['null', '[]', '1e999', '"\\ud800"', '{"a":' * 500 + '1' + '}' * 500, 'NaN', '-1', '{}',
           '[{"role": "user"}]', str(1 << 70), 'true', '"' + 'x' * 2000 + '"']
    for number in range(300):
        if number % 3:
            name = rng.choice(sorted(good))
            rest = {key: value for key, value in good.items() if key != name}
            body = f'{json.dumps(rest)[:-1]}, "{name}": {rng.choice(odd)}}}'.encode()
        else:
            changed = bytearray(json.dumps(good).encode())
            for _ in range(rng.randint(1, 8)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            body = bytes(changed)
        status, answer = site.post(rng.choice(['/v1/chat/completions', '/v1/completions']), body)
        assert status in (200, 400, 404), (body, answer)
        assert json.loads(answer)
    assert site.chat('hello').choices[0].message.content == 'hello'
