# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Schemas are tried in a process of their own first: what takes too long there is ended.

A schema of a few hundred characters can ask for hours: patterns that must hold together are
compared state by state.  No limit of llguidance stops that, and no thread can be ended.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
import importlib
import json
import os
from pathlib import Path
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, IO

import numpy as np

from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.json_text import parse_json
from intradp_ros.core.processes import limit_memory, module_arguments
from intradp_ros.systems.language.schema_check import endless_reference, unwritable_constant

#: Seconds of the processor that a schema may take, and by the clock; bytes, which it takes again
#: where the answer is made.
CPU_SECONDS, SECONDS, MEMORY = 2, 20.0, 64 << 20
#: Seconds in which the process must have begun.
_START = 60.0
_MOST_KNOWN = 256
#: Tokens that are tried in search of an answer that a tokenizer can write.
_MOST_TRIED = 500


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
        if loop := endless_reference(parsed):
            raise ValueError(f'$ref {loop!r} leads to itself: no answer that meets it would end')
        if text := unwritable_constant(parsed, lambda text: bool(
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


def pieces_of(tokens: Any) -> list[bytes]:
    """Return what each token writes; [] if there is one for each byte, so that all is written."""
    pieces = [tokens.decode_bytes([token]) for token in range(tokens.vocab_size)]
    return [] if len({piece for piece in pieces if len(piece) == 1}) == 256 else pieces


def unwritten(pieces: Sequence[bytes], matcher: Any) -> str | None:
    """
    Return the text behind which no token goes on in an answer that meets a schema.

    None if there is such an answer, or none is missed; `pieces` are what the tokens write.  It is
    a search, depth first, and not of all; tokens that end something are tried first.
    """
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
            return None
        else:
            text += pieces[token]
            path.append((here, text, following(here.deep_copy(), text)))
    return max(lost, key=len).decode(errors='replace') if lost else None


def main() -> None:
    """Compile schemas that arrive as lines; answer each with why it cannot be used."""
    path, vocabulary, ends = sys.argv[1:]
    library = importlib.import_module('llguidance')
    tokens = library.LLTokenizer(Path(path).read_text(), n_vocab=int(vocabulary) or None,
                                 eos_token=json.loads(ends) or None)
    compiled(library, tokens, '{}').compute_bitmask()  # what the first one takes
    pieces = pieces_of(tokens)
    limit_memory(MEMORY)
    os.nice(5)
    print('ready', flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # ends the process, whatever it does
        why = ''
        try:
            matcher = compiled(library, tokens, json.loads(line))
            text = unwritten(pieces, matcher) if pieces else None
            matcher.compute_bitmask()
            why = matcher.get_error() or ('' if text is None else (
                f'the tokenizer of this model cannot write what follows {text[-200:]!r}'))
        except Exception as error:  # noqa: B902 - said to who asked
            why = str(error).removeprefix('the schema cannot be used: ')
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(' '.join(why.split())[:300]), flush=True)


if __name__ == '__main__':
    main()
