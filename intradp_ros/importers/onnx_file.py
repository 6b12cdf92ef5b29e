# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
ONNX files in the form that onnx2torch reads: exporters write more forms than it knows.

Whatever stands in a file is checked before anything is computed from it:
what cannot be read is named by its own name.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from intradp_ros.importers.loading_error import LoadingError
from intradp_ros.importers.onnx_constant_sizes import settle
from intradp_ros.importers.onnx_evaluation import (
    difference,
    first_difference,
    NoEvaluationError,
    old_resizes,
    RESAMPLE,
    with_domain,
)
from intradp_ros.importers.onnx_resize import DOMAIN, Resize, RESIZED, resized, ResizeError

#: The newest set of operators that onnx2torch knows well.
NEWEST = 17
#: Numbers of a constant that is computed beforehand: shapes and sizes, not weights.
_FEW = 4096
#: Shapes that depend on computed sizes are known in the next round.
_ROUNDS = 10
#: Elements of a value above which a file is refused: 8 GiB of floats.
_MOST_ELEMENTS = 2**31
#: What a model converted from ONNX may differ by from the operators' definitions: rounding.
_CONVERTED = 1e-3
#: The same for a model that computes in half precision.
_CONVERTED_HALF = 5e-2
#: Letters of what a library says.
_MOST_TEXT = 300
_STANDARD = ('', 'ai.onnx')
#: Operators whose result depends on data in more than its numbers.
#: Operators whose results are as many as the data have it.
_COUNTED = ('NonMaxSuppression', 'Unique')
_CONTROL = ('If', 'Loop', 'Scan')
#: Types of a picture's elements, by ONNX's number.
_INPUTS = {1: torch.float32, 10: torch.float16, 11: torch.float64, 2: torch.uint8}
#: Types of weights that PyTorch and NumPy both have.
_WEIGHTS = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)
#: Attributes of the versions of Resize, with what they are where left out.
_RESIZE = {'mode': 'nearest', 'coordinate_transformation_mode': 'half_pixel',
           'nearest_mode': 'round_prefer_floor', 'cubic_coeff_a': -0.75, 'exclude_outside': 0,
           'extrapolation_value': 0.0, 'antialias': 0, 'keep_aspect_ratio_policy': 'stretch',
           'axes': ()}


@dataclass(frozen=True)
class OnnxFile:
    """
    A file that was read and can be converted: one picture in, known operators.

    `shape` is what it says of the input, 0 where that is left open; `dtype`
    what the input's elements are.
    """

    path: str
    model: Any
    shape: tuple[int, ...]
    dtype: torch.dtype


def open_onnx(path: str) -> OnnxFile:
    """
    Read a file and check what it asks for.

    :raises LoadingError: if it is not an ONNX file, or asks for what cannot be converted.
    """
    model = _load(path)
    if len(model.functions):
        model = import_module('onnx.inliner').inline_local_functions(model)
    graph = model.graph
    if not graph.output or not graph.input:
        raise LoadingError(f'{path} is not a model in ONNX: it holds no graph with an input and '
                           'an output')
    _check_operators(path, model)
    _check_weights(path, graph)
    _check_order(path, graph)
    weights = {weight.name for weight in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    if len(inputs) != 1:
        names = ', '.join(value.name for value in inputs)
        raise LoadingError(f'{path} takes {len(inputs)} inputs ({names}); an archive is made of '
                           'models of one picture')
    (value,) = inputs
    kind = value.type.tensor_type.elem_type if value.type.HasField('tensor_type') else -1
    if kind not in _INPUTS:
        raise LoadingError(f'{path} takes {_type_name(kind)} ({value.name}); pictures are float, '
                           'float16, double or uint8')
    dims = value.type.tensor_type.shape.dim
    return OnnxFile(path, model, tuple(max(0, d.dim_value) for d in dims), _INPUTS[kind])


def _load(path: str) -> Any:
    onnx: Any = import_module('onnx')
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError:
        raise
    except Exception as error:  # of protobuf
        raise LoadingError(f'{path} is not an ONNX file, or not all of one: {error}') from error
    base = str(Path(path).resolve().parent)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            where = {entry.key: entry.value for entry in tensor.external_data}
            try:
                onnx.external_data_helper.load_external_data_for_tensor(tensor, base)
            except Exception as error:  # the file is missing, too short or elsewhere
                raise LoadingError(
                    f'{path} keeps weights ({tensor.name}) in another file, '
                    f'{where.get("location", "which it does not name")!r}, which cannot be read '
                    f'({error}): copy it next to the ONNX file, or save the model in one file'
                    ) from error
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return model


def _check_operators(path: str, model: Any) -> None:
    """Raise LoadingError if a file asks for operators that no conversion has."""
    foreign = sorted({f'{node.op_type} of {node.domain}' for node in model.graph.node
                      if node.domain not in _STANDARD})
    if foreign:
        raise LoadingError(f'{path} asks for operators that ONNX does not define: '
                           f'{_some(foreign)}; export it again without what a runtime adds '
                           '(its optimisation, quantisation or own operators)')
    control = sorted({node.op_type for node in model.graph.node if node.op_type in _CONTROL})
    if control:
        raise LoadingError(f'{path} has {_some(control)}: what it computes depends on data, which '
                           'no graph of operators does; export it with fixed sizes, without loops '
                           'and branches, or simplify it (onnxsim)')
    counted = sorted({node.op_type for node in model.graph.node if node.op_type in _COUNTED})
    if counted:
        raise LoadingError(f'{path} has {_some(counted)} inside: how many results come out '
                           'depends on the picture, and a graph has results of fixed sizes; '
                           'export it without (nms=False, say): the node chooses boxes itself, '
                           'by score_threshold and iou_threshold of the card')
    onnx: Any = import_module('onnx')
    versions = [s.version for s in model.opset_import if s.domain in _STANDARD]
    newest = max(versions, default=0)
    if not versions:
        raise LoadingError(f'{path} names no set of operators (opset_import): it is not whole')
    unknown = sorted({node.op_type for node in model.graph.node
                      if not onnx.defs.has(node.op_type, max_inclusive_version=newest)})
    if unknown:
        raise LoadingError(f'{path} asks for operators that ONNX does not define in its set '
                           f'{newest}: {_some(unknown)} (cannot convert them)')


def _check_weights(path: str, graph: Any) -> None:
    """Raise LoadingError if weights are of types that PyTorch lacks, or not all there."""
    tensors = [(weight.name, weight) for weight in graph.initializer]
    tensors += [(node.output[0], a.t) for node in graph.node if node.op_type == 'Constant'
                for a in node.attribute if a.name == 'value']
    for name, tensor in tensors:
        if tensor.data_type not in _WEIGHTS:
            raise LoadingError(f'{path} has numbers of {_type_name(tensor.data_type)} ({name}); '
                               'export it in float32 or float16')
        wanted = math.prod(tensor.dims)
        if wanted < 0 or wanted > _MOST_ELEMENTS:
            raise LoadingError(f'{path}: {name} is said to have {wanted} numbers; '
                               f'{_MOST_ELEMENTS} at most')
        held = len(tensor.raw_data) or sum(len(getattr(tensor, field)) for field in (
            'float_data', 'int32_data', 'int64_data', 'double_data', 'uint64_data'))
        if held < wanted:
            raise LoadingError(f'{path}: {name} is said to have {wanted} numbers, the file holds '
                               'fewer: it is damaged')
    if graph.sparse_initializer:
        raise LoadingError(f'{path} has sparse weights; export it with dense ones')


def _check_order(path: str, graph: Any) -> None:
    """Raise LoadingError if something is read that nothing has made before."""
    made = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        for name in node.input:
            if name and name not in made:
                later = any(name in other.output for other in graph.node)
                raise LoadingError(
                    f'{path} contradicts itself: {node.op_type} {node.name} reads {name!r}, which '
                    f'{"is made after it" if later else "nothing makes"}')
        made |= {*node.output}
    for value in graph.output:
        if value.name not in made:
            raise LoadingError(f'{path} contradicts itself: nothing makes its output '
                               f'{value.name!r}')


def _contradiction(model: Any, shape: Sequence[int]) -> str:
    """Return what of a model's shapes and types does not fit an input, '' if all does."""
    onnx: Any = import_module('onnx')
    whole = type(model).FromString(model.SerializeToString())
    weights = {weight.name for weight in whole.graph.initializer}
    for value in whole.graph.input:
        if value.name not in weights:
            _set_shape(value, shape)
    for value in whole.graph.output:
        value.type.tensor_type.ClearField('shape')
    whole.graph.ClearField('value_info')
    try:
        onnx.shape_inference.infer_shapes(whole, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:  # noqa: B902 - of several classes, by release
        return ' '.join(str(error).split())
    return ''


def _some(names: Sequence[str]) -> str:
    return ', '.join(names[:5]) + (', ...' if len(names) > 5 else '')


def _type_name(kind: int) -> str:
    try:
        return str(import_module('onnx').TensorProto.DataType.Name(kind)).lower()
    except ValueError:
        return 'what is not a tensor'


def converted(file: OnnxFile, shape: Sequence[int]) -> nn.Module:
    """
    Return a file as a module, compared with what the operators are defined to do.

    :param shape: of the input, whole.
    :raises LoadingError: if onnx2torch cannot convert it, or computes something else.
    """
    to_torch: Any = import_module('onnx2torch')
    _register()
    try:
        model = readable(file, shape)
        module = settle(to_torch.convert(model, attach_onnx_mapping=True).eval())
    except ResizeError as error:
        raise LoadingError(f'{file.path} has a Resize that cannot be converted: {error}'
                           ) from error
    except NotImplementedError as error:
        raise LoadingError(f'onnx2torch cannot convert {file.path}: '
                           f'{_lacking(error, file.model)}; export the model with '
                           'torch.export.save to a .pt2 file instead') from error
    except LoadingError:
        raise
    except Exception as error:  # of what a file says against itself, or the converter
        raise _not_whole(file, shape) or error from error
    _compare(file, model, module, shape)
    return module


def _not_whole(file: OnnxFile, shape: Sequence[int]) -> LoadingError | None:
    """Return what is wrong with a file itself, or with what is asked of it; None if nothing."""
    contradiction = _contradiction(file.model, shape)
    return LoadingError(_unlike(file, shape, contradiction)) if contradiction else None


def _unlike(file: OnnxFile, shape: Sequence[int], contradiction: str) -> str:
    """Return what does not fit: the file itself, or the shape that it is asked for."""
    if any(said not in (0, n) for said, n in zip(file.shape, shape)):
        made = 'x'.join(str(n) if n else '?' for n in file.shape)
        return f'{file.path} is made for {made}, not for {"x".join(map(str, shape))}: ' \
            + contradiction
    return f'{file.path} contradicts itself: {contradiction}'


def _lacking(error: Exception, model: Any) -> str:
    """Return which operator a converter lacks, by name."""
    described = getattr(error, 'args', ('',))[0]
    for node in model.graph.node:
        if f"operation_type='{node.op_type}'" in str(described):
            return f'it has no {node.op_type}'
    return str(error)


def _compare(file: OnnxFile, model: Any, module: nn.Module, shape: Sequence[int]) -> None:
    """Raise LoadingError if a module computes something else than the file says."""
    random = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, tuple(shape), generator=random, dtype=torch.uint8) \
        if file.dtype is torch.uint8 else torch.randn(
            tuple(shape), generator=random).to(file.dtype)
    limit = _CONVERTED_HALF if file.dtype is torch.float16 else _CONVERTED
    try:
        with torch.inference_mode():
            module(noise)
    except Exception as error:  # noqa: B902 - whatever PyTorch says of an operator
        stopped = ' '.join(str(error).split())[:_MOST_TEXT]
    else:
        stopped = ''
    try:
        worst = difference(file.model, module, noise)
    except NoEvaluationError as error:
        contradiction = str(error) if stopped else _contradiction(file.model, shape)
        if contradiction:
            raise LoadingError(_unlike(file, shape, contradiction)) from error
        raise LoadingError(f'what {file.path} computes cannot be checked: onnx.reference stops '
                           f'({error}); export the model with torch.export.save instead'
                           ) from error
    except RuntimeError as error:
        raise LoadingError(f'{file.path} converted to PyTorch (onnx2torch) stops: {stopped}; '
                           'export the model with torch.export.save instead') from error
    if worst <= limit:
        return
    assert isinstance(module, fx.GraphModule)
    first = first_difference(model, module, noise, limit)
    raise LoadingError(
        f'{file.path} converted to PyTorch (onnx2torch) and evaluated (onnx.reference) gives two '
        f'results, {worst:.1e} of their spread apart' + (f', first at {first}' if first else '') +
        '; which is wrong is not known: export the model with torch.export.save instead')


def readable(file: OnnxFile, shape: Sequence[int]) -> Any:
    """
    Return a model with the same results in fewer forms, for an input of that shape.

    Constants stand among the weights, what only hands on is left out, hard
    sigmoids (whose slope onnx2torch does not read) are spelled out, sizes that
    are computed from the shape are constants, every Resize says in one form
    what it does, and newer sets of operators are brought to `NEWEST` where
    onnx can do that.
    """
    onnx: Any = import_module('onnx')
    model = type(file.model).FromString(file.model.SerializeToString())
    graph = model.graph
    _keep(graph, 'node', [node for node in graph.node if not _stored(onnx, graph, node)])
    _bypass(graph)
    _spell_out(onnx, graph)
    newest = max(s.version for s in model.opset_import if s.domain in _STANDARD)
    if newest < 11:  # Resize had one form until then, as Upsample
        old_resizes(model)
    model = _settled(onnx, file.path, model, shape)
    _settle_resizes(onnx, model, file.path)
    if newest <= NEWEST:
        return model
    try:
        return import_module('onnx.version_converter').convert_version(model, NEWEST)
    except Exception:  # whatever it cannot convert, the converter to torch names
        return model


def _settle_resizes(onnx: Any, model: Any, path: str) -> None:
    """Write every Resize as one of ours: its input's shape and all that it says as attributes."""
    known, values = _known(onnx, model.graph), _values(model.graph)
    for node in model.graph.node:
        if _resizes(node):
            node.CopyFrom(_resize_node(onnx, path, node, known, values))
    with_domain(model)


def _settle_longer(onnx: Any, model: Any, path: str) -> bool:
    """
    Settle the first Resize of which onnx infers no size, or another one; return whether one is.

    Sizes are products in single precision in runtimes, and as exact in PyTorch (5 times 1.4 is 7);
    onnx multiplies a scale that was rounded before in double precision.
    """
    known, values = _known(onnx, model.graph), _values(model.graph)
    for node in model.graph.node:
        if not _resizes(node):
            continue
        try:
            fresh = _resize_node(onnx, path, node, known, values)
        except LoadingError:  # not all of it is known yet
            continue
        result = _resize_of(_attributes(onnx, fresh))[0].result
        inferred = values.get(name := node.output[0])
        if inferred is not None and [d.dim_value for d in inferred.shape.dim] == [*result]:
            continue
        value = next((one for one in model.graph.output if one.name == name), None) \
            or model.graph.value_info.add(name=name)
        value.type.tensor_type.elem_type = values[node.input[0]].elem_type
        _set_shape(value, result)
        node.CopyFrom(fresh)
        with_domain(model)
        return True
    return False


def _resizes(node: Any) -> bool:
    return node.op_type == RESAMPLE and node.domain == DOMAIN or (
        node.op_type in ('Resize', 'Upsample') and node.domain in _STANDARD)


def _known(onnx: Any, graph: Any) -> dict[str, Any]:
    return {w.name: onnx.numpy_helper.to_array(w) for w in graph.initializer
            if math.prod(w.dims) <= _FEW}


def _values(graph: Any) -> dict[str, Any]:
    return {value.name: value.type.tensor_type
            for value in (*graph.output, *graph.value_info, *graph.input)}


def _attributes(onnx: Any, node: Any) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def _resize_node(onnx: Any, path: str, node: Any, known: Mapping[str, Any],
                 values: Mapping[str, Any]) -> Any:
    """Return one of our nodes for a Resize."""
    old = node.op_type == RESAMPLE
    name = f'{node.op_type} {node.name or node.output[0]}'
    of = values.get(node.input[0])
    shape = [d.dim_value for d in of.shape.dim] if of is not None else []
    if of is None or not shape or min(shape) < 1:
        raise LoadingError(f'{path}: the size of what {name} takes is not known beforehand; '
                           'export the model with fixed sizes')
    said = {key: value.decode() if isinstance(value, bytes) else value
            for key, value in _attributes(onnx, node).items()}
    inputs = dict(zip(('x', 'scales') if old else ('x', 'roi', 'scales', 'sizes'), node.input))
    for key, held in [*inputs.items()][1:]:
        if held and held not in known and (key != 'roi' or said.get(
                'coordinate_transformation_mode') == 'tf_crop_and_resize'):
            raise LoadingError(f'{path}: {name} computes its {key} from data; export the '
                               'model with fixed sizes')
        said[key] = known[held].ravel().tolist() if held in known else ()
    if old or node.op_type == 'Upsample':
        said |= {'coordinate_transformation_mode': 'asymmetric', 'nearest_mode': 'floor'}
    said = {key: value for key, value in said.items()
            if key in (*_RESIZE, 'roi', 'scales', 'sizes')
            and not (isinstance(value, (list, tuple)) and not value)}
    fresh = onnx.helper.make_node(
        RESIZED, [node.input[0]], [node.output[0]], node.name, domain=DOMAIN, shape=shape,
        floating=int(of.elem_type in (1, 10, 11)), **said)
    try:
        _resize_of(_attributes(onnx, fresh))
    except ResizeError as error:
        raise LoadingError(f'{path}: {name} cannot be converted: {error}') from error
    return fresh


def _resize_of(said: Mapping[str, Any]) -> tuple[Resize, bool]:
    """Return what the attributes of one of our nodes say, and whether numbers are floats."""
    plain: dict[str, Any] = {}
    for key, value in said.items():
        plain[key] = value.decode() if isinstance(value, bytes) else (
            value if isinstance(value, (str, int, float)) else tuple(value))
    floating = bool(plain.pop('floating'))
    return Resize(**plain), floating


def _register() -> None:
    """Let onnx2torch convert our own operator."""
    registry: Any = import_module('onnx2torch.node_converters.registry')
    common: Any = import_module('onnx2torch.utils.common')

    def convert(node: Any, graph: Any) -> Any:
        resize, floating = _resize_of(node.attributes)
        return common.OperationConverterResult(
            resized(resize, floating=floating), common.onnx_mapping_from_node(node))

    try:
        registry.add_converter(RESIZED, 1, DOMAIN)(convert)
    except ValueError:  # it is registered already
        return


def _settled(onnx: Any, path: str, model: Any, shape: Sequence[int]) -> Any:
    """Return a model for an input of that shape, with what depends on it alone computed."""
    weights = {weight.name for weight in model.graph.initializer}
    (value,) = (value for value in model.graph.input if value.name not in weights)
    _set_shape(value, shape)
    for value in model.graph.output:
        value.type.tensor_type.ClearField('shape')
    for _ in range(_ROUNDS + len(model.graph.node)):
        settled = {node.output[0] for node in model.graph.node if node.op_type == RESIZED}
        _keep(model.graph, 'value_info', [
            one for one in model.graph.value_info if one.name in settled])
        try:
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except onnx.shape_inference.InferenceError as error:
            raise LoadingError(f'{path} contradicts itself (onnx): {error}') from error
        _check_sizes(path, model.graph)
        if not _settle_longer(onnx, model, path) and not _folded(onnx, model):
            break
    return model


def _check_sizes(path: str, graph: Any) -> None:
    """Raise LoadingError if a value would have more elements than anybody computes."""
    for value in graph.value_info:
        count = math.prod(max(1, d.dim_value) for d in value.type.tensor_type.shape.dim)
        if count > _MOST_ELEMENTS:
            raise LoadingError(f'{path} computes {count} numbers ({value.name}); '
                               f'{_MOST_ELEMENTS} at most')


def _set_shape(value: Any, shape: Sequence[int]) -> None:
    dims = value.type.tensor_type.shape
    dims.ClearField('dim')
    for size in shape:
        dims.dim.add().dim_value = size


def _folded(onnx: Any, model: Any) -> bool:
    """Compute what has constant inputs, and shapes that are known; return whether any was."""
    graph, numpy = model.graph, onnx.numpy_helper
    known = _known(onnx, graph)
    shapes = {name: [d.dim_value for d in kind.shape.dim] for name, kind in _values(graph).items()}
    results = {value.name for value in graph.output}
    kept, before = [], len(known)
    for node in graph.node:
        computed = (None if results & {*node.output}
                    else _computed(onnx, model, node, known, shapes))
        if computed is None:
            kept.append(node)
            continue
        known[node.output[0]] = computed
        graph.initializer.append(numpy.from_array(computed, node.output[0]))
    _keep(graph, 'node', kept)
    return len(known) > before


def _computed(onnx: Any, model: Any, node: Any, known: Mapping[str, Any],
              shapes: Mapping[str, Sequence[int]]) -> Any | None:
    """Return the only result of a node whose inputs are known and small, None otherwise."""
    if len(node.output) != 1 or node.domain not in _STANDARD:
        return None
    if node.op_type == 'Shape':
        dims = shapes.get(node.input[0], ())
        said = {a.name: a.i for a in node.attribute}
        asked = dims[said.get('start', 0):said.get('end', len(dims))]
        return np.array(asked, np.int64) if dims and all(d > 0 for d in asked) else None
    if not node.input or not all(name in known for name in node.input if name):
        return None
    if not _small(node, known):
        return None
    graph = onnx.helper.make_graph(
        [node], 'one', [], [onnx.helper.make_empty_tensor_value_info(node.output[0])],
        [onnx.numpy_helper.from_array(known[name], name) for name in set(node.input) if name])
    alone = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    try:
        (result,) = import_module('onnx.reference').ReferenceEvaluator(alone).run(None, {})
    except Exception:  # an operator that the package does not define: left as it is
        return None
    return result if isinstance(result, np.ndarray) and result.size <= _FEW else None


def _small(node: Any, known: Mapping[str, Any]) -> bool:
    """Whether the result of a node is about as small as its inputs, which are."""
    held = [known[name] for name in node.input if name]
    if node.op_type in ('ConstantOfShape', 'Expand', 'Tile'):
        return math.prod(abs(int(n)) for n in held[-1].ravel()) * (
            held[0].size if node.op_type == 'Tile' else 1) <= _FEW
    if node.op_type == 'Range':
        start, end, step = (float(x) for x in held)
        return bool(step) and abs((end - start) / step) <= _FEW
    return node.op_type not in ('Pad', 'OneHot', 'Resize', 'Upsample', 'EyeLike', 'CenterCropPad')


def _stored(onnx: Any, graph: Any, node: Any) -> bool:
    """Put a constant among the weights; return whether that was done."""
    if node.op_type != 'Constant' or len(node.attribute) != 1:
        return False
    (attribute,) = node.attribute
    if attribute.name == 'value':
        weight = onnx.TensorProto()
        weight.CopyFrom(attribute.t)
        weight.name = node.output[0]
    elif attribute.name in ('value_int', 'value_ints', 'value_float', 'value_floats'):
        number = np.float32 if 'float' in attribute.name else np.int64
        weight = onnx.numpy_helper.from_array(
            np.array(onnx.helper.get_attribute_value(attribute), number), node.output[0])
    else:
        return False
    graph.initializer.append(weight)
    return True


def _bypass(graph: Any) -> None:
    """Leave out nodes that only hand a value on, save for those that make a result."""
    results = {value.name for value in graph.output}
    source: dict[str, str] = {}
    kept = []
    for node in graph.node:
        if node.op_type == 'Identity' and node.output[0] not in results:
            source[node.output[0]] = _first(source, node.input[0])
        else:
            kept.append(node)
    for node in kept:
        node.input[:] = [_first(source, name) for name in node.input]
    _keep(graph, 'node', kept)


def _spell_out(onnx: Any, graph: Any) -> None:
    """Write ``clip(slope * x + shift, 0, 1)`` for every hard sigmoid."""
    node, nodes = onnx.helper.make_node, []
    for one in graph.node:
        if one.op_type != 'HardSigmoid':
            nodes.append(one)
            continue
        chosen = {'alpha': 0.2, 'beta': 0.5, **{a.name: a.f for a in one.attribute}}
        name = one.output[0]
        for part, value in (('slope', chosen['alpha']), ('shift', chosen['beta']), ('zero', 0.0),
                            ('one', 1.0)):
            graph.initializer.append(onnx.numpy_helper.from_array(
                np.array(value, np.float32), f'{name} {part}'))
        nodes += [node('Mul', [one.input[0], f'{name} slope'], [f'{name} steep']),
                  node('Add', [f'{name} steep', f'{name} shift'], [f'{name} high']),
                  node('Clip', [f'{name} high', f'{name} zero', f'{name} one'], [name])]
    _keep(graph, 'node', nodes)


def _first(source: Mapping[str, str], name: str) -> str:
    return source.get(name, name)


def _keep(graph: Any, field: str, items: list[Any]) -> None:
    """Replace a repeated field of a message."""
    copies = [type(item).FromString(item.SerializeToString()) for item in items]
    graph.ClearField(field)
    getattr(graph, field).extend(copies)
