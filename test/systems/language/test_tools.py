# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Requests as agents send them: tools, their calls and results, by the real client."""
from __future__ import annotations

from collections.abc import Iterator
import json
from pathlib import Path
import sys
import time
from typing import Any, Literal

from language_models import costs, Scripted, STEADY
import openai
from pydantic import BaseModel
import pytest
from tiny_language_model import save_tiny_model
import torch

from intradp_ros.blobs.store import BlobStore
from intradp_ros.runtime.requests.text_requests import ChatTurn, TextRequest
from intradp_ros.systems.language import prompts as prompts_module
from intradp_ros.systems.language.families import library
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.prompts import Prompts
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.systems.language.tool_calls import call_marks
from intradp_ros.web.openai_api import openai_app
from intradp_ros.web.openai_requests import ChatBody
from intradp_ros.web.web_server import WebServer

#: What is said of tools, calls and results is as Qwen 2.5 has it.
TEMPLATE = r"""{%- if tools %}
    {{- "# Tools\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>\n" }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or message.role == "system" %}
        {{- '<' + message.role + '>' + message.content }}
    {%- elif message.role == "assistant" %}
        {{- '<assistant>' + (message.content or '') }}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}{{- '}\n</tool_call>' }}
        {%- endfor %}
    {%- elif message.role == "tool" %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}"""  # noqa: E501
#: An answer of this model, token by token; each is followed by the next one, whatever was asked.
ANSWER = ('<assistant>', 'I go. ', '<tool_call>', '\n{"name": "move", "arguments": ',
          '{"metres": 2, "to": "Zürich <tool_call>"}', '}\n', '</tool_call>', '\n<tool', '_call>',
          '\n{"name": "stop", ', '"arguments": {}}', '\n</tool', '_call> ', '<end>')
CALLS = [('move', {'metres': 2, 'to': 'Zürich <tool_call>'}), ('stop', {})]
PARAMETERS: dict[str, Any] = {
    'type': 'object', 'properties': {'metres': {'type': 'integer', 'maximum': 9}},
    'required': ['metres'], 'additionalProperties': False}


def tool(name: str, **function: Any) -> Any:
    return {'type': 'function', 'function': {'name': name, 'description': f'Do {name} <now>.',
                                             'parameters': PARAMETERS, **function}}


TOOLS = [tool('move', strict=True), tool('stop')]


def save_calling_model(folder: Path, template: str = TEMPLATE, special: bool = False) -> Path:
    """Write a model that always gives the same answer: each token decides the next one."""
    save_tiny_model(folder, context=2048)
    transformers = library()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if special:
        tokenizer.add_special_tokens({'additional_special_tokens': ['<tool_call>']})
    tokenizer.add_tokens([text for text in ANSWER if text not in tokenizer.get_vocab()])
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    torch.manual_seed(0)
    count = len(tokenizer)
    model.resize_token_embeddings(count)
    model.config.tie_word_embeddings = False
    embedding = torch.nn.functional.normalize(torch.randn(count, 64), dim=1)
    matrix = 0.01 * torch.randn(count, 64)
    chain = tokenizer.convert_tokens_to_ids(list(ANSWER))
    for token, following in zip(chain, chain[1:]):
        matrix[following] = 4 * embedding[token]
    state = {name: torch.zeros_like(value) if 'proj' in name else value
             for name, value in model.state_dict().items()}
    model.lm_head = torch.nn.Linear(64, count, bias=False)
    model.load_state_dict({**state, 'model.embed_tokens.weight': embedding,
                           'lm_head.weight': matrix})
    model.save_pretrained(folder)
    return folder


class Site:
    """A served model and its client."""

    def __init__(self, folder: Path, local: LocalLanguage) -> None:
        self.tokenizer: Any = library().AutoTokenizer.from_pretrained(folder)
        self.server = WebServer(openai_app(local.head), '127.0.0.1', 0)
        self.name = local.head.name
        self.client = openai.OpenAI(base_url=f'{self.server.url}/v1', api_key='none',
                                    max_retries=0, timeout=60.0)

    def dense(self) -> dict[str, int]:
        """Return biases without which this model writes blanks for ever where JSON lets it."""
        return {str(token): -100 for token in range(1, len(self.tokenizer))
                if not self.tokenizer.decode([token]).strip()}

    def options(self, **options: Any) -> dict[str, Any]:
        return {'model': self.name, 'messages': [{'role': 'user', 'content': 'go'}],
                'max_tokens': 40, 'temperature': 0, **options}

    def chat(self, **options: Any) -> Any:
        return self.client.chat.completions.create(**self.options(**options))

    def rendered(self, messages: Any, **options: Any) -> int:
        """Return the tokens of what the library renders."""
        text = self.tokenizer.apply_chat_template(messages, tokenize=False,
                                                  add_generation_prompt=True, **options)
        return len(self.tokenizer(text, add_special_tokens=False).input_ids)


def served(folder: Path) -> Iterator[Site]:
    store = BlobStore(folder / 'blobs', 1 << 40)
    given = costs(import_model(folder, store.put), 1, tokens=4096)
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, LanguageOptions(),
                       times=STEADY) as local:
        local.wait_ready()
        site = Site(folder, local)
        yield site
        site.server.close()


@pytest.fixture(scope='module')
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from served(save_calling_model(tmp_path_factory.mktemp('calling')))


def made(calls: Any) -> list[tuple[str, Any]]:
    assert all(call.type == 'function' for call in calls)
    assert len({call.id for call in calls}) == len(calls)
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


def test_without_tools_the_text_is_as_it_is_written(site: Site) -> None:
    for options in ({}, {'tools': TOOLS, 'tool_choice': 'none'}):
        choice = site.chat(**options).choices[0]
        assert choice.message.content == ''.join(ANSWER[1:-1])
        assert choice.finish_reason == 'stop' and choice.message.tool_calls is None


def test_calls_are_those_that_were_written(site: Site) -> None:
    answer = site.chat(tools=TOOLS, tool_choice='auto', n=2)
    for choice in answer.choices:
        assert choice.message.content == 'I go. ' and choice.finish_reason == 'tool_calls'
        assert made(choice.message.tool_calls) == CALLS
    assert answer.usage.prompt_tokens == site.rendered([{'role': 'user', 'content': 'go'}],
                                                       tools=TOOLS)
    one = site.chat(tools=TOOLS, parallel_tool_calls=False).choices[0]
    assert made(one.message.tool_calls) == CALLS[:1] and one.message.content == 'I go. '


def test_a_stream_has_the_same_calls(site: Site) -> None:
    with site.client.chat.completions.stream(**site.options(
            tools=TOOLS, stream_options={'include_usage': True})) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    choice = final.choices[0]
    assert choice.message.content == 'I go. ' and choice.finish_reason == 'tool_calls'
    assert made(choice.message.tool_calls) == CALLS
    assert final.usage.completion_tokens == len(ANSWER) - 2
    assert not any('tool_call>' in (event.delta or '') for event in events
                   if event.type == 'content.delta')


@pytest.mark.parametrize('options, behind, finish', [
    ({'tools': TOOLS[:1]}, '"arguments": {}}\n</tool_call> ', 'tool_calls'),
    ({'tools': TOOLS, 'max_tokens': 9}, '', 'length')])
def test_what_is_not_a_call_of_these_tools_stays_text(site: Site, options: Any, behind: str,
                                                      finish: str) -> None:
    choice = site.chat(**options).choices[0]
    assert made(choice.message.tool_calls) == CALLS[:1] and choice.finish_reason == finish
    assert choice.message.content == 'I go. \n<tool_call>\n{"name": "stop", ' + behind


@pytest.mark.parametrize('choice', ['required', {'type': 'function',
                                                 'function': {'name': 'move'}}])
def test_a_tool_that_must_be_called_is_called_as_its_schema_says(site: Site, choice: Any) -> None:
    tools = TOOLS[:1] if choice == 'required' else TOOLS
    asked = {'tools': tools, 'tool_choice': choice, 'logit_bias': site.dense()}
    answer = site.chat(**asked).choices[0]
    (call,) = answer.message.tool_calls
    assert answer.message.content is None and answer.finish_reason == 'stop'
    given = json.loads(call.function.arguments)
    assert call.function.name == 'move' and set(given) == {'metres'} and given['metres'] <= 9
    chunks = list(site.chat(**asked, stream=True))
    deltas = [one for chunk in chunks for one in chunk.choices[0].delta.tool_calls or ()]
    assert deltas[0].function.name == 'move' and deltas[0].id
    assert ''.join(one.function.arguments for one in deltas) == call.function.arguments
    assert not any(chunk.choices[0].delta.content for chunk in chunks)


def test_results_of_tools_and_developers_are_messages(site: Site) -> None:
    """As `apply_chat_template` has them; a developer is the system of a template without."""
    asked = [{'role': 'developer', 'content': [{'type': 'text', 'text': 'Be'},
                                               {'type': 'text', 'text': 'brief.'}]},
             {'role': 'user', 'content': 'go'}]
    first = site.chat(messages=asked, tools=TOOLS).choices[0].message
    messages = [*asked, first.model_dump(), *(
        {'role': 'tool', 'tool_call_id': call.id, 'content': 'done'} for call in first.tool_calls)]
    answer = site.chat(messages=messages, tools=TOOLS, user='me', metadata={'a': 'b'})
    assert answer.usage.prompt_tokens == site.rendered([
        {'role': 'system', 'content': 'Be\nbrief.'}, {'role': 'user', 'content': 'go'},
        {'role': 'assistant', 'content': 'I go. ', 'tool_calls': [
            {'type': 'function', 'function': {'name': name, 'arguments': arguments}}
            for name, arguments in CALLS]},
        *[{'role': 'tool', 'content': 'done'}] * 2], tools=TOOLS)


class Move(BaseModel):
    """How far."""

    metres: Literal[2, 3]


def test_the_client_parses_what_it_asks_for(site: Site) -> None:
    parsed = site.client.chat.completions.parse(**site.options(
        response_format=Move, logit_bias=site.dense()))
    assert isinstance(parsed.choices[0].message.parsed, Move)
    called = site.client.chat.completions.parse(**site.options(
        tools=[openai.pydantic_function_tool(Move)], logit_bias=site.dense(),
        tool_choice={'type': 'function', 'function': {'name': 'Move'}}))
    (call,) = called.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Move)


@pytest.mark.parametrize('named, options', [
    ('tool_choice', {'tool_choice': 'required', 'tools': TOOLS}),
    ('tool_choice', {'tool_choice': {'type': 'function', 'function': {'name': 'x'}},
                     'tools': TOOLS}),
    ('tool_choice', {'tool_choice': 'any', 'tools': TOOLS}),
    ('schema', {'tool_choice': 'required', 'tools': TOOLS[:1],
                'response_format': {'type': 'json_object'}}),
    ('tools.1.function.name', {'tools': [TOOLS[0], {'type': 'function', 'function': {}}]}),
    ('two of one name', {'tools': TOOLS[:1] * 2}),
    ('characters of tools', {'tools': [tool('f', description='x' * (1 << 18))]}),
    ('arguments is not a JSON object', {'messages': [{'role': 'assistant', 'tool_calls': [
        {'id': 'a', 'type': 'function', 'function': {'name': 'f', 'arguments': '[1'}}]}]}),
    ('functions', {'functions': [{'name': 'f'}]})])
def test_what_tools_cannot_be_is_refused_by_name(site: Site, named: str, options: Any) -> None:
    with pytest.raises(openai.BadRequestError, match=named):
        site.chat(**options)


def test_a_template_that_reads_no_tools_says_so(tmp_path: Path) -> None:
    for site in served(save_tiny_model(tmp_path / 'model')):
        for named, options in (
                ('tools are not read', {'tools': TOOLS}),
                ('tool_calls', {'messages': [{'role': 'assistant', 'tool_calls': [{
                    'id': 'a', 'type': 'function',
                    'function': {'name': 'f', 'arguments': '{}'}}]}]})):
            with pytest.raises(openai.BadRequestError, match=named):
                site.chat(**options)
        assert site.chat(messages=[{'role': 'developer', 'content': 'x'}]).choices
        results = [{'role': 'user', 'content': 'go'}, {'role': 'tool', 'content': 'done'}]
        assert site.chat(messages=results).usage.prompt_tokens == site.rendered(results)


def test_results_that_a_template_leaves_out_are_refused(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / 'model')
    tokenizer = library().AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = ("{% for m in messages if m.role == 'user' %}{{ m.content }}"
                               '{% endfor %}')
    tokenizer.save_pretrained(folder)
    for site in served(folder):
        with pytest.raises(openai.BadRequestError, match='messages of tool are not read'):
            site.chat(messages=[{'role': 'user', 'content': 'go'},
                                {'role': 'tool', 'content': 'done'}])


@pytest.mark.parametrize('change, marks', [
    (lambda text: text, ('<tool_call>', '</tool_call>')),
    (lambda text: text.replace('\\n<tool_call>\\n{"name": "', '{"name": "'), None),
    (lambda text: text.replace('"arguments": \'', '"parameters": \''), None),
    (lambda text: text.replace('| tojson }}{{', '| string }}{{'), None),
    (lambda text: '{{ raise_exception("no") }}', None)])
def test_calls_are_known_where_the_template_writes_them_so(tmp_path: Path, change: Any,
                                                           marks: Any) -> None:
    folder = save_tiny_model(tmp_path)
    tokenizer = library().AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = change(TEMPLATE)
    assert call_marks(tokenizer) == marks
    tokenizer.add_special_tokens({'additional_special_tokens': ['<tool_call>']})
    assert call_marks(tokenizer) is None


@pytest.mark.parametrize('template', [
    {'default': '{{ messages[0].content }}', 'tool_use': '{{ tools[0].function.name }}!'},
    '{% for part in messages[0].content %}{{ part.text }}{% endfor %}'
    '{% if tools %}{{ tools[0].function.name }}!{% endif %}'], ids=['named', 'parts'])
def test_a_template_is_chosen_and_given_what_it_reads(tmp_path: Path, template: Any) -> None:
    """One named for tools where there are tools; parts where a text would not be read."""
    save_tiny_model(tmp_path)
    tokenizer = library().AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.chat_template = template
    manifest = import_model(tmp_path, BlobStore(tmp_path / 'blobs', 1 << 40).put)
    prompts, asked = Prompts(manifest, tokenizer), (ChatTurn('user', ' robot '),)
    of_tools = 'move!' if isinstance(template, dict) else ' robot move!'
    for tools, wanted in ('', ' robot '), (json.dumps(TOOLS), of_tools):
        found = prompts.tokens(TextRequest(asked, tools=tools))
        assert found == tokenizer(wanted, add_special_tokens=False).input_ids


READS = ('{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}[{{ '
         'part.type }}]{{ part.text }}{% endfor %}{% endif %}')


@pytest.mark.parametrize('writes, wanted', [
    (READS, 'B|[text]a[text]b|'),
    ('{% for part in m.content %}{{ part.text }};{% endfor %}', 'B;|a;b;|'),
    ('{{ m.content }}', 'B|a\nb|'), ('{{ m.content | trim }}', 'B|a\nb|'),
    ("{{ m.content + '!' }}", 'B!|a\nb!|'),
    ("{{ m.content.split('x')[0] }}", 'B|a\nb|')])
def test_parts_are_given_to_templates_that_read_them(tmp_path: Path, writes: str, wanted: str,
                                                     ) -> None:
    """As the client has them; to others their texts are one, a line each."""
    save_tiny_model(tmp_path)
    tokenizer = library().AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.chat_template = '{% for m in messages %}' + writes + '|{% endfor %}'
    manifest = import_model(tmp_path, BlobStore(tmp_path / 'blobs', 1 << 40).put)
    turns = ChatBody.model_validate({'messages': [{'role': 'system', 'content': 'B'}, {
        'role': 'user', 'content': [{'type': 'text', 'text': 'a'},
                                    {'type': 'text', 'text': 'b'}]}]}).turns()
    found = Prompts(manifest, tokenizer).tokens(TextRequest(turns))
    assert found == tokenizer(wanted, add_special_tokens=False).input_ids


def test_a_template_that_takes_long_for_some_messages_refuses_these(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_module, 'RENDERING', 0.2)
    save_tiny_model(tmp_path)
    tokenizer = library().AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.chat_template = (
        "{% if 'long' in messages[0].content | string %}{% for a in range(99999) %}"
        '{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}')
    manifest = import_model(tmp_path, BlobStore(tmp_path / 'blobs', 1 << 40).put)
    prompts = Prompts(manifest, tokenizer)
    with pytest.raises(ValueError, match='refuses these messages: it takes more than 0.2 s'):
        prompts.tokens(TextRequest((ChatTurn('user', 'long'),)))
    begun = time.thread_time()  # of all ways to give it the parts of its messages together
    with pytest.raises(ValueError, match='it takes more than 0.2 s'):
        prompts.tokens(TextRequest((ChatTurn('user', 'long', (), ('long',)),)))
    assert time.thread_time() - begun < 0.35
    assert prompts.tokens(TextRequest((ChatTurn('user', 'short'),)))
    assert sys.gettrace() is None
