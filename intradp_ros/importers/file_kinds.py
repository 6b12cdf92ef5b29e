# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a file holds, by its content: suffixes are often wrong."""
from __future__ import annotations

from enum import Enum
import io
from pathlib import Path
import pickletools
import stat
import zipfile
import zlib

from intradp_ros.importers.loading_error import LoadingError


class Kind(Enum):
    """What a file holds, as an error says it."""

    FOLDER = 'is a folder without a config.json of transformers'
    EMPTY = 'is empty'
    SCRIPT = 'is TorchScript'
    PROGRAM = 'is a program of torch.export'
    PACKAGE = 'is a package of compiled code (AOTInductor), made for one machine'
    CHECKPOINT = 'is a checkpoint that torch.save wrote'
    SAFETENSORS = 'holds weights in safetensors'
    ARCHIVE = 'is an archive of intradp_ros already'
    ZIP = 'is a zip archive of other things'
    PICKLE = 'is a pickle, which torch.save did not write: loading it would run code'
    HDF5 = 'is HDF5 (Keras)'
    TFLITE = 'is a model of TensorFlow Lite'
    GGUF = 'is a model of llama.cpp'
    COMPRESSED = 'is compressed: unpack it first'
    PICTURE = 'is a picture'
    POINTER = 'is a pointer of Git LFS, not the file: git lfs pull brings it'
    PAGE = 'is a web page: what was downloaded is not the file'
    TEXT = 'is text'
    OTHER = 'is of a kind that is not known'


_BEGINS = ((b'\x89HDF', Kind.HDF5), (b'GGUF', Kind.GGUF), (b'\x1f\x8b', Kind.COMPRESSED),
           (b'BZh', Kind.COMPRESSED), (b'\xfd7zXZ', Kind.COMPRESSED),
           (b'\x28\xb5\x2f\xfd', Kind.COMPRESSED), (b'\x89PNG', Kind.PICTURE),
           (b'\xff\xd8\xff', Kind.PICTURE), (b'GIF8', Kind.PICTURE), (b'RIFF', Kind.PICTURE),
           (b'version https://git-lfs', Kind.POINTER), (b'<!DOCTYPE', Kind.PAGE),
           (b'<!doctype', Kind.PAGE), (b'<html', Kind.PAGE))
#: What torch.save wrote before 1.6: a number in a pickle.
_OLD_CHECKPOINT = b'\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.'
#: How much more an archive may hold unpacked: torch stores, and compresses code alone.
_MOST_TIMES, _ANYWAY = 20, 2**26
#: Modules of what a checkpoint of tensors may name in a pickle.
_TENSORS = ('torch', 'collections', '_codecs', 'numpy')


def kind_of(path: Path) -> Kind:
    """
    Return what a file or folder holds.

    :raises LoadingError: if it is not there, cannot be read, is a pipe or a device, or unpacks to
        much more than it is.
    """
    if path.is_dir():
        return Kind.FOLDER
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise LoadingError(f'cannot load {path}: it is not a file but a pipe, a device or a '
                               'socket; copy what it yields into a file')
        with path.open('rb') as file:
            begin = file.read(512)
    except OSError as error:
        raise LoadingError(f'cannot load {path}: {error.strerror}') from error
    if not begin:
        return Kind.EMPTY
    if begin.startswith(b'PK'):
        return _of_zip(path)
    for text, kind in _BEGINS:
        if begin.startswith(text):
            return kind
    if begin.startswith(_OLD_CHECKPOINT):
        return Kind.CHECKPOINT
    if begin[:1] == b'\x80' and begin[1:2] in b'\x02\x03\x04\x05':
        return Kind.PICKLE
    if begin[4:8] == b'TFL3':
        return Kind.TFLITE
    if begin[8:9] == b'{' and int.from_bytes(begin[:8], 'little') <= path.stat().st_size:
        return Kind.SAFETENSORS
    printable = all(byte >= 32 or byte in b'\t\r\n\f' for byte in begin)
    return Kind.TEXT if printable else Kind.OTHER


def _of_zip(path: Path) -> Kind:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_size(path, members)
            damaged = archive.testzip()  # what PyTorch reads it does not check
    except (zipfile.BadZipFile, NotImplementedError, ValueError, zlib.error, EOFError,
            RuntimeError) as error:
        raise LoadingError(f'{path} is a damaged or incomplete archive ({error}): copy it anew'
                           ) from error
    if damaged:
        raise LoadingError(f'{path} is damaged (the checksum of {damaged!r} is another): copy it '
                           'anew')
    names = [member.filename for member in members]
    inner = [name.partition('/')[2] for name in names]
    if any(name.endswith(('.so', '.cubin')) or '/aotinductor/' in name for name in names):
        return Kind.PACKAGE
    if 'constants.pkl' in inner or any(name.startswith('code/') for name in inner):
        return Kind.SCRIPT
    if 'serialized_exported_program.json' in names or any(
            name == 'archive_format' or name.startswith('models/') for name in inner):
        return Kind.PROGRAM
    if 'data.pkl' in inner:
        return Kind.CHECKPOINT
    return Kind.ARCHIVE if {'graph.json'} <= {*names} else Kind.ZIP


def _check_size(path: Path, members: list[zipfile.ZipInfo]) -> None:
    size = sum(member.file_size for member in members)
    if size > _MOST_TIMES * path.stat().st_size + _ANYWAY:
        raise LoadingError(f'{path} has {path.stat().st_size} bytes and would unpack to {size}: '
                           'no archive of a model')


def check_program(path: Path) -> None:
    """
    Refuse an archive of torch.export that holds pickles of more than tensors.

    Loading such would run what they name.

    :raises LoadingError: if it does; the text says what.
    """
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            inner = member.filename.rpartition('/')[2]
            if inner.startswith(('custom_obj', 'opaque_obj')):
                raise LoadingError(f'{path} holds objects of other classes ({inner}), which only '
                                   'running their code makes')
            with archive.open(member) as file:
                begin = file.read(2)
            if not begin.startswith((b'PK', b'\x80')):
                continue
            named = _named_by(archive.read(member))
            if named:
                raise LoadingError(f'{path} holds a pickle of {", ".join(sorted(named)[:3])}: '
                                   'loading it would run code, which is not done')


def _named_by(data: bytes) -> set[str]:
    """Return what pickles in some bytes name, besides tensors and plain containers."""
    if data.startswith(b'PK'):
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as inner:
                pickles = [inner.read(m) for m in inner.infolist() if m.filename.endswith('.pkl')]
        except zipfile.BadZipFile:
            return set()
        return set().union(*map(_named_by, pickles))
    if data[:1] != b'\x80':
        return set()
    names, strings = set(), ['', '']
    try:
        for code, argument, _ in pickletools.genops(data):
            if code.name == 'GLOBAL':
                names.add(str(argument).replace(' ', '.'))
            elif code.name == 'STACK_GLOBAL':
                names.add('.'.join(strings[-2:]))
            elif isinstance(argument, str):
                strings.append(argument)
    except ValueError:  # no pickle after all, or half of one
        return set()
    return {name for name in names if name.partition('.')[0] not in _TENSORS}
