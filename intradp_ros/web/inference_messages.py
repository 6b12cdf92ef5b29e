# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Requests and answers of the Open Inference Protocol v2 over gRPC, as bytes.

The messages are declared here, by protobuf's descriptor API, in a pool of their own: nothing is
generated when the package is built, and a client's generated code may live in the same process.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import math
from typing import Any

import numpy as np

from intradp_ros.core.extras import pip_install
from intradp_ros.runtime.requests.infer_requests import InferEnd, MAX_TENSORS
from intradp_ros.systems.serving.service import TensorSpec
from intradp_ros.web.inference_protocol import (
    check_all,
    DATATYPES,
    figures,
    InferBody,
    is_batched,
    MAX_JSON,
    priority_of,
    ProtocolError,
    seconds_of,
    spec_of,
    values_of,
    wanted,
)

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError
except ModuleNotFoundError as error:  # said with the command that brings it
    raise ModuleNotFoundError(f'gRPC needs protobuf: {pip_install("serving")}',
                              name='protobuf') from error

PACKAGE, SERVICE = 'inference', 'GRPCInferenceService'
#: Fields of a message, and messages in one another, that are parsed.
MAX_FIELDS, MAX_NESTED = 1024, 4
#: By message: its fields in one line each, "number name type", "*" for lists; "|" marks a choice.
_MESSAGES: Mapping[str, str] = {
    'ServerLiveRequest': '', 'ServerLiveResponse': '1 live bool',
    'ServerReadyRequest': '', 'ServerReadyResponse': '1 ready bool',
    'ModelReadyRequest': '1 name string, 2 version string', 'ModelReadyResponse': '1 ready bool',
    'ServerMetadataRequest': '',
    'ServerMetadataResponse': '1 name string, 2 version string, 3 extensions string*',
    'ModelMetadataRequest': '1 name string, 2 version string',
    'TensorMetadata': '1 name string, 2 datatype string, 3 shape int64*',
    'ModelMetadataResponse': '1 name string, 2 versions string*, 3 platform string, '
                             '4 inputs TensorMetadata*, 5 outputs TensorMetadata*',
    'InferParameter': '1 bool_param bool|, 2 int64_param int64|, 3 string_param string|, '
                      '4 double_param double|, 5 uint64_param uint64|',
    'ParametersEntry': '1 key string, 2 value InferParameter',
    'InferTensorContents': '1 bool_contents bool*, 2 int_contents int32*, '
                           '3 int64_contents int64*, 4 uint_contents uint32*, '
                           '5 uint64_contents uint64*, 6 fp32_contents float*, '
                           '7 fp64_contents double*, 8 bytes_contents bytes*',
    'InferInputTensor': '1 name string, 2 datatype string, 3 shape int64*, '
                        '4 parameters ParametersEntry*, 5 contents InferTensorContents',
    'InferRequestedOutputTensor': '1 name string, 2 parameters ParametersEntry*',
    'ModelInferRequest': '1 model_name string, 2 model_version string, 3 id string, '
                         '4 parameters ParametersEntry*, 5 inputs InferInputTensor*, '
                         '6 outputs InferRequestedOutputTensor*, 7 raw_input_contents bytes*',
    'InferOutputTensor': '1 name string, 2 datatype string, 3 shape int64*',
    'ModelInferResponse': '1 model_name string, 2 model_version string, 3 id string, '
                          '4 parameters ParametersEntry*, 5 outputs InferOutputTensor*, '
                          '6 raw_output_contents bytes*'}
_RAW = 7
_CONTENTS = {'bool': 'bool_contents', 'float32': 'fp32_contents', 'float64': 'fp64_contents',
             'int64': 'int64_contents', 'uint64': 'uint64_contents',
             **dict.fromkeys(('int8', 'int16', 'int32'), 'int_contents'),
             **dict.fromkeys(('uint8', 'uint16', 'uint32'), 'uint_contents')}


def _classes() -> Mapping[str, Any]:
    """Return the class of each message."""
    file = descriptor_pb2.FileDescriptorProto(
        name='open_inference_protocol.proto', package=PACKAGE, syntax='proto3')
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if '|' in fields:
            message.oneof_decl.add(name='parameter_choice')
        for line in filter(None, fields.split(', ')):
            number, field_name, kind = line.split()
            field = message.field.add(
                name=field_name, number=int(number), label=kinds.LABEL_REPEATED
                if kind.endswith('*') else kinds.LABEL_OPTIONAL)
            if kind.endswith('|'):
                field.oneof_index = 0
            kind = kind.rstrip('*|')
            if kind in _MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f'.{PACKAGE}.{kind}'
            else:
                field.type = getattr(kinds, f'TYPE_{kind.upper()}')
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f'{PACKAGE}.{name}')) for name in _MESSAGES}


CLASSES = _classes()
#: Numbers of the fields that are messages, with theirs.
_NESTED: Mapping[str, Mapping[int, str]] = {
    name: {int(number): kind for number, _, kind in (
        line.rstrip('*').split() for line in filter(None, fields.split(', ')))
        if kind in _MESSAGES}
    for name, fields in _MESSAGES.items()}


def parsed(kind: str, data: bytes | memoryview) -> Any:
    """
    Return a message; its fields are counted before it is parsed.

    :raises ProtocolError: if it is not one, or has too many fields.
    """
    if len(data) > MAX_JSON:
        raise ProtocolError(f'{len(data)} bytes in addition to raw_input_contents: send at most '
                            f'{MAX_JSON}')
    view = memoryview(data)
    _count(view, kind, 0)
    try:
        return CLASSES[kind].FromString(bytes(view))
    except DecodeError as error:
        raise ProtocolError(f'the message is not {kind}: {str(error)[:100]}') from None


def _count(data: memoryview, kind: str, depth: int, left: int = MAX_FIELDS) -> int:
    """Return how many more fields there may be; ProtocolError if there are too many."""
    for number, start, stop in _fields(data, left):
        left -= 1
        if nested := _NESTED[kind].get(number):
            if depth == MAX_NESTED:
                raise ProtocolError(f'the message has more than {MAX_NESTED} levels')
            left = _count(data[start:stop], nested, depth + 1, left)
    return left


def _fields(data: memoryview, most: int = MAX_FIELDS) -> Iterator[tuple[int, int, int]]:
    """Yield number, begin and end of each field of a message; ProtocolError if it is not one."""
    at, count = 0, 0
    while at < len(data):
        count += 1
        if count > most:
            raise ProtocolError(f'the message has more than {MAX_FIELDS} fields: send lists '
                                'packed')
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            start, at = at, _varint(data, at)[1]
        elif tag & 7 == 2:
            length, at = _varint(data, at)
            start, at = at, at + length
        elif tag & 7 in (1, 5):
            start, at = at, at + (8 if tag & 7 == 1 else 4)
        else:
            raise ProtocolError(f'the message has a field of kind {tag & 7}')
        if at > len(data):
            raise ProtocolError('the message breaks off')
        yield tag >> 3, start, at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for k, byte in enumerate(data[at:at + 10]):
        value |= (byte & 0x7f) << 7 * k
        if byte < 0x80:
            return value, at + k + 1
    raise ProtocolError('the message breaks off in a number')


def model_of(data: bytes) -> tuple[str, str]:
    """Return name and version of the model of a request; ProtocolError if it is not one."""
    found = {1: '', 2: ''}
    for number, start, stop in _fields(memoryview(data)):
        if number in found:
            found[number] = data[start:min(stop, start + 256)].decode('utf-8', 'replace')
    return found[1], found[2]


def infer_message(data: bytes, inputs: Sequence[TensorSpec]) -> InferBody:
    """
    Return what a ``ModelInferRequest`` says; `inputs` are the model's.

    :raises ProtocolError: if it is not taken; the text names the field.
    """
    view = memoryview(data)
    raw, head, at = list[memoryview](), list[memoryview](), 0
    for number, start, stop in _fields(view):
        if number == _RAW:
            raw.append(view[start:stop])
        else:
            head.append(view[at:stop])
        at = stop
    found = parsed('ModelInferRequest', b''.join(head))
    parameters = _parameters(found.parameters, 'the request', ('timeout', 'priority'))
    if len(found.id) > 256:
        raise ProtocolError('id: send a text of at most 256 characters')
    tensors = _tensors(found.inputs, raw, {spec.name: spec for spec in inputs})
    for output in found.outputs:
        _parameters(output.parameters, f'output {output.name[:80]!r}', ())
    return InferBody(
        tensors, found.id, seconds_of(parameters.get('timeout')),
        priority_of(parameters.get('priority', 0)), is_batched(tensors, inputs),
        dict.fromkeys(_names(found.outputs, 'outputs'), True) or None, True)


def _parameters(entries: Any, place: str, known: Sequence[str]) -> dict[str, Any]:
    found = {}
    for entry in entries:
        if entry.key not in known:
            raise ProtocolError(f'parameter {entry.key[:40]!r} of {place}: known are '
                                f'{", ".join(known) or "none"}')
        choice = entry.value.WhichOneof('parameter_choice')
        found[entry.key] = getattr(entry.value, choice) if choice else None
    return found


def _names(entries: Any, what: str) -> list[str]:
    names = [entry.name for entry in entries]
    if len(names) > MAX_TENSORS or len(set(names)) < len(names):
        raise ProtocolError(f'{what}: send at most {MAX_TENSORS}, none twice')
    return names


def _tensors(entries: Any, raw: Sequence[memoryview], specs: Mapping[str, TensorSpec],
             ) -> dict[str, Any]:
    _names(entries, 'inputs')
    if raw and len(raw) != len(entries):
        raise ProtocolError(f'{len(raw)} raw_input_contents for {len(entries)} inputs')
    found: dict[str, Any] = {}
    for k, entry in enumerate(entries):
        place = f'input {entry.name[:80]!r}'
        shape = list(entry.shape[:16])
        spec = spec_of(entry.name, entry.datatype, shape, specs)
        _parameters(entry.parameters, place, ())
        dtype = np.dtype(spec.dtype)
        if not raw:
            name = _CONTENTS.get(spec.dtype, 'raw_input_contents')
            given = [field.name for field, _ in entry.contents.ListFields()]
            if given != [name]:
                raise ProtocolError(f'{place} has {", ".join(given) or "no contents"}: send '
                                    f'raw_input_contents or {name}')
            numbers, count = getattr(entry.contents, name), math.prod(spec.shape)
            values = values_of(list(numbers[:count + 1]), dtype, count, place)
        elif entry.HasField('contents'):
            raise ProtocolError(f'{place} has contents in addition to raw_input_contents')
        elif len(raw[k]) != spec.nbytes:
            raise ProtocolError(f'{place}: {len(raw[k])} bytes of raw_input_contents: send '
                                f'{spec.nbytes}')
        else:
            values = np.frombuffer(bytes(raw[k]), dtype)
        found[entry.name] = values.reshape(shape)
    check_all(found, specs)
    return found


def answer_message(model: str, asked: InferBody, end: InferEnd) -> bytes:
    """
    Return the ``ModelInferResponse`` of an answer in time.

    :raises ProtocolError: if an output is asked for that there is not.
    """
    found = CLASSES['ModelInferResponse'](model_name=model, model_version='1', id=asked.id)
    for key, value in figures(end).items():
        kind = {str: 'string', int: 'int64', float: 'double'}[type(value)]
        found.parameters.add(key=key, value={f'{kind}_param': value})
    for name in wanted(asked.binary or dict.fromkeys(end.tensors, True), end.tensors):
        tensor = end.tensors[name]
        found.outputs.add(name=name, datatype=DATATYPES[tensor.dtype.name], shape=[
            *[1] * asked.batched, *tensor.shape])
        found.raw_output_contents.append(tensor.tobytes())
    data: bytes = found.SerializeToString()
    return data
