# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Say where in a model an exception came from."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
import sys
import sysconfig
import traceback
from types import FrameType
from typing import Any

import torch
from torch import nn

from intradp_ros.graph.graph_errors import CaptureError

LONGEST_CAUSE = 300


@contextmanager
def blame_submodule(model: nn.Module, doing: str) -> Iterator[None]:
    """
    Turn an exception into an error that names the submodule, and the line, it came from.

    :raises CaptureError: in place of any other exception.
    """
    entered: list[str] = []
    handles = []
    for name, module in model.named_modules():
        if not isinstance(module, torch.jit.ScriptModule):  # these take no hooks
            label = f'{name!r} ({type(module).__name__})' if name else type(module).__name__
            handles.append(module.register_forward_pre_hook(_Enter(entered, label)))
            handles.append(module.register_forward_hook(_Leave(entered)))
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        where = f' in {entered[-1]}' if entered else ''
        raise CaptureError(f'{doing}{where}{_user_line(error)}: {_cause(error)}') from error
    finally:
        for handle in handles:
            handle.remove()


#: What no graph of operators says, by the files of torch that it goes through, and by functions;
#: what to do instead.
_USES: Sequence[tuple[tuple[str, ...], tuple[str, ...], str, str]] = (
    (('nn/utils/rnn.py',), ('pack_padded_sequence', 'pack_sequence'), 'packs sequences',
     'run the layer on the padded tensor, and mask or gather what it returns'),
    (('_functorch/apis.py', '_functorch/eager_transforms.py'), (), 'calls torch.func or vmap',
     'write it with dimensions of its own, by torch.einsum or torch.bmm say, and derivatives by '
     'their formula'),
    (('autograd/__init__.py',), ('grad', 'backward'), 'computes gradients',
     'write them by their formula'),
    (('nested/',), (), 'makes nested tensors', 'pad them'),
    (('masked/',), (), 'makes masked tensors', 'take torch.where'))


def what_no_graph_says(run: Callable[[], object]) -> str:
    """Return what a run of a model uses that no graph can hold, where, and what to do; or ''."""
    found: list[str] = []

    def look(frame: FrameType, event: str, called: Any) -> None:
        code, place = frame.f_code, frame.f_code.co_filename.removeprefix(torch_folder)
        if found or event != 'call' or place == code.co_filename:
            return
        for places, functions, what, instead in _USES:
            if place.startswith(places) and (not functions or code.co_name in functions):
                found.append(f'it {what}{_line_of(frame)}, which no graph of operators holds: '
                             f'{instead}')
                return
    torch_folder = f'{_SKIPPED[0]}/'
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        run()
    except Exception:  # a run of it was well
        pass
    finally:
        sys.setprofile(before)
    return found[0] if found else ''


def _line_of(frame: FrameType | None) -> str:
    while frame is not None and _is_foreign(Path(frame.f_code.co_filename)):
        frame = frame.f_back
    return f' at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}' if frame else ''


@dataclass(frozen=True)
class _Enter:
    entered: list[str]
    label: str

    def __call__(self, module: nn.Module, args: Any) -> None:
        self.entered.append(self.label)


@dataclass(frozen=True)
class _Leave:
    entered: list[str]

    def __call__(self, module: nn.Module, args: Any, result: Any) -> None:
        self.entered.pop()


def _user_line(error: Exception) -> str:
    """Name the innermost line that is neither torch's, Python's nor ours, if there is one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and not _is_foreign(path):
            return f' at {path.name}:{frame.lineno}'
    return ''


def _is_foreign(path: Path) -> bool:
    if path.is_relative_to(_PYTHON) and 'site-packages' not in path.parts:
        return True
    return any(path.is_relative_to(folder) for folder in _SKIPPED)


_PYTHON = sysconfig.get_path('stdlib')
_SKIPPED = (Path(torch.__file__).parent, Path(__file__).parent)


def _cause(error: Exception) -> str:
    if 'DataDependent' in type(error).__name__:
        return 'a condition or a size depends on the values of a tensor'
    text = ' '.join(str(error).split())
    return f'{type(error).__name__}: ' + (
        text if len(text) <= LONGEST_CAUSE else text[:LONGEST_CAUSE] + ' ...')
