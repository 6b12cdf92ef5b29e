# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Schemas are tried in a process of their own first: what takes too long there is ended.

A schema of a few hundred characters can ask for hours: patterns that must hold together are
compared state by state.  No limit of llguidance stops that, and no thread can be ended.
So are chat templates, once: a few characters of one can ask for all memory.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
import importlib
import json
import os
from pathlib import Path
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, IO
from urllib.parse import unquote

import numpy as np

from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.json_text import parse_json
from intradp_ros.core.processes import module_arguments

#: Seconds of the processor that a schema may take, and by the clock; bytes, which it takes again
#: where the answer is made.
CPU_SECONDS, SECONDS, MEMORY = 2, 20.0, 64 << 20
#: The same of chat templates, most of which is for the library.
_TEMPLATE_CPU, _TEMPLATE_SECONDS, _TEMPLATE_MEMORY = 20, 120.0, 512 << 20
#: Seconds in which the process must have begun.
_START = 60.0
_MOST_KNOWN = 256
#: Tokens that are tried in search of an answer that a tokenizer can write.
_MOST_TRIED = 500
_NO_MEMORY = 9
#: What follows these words of a schema is looked at where it is referred to, or is no schema.
_VALUES = ('$defs', 'definitions', 'const', 'enum', 'default', 'examples')


class SchemaTrial:
    """
    A process that compiles schemas for a tokenizer, begun at the first of them.

    `tokenizer` is the text of a ``tokenizer.json``; safe to call from several threads.
    """

    def __init__(self, tokenizer: str, vocabulary: int, ends: Sequence[int]) -> None:
        self._given = tokenizer, vocabulary, list(ends)
        self._child: subprocess.Popen[str] | None = None
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()

    def check(self, schema: str) -> None:
        """
        Compile a schema in the other process.

        :raises ValueError: if it cannot be used, or costs too much.
        """
        with self._lock:
            why = self._known.get(schema)
            if why is None:
                why = self._tried(schema)
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[schema] = why
        if why:
            raise ValueError(f'the schema cannot be used: {why}')

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _tried(self, schema: str) -> str:
        """Return why a schema cannot be used, or ''."""
        child = self._child
        if child is None or child.poll() is not None:
            child = self._started()
        assert child.stdin and child.stdout
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps(schema) + '\n')
            child.stdin.flush()
        answer = _line(child.stdout, SECONDS)
        if answer is None:
            self._end()
            return f'it takes more than {CPU_SECONDS} s, or too much memory, to compile'
        return str(json.loads(answer))

    def _started(self) -> subprocess.Popen[str]:
        text, vocabulary, ends = self._given
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'tokenizer.json'
            write_atomically(path, text)
            child = self._child = subprocess.Popen(
                module_arguments(__name__, str(path), str(vocabulary), json.dumps(ends)),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True, start_new_session=True)
            assert child.stdout
            if _line(child.stdout, _START) is None:
                self._end()
                raise ValueError('the process that tries schemas does not begin')
        return child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream:
                    with suppress(OSError):
                        stream.close()


def _line(stream: IO[str], seconds: float) -> str | None:
    """Return the next line of a process; None if it ended, or took longer."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([stream], [], [], left)[0]:
            return stream.readline() or None
    return None


def compiled(library: Any, tokens: Any, schema: str) -> Any:
    """
    Return what follows a schema; `tokens` are those of llguidance.

    :raises ValueError: if it cannot be used.
    """
    try:
        parsed = parse_json(schema)
        if not isinstance(parsed, dict | bool):
            raise ValueError('a schema is a JSON object')
        if loop := looping(parsed):
            raise ValueError(f'$ref {loop!r} leads to itself: no answer that meets it would end')
        if text := looping(parsed, lambda text: bool(
                tokens.decode_bytes(tokens.greedy_tokenize(text)) == text.encode())):
            raise ValueError(f'the tokenizer of this model cannot write {text:.80}')
        grammar = library.LLMatcher.grammar_from_json_schema(schema)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'the schema cannot be used: {str(error)[:300]}') from None
    matcher = library.LLMatcher(tokens, grammar, log_level=0,
                                limits=library.LLParserLimits(verbose_errors=False))
    if why := matcher.get_error():
        raise ValueError(f'the schema cannot be used: {" ".join(str(why).split())[:300]}')
    return matcher


def looping(schema: Any, writes: Callable[[str], bool] | None = None) -> str:
    """
    Return a ``$ref`` that only endless values meet, as it needs itself again; or ''.

    With `writes`, which says whether tokens make a text: one that all answers need, and cannot
    have.
    """
    targets: dict[str, Any] = {}
    lost: list[str] = []

    def find(part: Any) -> None:
        for key, value in part.items() if isinstance(part, dict) else enumerate(
                part if isinstance(part, list) else ()):
            if key == '$ref' and isinstance(value, str):
                if value not in targets:
                    targets[value] = _target(schema, value)
                    find(targets[value])
            elif key not in _VALUES:
                find(value)

    def written(value: Any) -> bool:
        text = json.dumps(value, ensure_ascii=False)
        if writes and not writes(text):
            lost.append(text)
        return text not in lost

    def ends(part: Any) -> bool:
        if not isinstance(part, dict):
            return True
        needed = list(part.get('allOf') or ())
        values = [part['const']] if 'const' in part else part.get('enum')
        if values and not any(map(written, values)):
            return False
        if part.get('type') == 'object':
            properties = part.get('properties') or {}
            names = part.get('required') or ()
            if not all(map(written, names)):
                return False
            needed += [properties.get(name) for name in names]
        if part.get('type') == 'array':
            first, least = part.get('prefixItems') or [], part.get('minItems') or 0
            needed += [*first, part.get('items')][:least]
        return part.get('$ref') not in targets and all(map(ends, needed)) and all(
            any(map(ends, part[key])) for key in ('anyOf', 'oneOf') if part.get(key))

    count = -1
    with suppress(TypeError, AttributeError):  # of what is no schema, as the library says
        find(schema)
        while count != (count := len(targets)):
            for name in reversed(list(targets)):  # what is referred to first
                if ends(targets[name]):
                    del targets[name]
        if writes:
            return '' if ends(schema) else lost[0]
        return next(iter(targets), '')
    return ''


def unwritten(tokens: Any, matcher: Any) -> str:
    """
    Return the text behind which no token goes on in an answer that meets a schema.

    '' if there is such an answer, or none is missed: a tokenizer of all bytes writes any.  It is
    a search, depth first, and not of all; tokens that end something are tried first.
    """
    pieces = [tokens.decode_bytes([token]) for token in range(tokens.vocab_size)]
    if len({piece for piece in pieces if len(piece) == 1}) == 256:
        return ''
    order = np.array(sorted(range(len(pieces)), key=lambda token: (
        not pieces[token].strip(), pieces[token] not in (b'"', b'}', b']'), -len(pieces[token]))))
    lost: list[bytes] = []

    def following(here: Any, text: bytes) -> Iterator[int]:
        mask = np.frombuffer(here.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(mask, count=len(pieces), bitorder='little')[order]
        found = [] if here.get_error() else order[allowed.nonzero()[0]].tolist()
        if not found:
            lost.append(text)
        return iter(found)
    path = [(matcher, b'', following(matcher.deep_copy(), b''))]
    for _ in range(_MOST_TRIED):
        if not path:
            break
        before, text, others = path[-1]
        if (token := next(others, None)) is None:
            path.pop()
            continue
        here = before.deep_copy()
        if not here.consume_token(token):  # the library offers some that it does not take then
            lost.append(text)
        elif here.is_accepting() or here.is_stopped():
            return ''
        else:
            text += pieces[token]
            path.append((here, text, following(here.deep_copy(), text)))
    return max(lost, key=len).decode(errors='replace') if lost else ''


def _target(schema: Any, reference: str) -> Any:
    """Return what a JSON pointer into a schema leads to; None where that is the library's."""
    if reference != '#' and not reference.startswith('#/'):
        return None
    for word in unquote(reference).split('/')[1:]:
        name = word.replace('~1', '/').replace('~0', '~')
        try:
            schema = schema[int(name) if isinstance(schema, list) else name]
        except (LookupError, TypeError, ValueError):
            return None
    return schema


@cache
def costs_too_much(templates: Sequence[str]) -> bool:
    """Return whether chat templates take too much time or memory for one short message."""
    try:
        tried = subprocess.run(module_arguments(__name__), input=json.dumps(templates), text=True,
                               timeout=_TEMPLATE_SECONDS, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return True
    return tried.returncode < 0 or tried.returncode == _NO_MEMORY


def _try_templates() -> None:
    """Render the templates of the standard input; what else they raise is each request's."""
    render = importlib.import_module(
        'transformers.utils.chat_template_utils').render_jinja_template
    _limit_memory(_TEMPLATE_MEMORY)
    signal.setitimer(signal.ITIMER_PROF, _TEMPLATE_CPU)
    for template in json.load(sys.stdin):
        try:
            render([[{'role': 'user', 'content': 'x'}]], chat_template=template,
                   add_generation_prompt=True)
        except MemoryError:
            sys.exit(_NO_MEMORY)
        except Exception:  # noqa: B902 - any
            continue


def _limit_memory(more: int) -> None:
    """Let this process take so many bytes more than it has."""
    most = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Compile schemas that arrive as lines; answer each with why it cannot be used."""
    if not sys.argv[1:]:
        _try_templates()
        return
    path, vocabulary, ends = sys.argv[1:]
    library = importlib.import_module('llguidance')
    tokens = library.LLTokenizer(Path(path).read_text(), n_vocab=int(vocabulary) or None,
                                 eos_token=json.loads(ends) or None)
    compiled(library, tokens, '{}').compute_bitmask()  # what the first one takes
    _limit_memory(MEMORY)
    os.nice(5)
    print('ready', flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # ends the process, whatever it does
        why = ''
        try:
            matcher = compiled(library, tokens, json.loads(line))
            text = unwritten(tokens, matcher)
            matcher.compute_bitmask()
            why = matcher.get_error() or text and (
                f'the tokenizer of this model cannot write what follows {text[-200:]}')
        except Exception as error:  # noqa: B902 - said to who asked
            why = str(error).removeprefix('the schema cannot be used: ')
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(' '.join(why.split())[:300]), flush=True)


if __name__ == '__main__':
    main()
