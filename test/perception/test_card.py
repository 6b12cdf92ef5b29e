# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Cards of models: there and back, and what is refused."""
from __future__ import annotations

import codecs
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.serialise import digest, load_graph, load_notes, save_graph
from intradp_ros.perception.card import (
    card_from_json,
    card_to_json,
    CardError,
    HeadCard,
    InputCard,
    KINDS,
    ModelCard,
)
from intradp_ros.perception.card_sources import described, find_card
from intradp_ros.perception.labels import parse_labels
from intradp_ros.runtime.models.catalogue import ModelSpec

CARD = ModelCard('streets', 'Apache-2.0', InputCard('letterbox', 0, 'bgr', (0.5, 0.4, 0.3)),
                 HeadCard('detections', 0.5, form='xywh'), ('boxes', 'scores'), ('car', 'cat'))


@described(CARD)
def described_model() -> nn.Module:
    return nn.Conv2d(3, 2, 1)


def test_there_and_back() -> None:
    assert card_from_json(card_to_json(CARD)) == CARD
    assert card_from_json('{}') == ModelCard()


@pytest.mark.parametrize(('text', 'says'), [
    ('[1]', 'not a JSON object'), ('{', 'not JSON'), ('{"format": 2}', 'format 1'),
    ('{"head": {"kind": "boxes"}}', 'kind is one of tensors'), ('{"colour": "rgb"}', 'colour'),
    ('{"input": {"resize": 3}}', 'resize cannot be 3'),
    ('{"input": {"mean": [1]}}', 'three finite'),
    ('{"input": {"mean": [1, 2, NaN]}}', 'three finite'), ('{"labels": [7]}', 'labels cannot'),
    ('{"input": {"std": [1, 0, 1]}}', 'above 0'), ('{"head": {"score_threshold": 2}}', '0 to 1'),
    ('{"input": {"pad": true}}', 'pad cannot'),
    ('{"head": {"max_detections": 0}}', 'max_detections lies'),
    ('{"outputs": ["a", "a"]}', 'two outputs'), ('{"head": 1}', 'not a JSON object'),
    (json.dumps({'labels': ['x' * 300]}), '256 characters'),
    (json.dumps({'labels': ['x'] * 70_000}), '65535 at most'), ('[' * 100_000, 'not JSON'),
    (' ' * (2**20 + 1), '1048576 at most')])
def test_what_cannot_be_is_refused(text: str, says: str) -> None:
    with pytest.raises(CardError, match=says):
        card_from_json(text)


def test_names_of_before_are_read_with_one_warning() -> None:
    old = ('{"input": {"fit": "crop", "deviation": [1, 2, 3]}, '
           '"head": {"score": 0.5, "overlap": 0.7, "most": 3}}')
    with pytest.warns(FutureWarning, match='is now') as warned:
        card = card_from_json(old)
    assert len(warned) == 2  # one for each part
    assert card.input == InputCard('crop', std=(1, 2, 3))
    assert card.head == HeadCard(score_threshold=0.5, iou_threshold=0.7, max_detections=3)
    with pytest.raises(CardError, match='knows no'):  # both names: which counts?
        card_from_json('{"head": {"score": 0.5, "score_threshold": 0.6}}')


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
                    lambda part: st.lists(part, max_size=4) | st.dictionaries(
                        st.sampled_from(['input', 'head', 'labels', 'resize', 'fit', 'kind',
                                         'mean', 'x']),
                        part, max_size=4)))
def test_any_json_is_a_card_or_refused(document: object) -> None:
    try:
        card = card_from_json(json.dumps(document))
    except CardError:
        return
    assert card.head.kind in KINDS


def test_a_card_travels_in_the_archive(tmp_path: Path) -> None:
    """The digest, which robot and server compare, is that of the graph alone."""
    graph = capture(described_model(), (torch.zeros(1, 3, 4, 4),))
    plain, noted = tmp_path / 'plain.graph', tmp_path / 'noted.graph'
    save_graph(graph, plain)
    save_graph(graph, noted, card_to_json(CARD))
    assert digest(load_graph(plain)) == digest(load_graph(noted))
    assert (load_notes(plain), find_card(ModelSpec(str(plain)))) == ('', None)
    assert find_card(ModelSpec(str(noted))) == CARD
    (tmp_path / 'text').write_text('no archive')
    with pytest.raises(GraphFormatError, match='not an archive'):
        load_notes(tmp_path / 'text')


def test_a_file_comes_before_the_factorys_card(tmp_path: Path) -> None:
    spec = ModelSpec(f'{__name__}:described_model')
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        spec = ModelSpec('test_card:described_model')
        assert find_card(spec) is not None
        path = tmp_path / 'card.json'
        path.write_text('{"name": "other"}')
        assert find_card(spec, str(path)) == ModelCard('other')
        with pytest.raises(CardError, match='none.json'):
            find_card(spec, str(tmp_path / 'none.json'))


def test_labels_from_text_or_file(tmp_path: Path) -> None:
    path = tmp_path / 'coco.names'
    path.write_text('person\nbicycle\n')
    assert parse_labels(str(path)) == parse_labels('person, bicycle') == ('person', 'bicycle')
    assert parse_labels('') == ()
    assert CARD.label(1) == 'cat' and CARD.label(2) == '2' and CARD.label(-1) == '-1'
    with pytest.raises(CardError, match=r'no\.txt'):
        parse_labels(str(tmp_path / 'no.txt'))


def test_a_name_that_is_also_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               ) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_labels('names') == ('names',)
    Path('names').write_text('person\nbicycle\n')
    Path('data').mkdir()
    for text in ('names', 'data'):
        with pytest.raises(CardError, match='a class, or a file'):
            parse_labels(text)
    assert parse_labels('./names') == ('person', 'bicycle')
    assert parse_labels('["data"]') == ('data',)


COCO = ('person', 'traffic light', 'café, "Ö"')
LINES = '\r\n'.join(COCO)


@pytest.mark.parametrize(('name', 'data'), [
    ('bom.txt', codecs.BOM_UTF8 + LINES.encode()),
    ('crlf.names', (LINES + '\r\n\r\n').encode()),
    ('mac.txt', '\r'.join(COCO).encode()), ('wide.txt', LINES.encode('utf-16')),
    ('big.txt', codecs.BOM_UTF16_BE + LINES.encode('utf-16-be')),
    ('widest.txt', LINES.encode('utf-32')), ('LOUD.TXT', LINES.encode()),
    ('quoted.txt', '"person"\n\'traffic light\'\ncafé, "Ö"\n'.encode()),
    ('list.json', json.dumps(COCO).encode()), ('list.txt', json.dumps(COCO).encode('utf-16')),
    ('object.json', json.dumps({str(n): name for n, name in enumerate(COCO)}).encode()),
    ('config.json', json.dumps({'id2label': {'2': COCO[2], '0': COCO[0], '1': COCO[1]}}
                               ).encode()),
    ('turned.json', json.dumps({name: n for n, name in enumerate(COCO)}).encode()),
    ('data.yaml',
     'path: x\nnames:\n  0: person\n  1: traffic light\n  2: café, "Ö"\n'.encode()),
    ('list.yml', '- person\n- traffic light\n- café, "Ö"\n'.encode()),
    ('marked.yaml', codecs.BOM_UTF8 + '[person, traffic light, \'café, "Ö"\']'.encode()),
    ('line.csv', 'person, traffic light, "café, ""Ö"""\n'.encode())])
def test_names_as_people_and_tools_write_them(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert parse_labels(str(tmp_path / name)) == COCO


def test_names_on_the_command_line() -> None:
    assert parse_labels('\ufeffperson, "stop, sign",\'tree\'') == ('person', 'stop, sign', 'tree')
    assert parse_labels('["a", "b"]') == parse_labels('{0: a, 1: b}') == ('a', 'b')


@pytest.mark.parametrize(('name', 'data', 'names'), [
    ('a.csv', 'id,name\n0,person\n1,car\n', ('person', 'car')),
    ('b.csv', 'name,r,g,b\nroad,128,64,128\nsky,70,130,180\n', ('road', 'sky')),
    ('c.csv', 'id;name\n1;car\n0;person\n', ('person', 'car')),
    ('d.csv', 'name\nperson\ncar\n', ('person', 'car')),
    ('e.csv', 'person\ncar\n', ('person', 'car')),
    ('f.csv', '0,person\n1,car\n2,"a, b"\n', ('person', 'car', 'a, b')),
    ('g.csv', 'Class ID\tx\n', ('Class ID x',)),
    ('h.csv', 'index\tlabel\n0\tcat\n2\tdog\n', ('cat', '', 'dog')),
    ('i.csv', 'road,128,64,128\nsky,70,130,180\n', ('road', 'sky')),
    ('j.txt', '0 person\n1 traffic light\n', ('person', 'traffic light')),
    ('k.names', '0: person\n1: car\n2: 3 wheeler\n', ('person', 'car', '3 wheeler')),
    ('l.txt', '7 up\n3 musketeers\n', ('7 up', '3 musketeers')),
    ('m.txt', 'red, light\ngreen, dark\n', ('red, light', 'green, dark')),
    ('n.txt', 'name\nage\n', ('name', 'age')),
    ('o.yaml', '- 12:30\n- 010\n- 1_000\n- no\n- 2020-01-01\n- 1.10\n- ~\n',
     ('12:30', '010', '1_000', 'no', '2020-01-01', '1.10', '')),
    ('p.yaml', 'names:\n  0: 08\n  1: on\n', ('08', 'on')),
    ('q.csv', 'ID,Class Name\n1,car\n0,person\n', ('person', 'car')),
    ('r.csv', 'label,name\n1,car\n0,person\n', ('person', 'car')),
    ('s.csv', 'num,cls\n1,car\n0,person\n', ('person', 'car')),
    ('t.csv', 'sep=;\nid;name\n0;person\n1;car\n', ('person', 'car')),
    ('u.csv', '0|person|\n1|car|\n', ('person', 'car')),
    ('v.csv', '128,64,128,road\n70,130,180,sky\n', ('road', 'sky')),
    ('w.tsv', '# of ours\nid\tname\n0\tperson\n1\tcar\n', ('person', 'car')),
    ('x.txt', '1 car\n0 person\n', ('person', 'car')),
    ('y.txt', '# label:color_rgb:parts:actions\nroad:128,64,128::\nsky:70,130,180::\n',
     ('road', 'sky')),
    ('z.txt', 'n01440764 tench, Tinca\nn01443537 goldfish\n', ('tench, Tinca', 'goldfish')),
    ('1.json', '{"categories": [{"id": 1, "name": "car"}, {"id": 0, "name": "person"}]}',
     ('person', 'car')),
    ('2.yaml', 'nc: 2\nnames: [null, ~]\n', ('null', '')),
    ('3.csv', '0\n1\n2\n', ('0', '1', '2')),
    ('4.txt', 'zone 0\nzone 1\n', ('zone 0', 'zone 1'))])
def test_tables_and_numbered_lines_are_read_as_they_are_meant(
        tmp_path: Path, name: str, data: str, names: tuple[str, ...]) -> None:
    (tmp_path / name).write_text(data)
    assert parse_labels(str(tmp_path / name)) == names


@pytest.mark.parametrize(('name', 'data', 'says'), [
    ('a.csv', 'person,outdoor\ncar,vehicle\n', 'which holds the names'),
    ('b.csv', 'id,name\nx,person\n', 'whole numbers'),
    ('c.csv', 'id,name\n0,person\n0,car\n', 'each once'),
    ('d.txt', '1. person\n2. car\n', 'numbered from 1'),
    ('e.txt', '0 person\n2 car\n', 'not in a row'), ('f.csv', '1,person\n2,car\n', 'header'),
    ('g.csv', 'person,1\ncar,2\n', 'header'), ('h.csv', 'digit\n0\n1\n', 'heads the others'),
    ('i.csv', 'id,name\n', 'one line'), ('j.txt', 'person, car\n', 'one line'),
    ('r.txt', 'person 0\ncar 1\n', 'behind its names'),
    ('s.txt', 'person=1\ncar=0\n', 'behind its names'),
    ('k.pbtxt', "item {\n  id: 1\n  name: 'person'\n}\n", 'not a list'),
    ('l.txt', '\n\n', 'holds no names'), ('m.json', '[]', 'holds no names'),
    ('n.yaml', 'nc: 3\nnames: [person, car]\n', '3 classes .* names 2'),
    ('o.yaml', '0: person\n0: car\n', 'twice'), ('p.json', '{"0": "a", "0": "b"}', 'twice'),
    ('q.json', '[{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]', 'two classes')])
def test_what_could_be_meant_in_two_ways_is_refused(
        tmp_path: Path, name: str, data: str, says: str) -> None:
    (tmp_path / name).write_text(data)
    with pytest.raises(CardError, match=says):
        parse_labels(str(tmp_path / name))


def test_an_empty_line_between_is_a_class_without_a_name(tmp_path: Path) -> None:
    (tmp_path / 'a.txt').write_text('a\n\nc\n\n')
    assert parse_labels(str(tmp_path / 'a.txt')) == ('a', '', 'c')


@pytest.mark.parametrize(('name', 'data', 'says'), [
    ('a.txt', b'\xff\xd8\xff\xe0JFIF', 'save it as UTF-8'), ('b.txt', b'a\0b', 'no text'),
    ('c.txt', b'x' * 300, 'too long'), ('d.txt', b'a\x1b[31m', 'no text'),
    ('e.json', b'3', 'no list of names'), ('f.json', b'[[1]]', 'lists among'),
    ('g.yaml', b'a: [', 'not a list of names'), ('h.json', b'[true]', 'quotes'),
    ('i.json', b'{"a": 1, "7": "b"}', 'numbers and names'),
    ('j.yaml', b'{0: a, 999999999: b}', 'numbers and names'),
    ('k.txt', b'a\n' * 2**20, 'bytes'),
    ('l.yaml', b'!!python/object/apply:os.abort []', 'not a list')])
def test_files_that_are_no_names_are_refused(tmp_path: Path, name: str, data: bytes,
                                             says: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CardError, match=says):
        parse_labels(str(tmp_path / name))


def test_numbers_of_0_to_255_are_recognised() -> None:
    """Mean and deviation of Caffe or OpenCV: the error gives those to write."""
    with pytest.raises(CardError, match='give mean 0.485,0.456,0.406 and std 0.229,0.224,'):
        InputCard(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
    with pytest.raises(CardError, match='std 0.00392157'):
        InputCard(mean=(123.68, 116.78, 103.94))
    with pytest.raises(CardError, match='give std 1,1,1'):
        InputCard(std=(255.0, 255.0, 255.0))
    InputCard(mean=(-1.0, 0.0, 1.0), std=(1.0, 0.5, 2.0))
