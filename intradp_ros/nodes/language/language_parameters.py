# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Parameters of a device that takes part in language models, and of one that answers requests."""
from __future__ import annotations

from intradp_ros.core.plain_file import check_file
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.systems.language.drafts import DRAFTS, MOST_DRAFTS

HOLD, REFUSE = 'hold', 'refuse'
KEYED, OPEN = 'keyed', 'open'
LANGUAGE_MODEL = Parameter(
    'language_model', '', 'Folder of safetensors, GGUF file, or "smollm2". A device turns it into '
    'blobs, and hands them out to the others; at least the head needs it. The coordinator plans '
    'for it.')
LANGUAGE_PLANNING_PARAMETERS: tuple[Parameter, ...] = (
    LANGUAGE_MODEL,
    Parameter('head', '', 'Device that has embedding, head and the requests.'),
    Parameter('tokens', 2048, 'Tokens of all requests together that there is room for.',
              16, 1 << 24),
)
LANGUAGE_PARAMETERS: tuple[Parameter, ...] = (
    LANGUAGE_MODEL,
    Parameter('answers', False, 'Answer requests, as the head of plans: by actions, and by HTTP '
              'if http_port is set.'),
    Parameter('goals', KEYED, 'Whose goals and calls are taken where there is a key_file: '
              '"keyed", of none, for they can show no key (HTTP with api_keys can); "open", of '
              'all. Without a key, and where SROS2 decides who calls, of all.',
              choices=(KEYED, OPEN)),
    Parameter('highest_priority', 0, 'The highest priority that a goal or call may have; requests '
              'over HTTP have 0.', -(1 << 31), (1 << 31) - 1),
    Parameter('max_tokens', 256, 'Tokens of an answer whose goal does not say how many.',
              1, 1 << 20),
    Parameter('served_at_once', 8, 'Requests that are computed together.', 1, 1024),
    Parameter('waiting', 64, 'Requests that may wait; one more is refused.', 1, 100000),
    Parameter('per_client', 16, 'Requests of one client that wait or are served.', 1, 100000),
    Parameter('prompt_chunk', 128, 'Tokens of prompts that are computed in one piece.', 1, 4096),
    Parameter('drafts', DRAFTS, 'Tokens of each request that are looked up in what it has so far, '
              'and checked in one round, where that is measured to pay; answers are the same. '
              '0: none.', 0, MOST_DRAFTS),
    Parameter('without_plan', HOLD, 'What becomes of a request while no plan is in use, after a '
              'loss say: it is held until there is one, or its deadline is over; or refused.',
              choices=(HOLD, REFUSE)),
    Parameter('http_port', 0, 'TCP port of the OpenAI-compatible endpoint; 0 for none.', 0, 65535),
    Parameter('http_address', '127.0.0.1', 'Address of that port; one that other machines reach '
              'needs api_keys.'),
    Parameter('api_keys', '', 'File of API keys: a name, a blank and a key on each line.',
              check=check_file),
    Parameter('http_rate', 10.0, 'Requests a second that a client may send in the mean.',
              0.01, 1e6),
    Parameter('http_burst', 20, 'Requests that a client may send at once.', 1, 1000000),
)
