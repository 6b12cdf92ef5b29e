# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Chat templates are tried once in a process of their own: a short one can need all memory."""
from __future__ import annotations

from collections.abc import Sequence
from functools import cache
import importlib
import json
import signal
import subprocess
import sys

from intradp_ros.core.processes import limit_memory, module_arguments

#: Seconds of the processor and by the clock, and bytes; most of them are for the library.
_CPU_SECONDS, _SECONDS, _MEMORY = 20, 120.0, 512 << 20
_NO_MEMORY = 9


@cache
def costs_too_much(templates: Sequence[str]) -> bool:
    """Return whether chat templates take too much time or memory for one short message."""
    try:
        tried = subprocess.run(module_arguments(__name__), input=json.dumps(templates), text=True,
                               timeout=_SECONDS, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return True
    return tried.returncode < 0 or tried.returncode == _NO_MEMORY


def main() -> None:
    """Render the templates of the standard input; other errors of them are each request's."""
    render = importlib.import_module(
        'transformers.utils.chat_template_utils').render_jinja_template
    limit_memory(_MEMORY)
    signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)  # ends the process, whatever it does
    for template in json.load(sys.stdin):
        try:
            render([[{'role': 'user', 'content': 'x'}]], chat_template=template,
                   add_generation_prompt=True)
        except MemoryError:
            sys.exit(_NO_MEMORY)
        except Exception:  # noqa: B902 - any
            continue


if __name__ == '__main__':
    main()
