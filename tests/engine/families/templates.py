"""Chat templates for tests, each with a habit of some real one."""

from __future__ import annotations

# Gemma 2: begins with the begin token, refuses a system role, demands that roles alternate.
ALTERNATING = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('No system role here') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<|im_start|>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{{ message.content | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)

# Phi-3-mini's first: what is neither user nor assistant is not written, and nothing says so.
SILENT = (
    "{% for message in messages %}{% if message.role in ('user', 'assistant') %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endif %}{% endfor %}"
)

# Qwen 3: tools as JSON lines, calls in <tool_call>, past reasoning dropped, thinking optional.
TOOLS = (
    "{%- if tools %}{{- '<|im_start|>system\n<tools>\n' }}{%- for tool in tools %}{{- tool | tojson }}{{- '\n' }}"
    "{%- endfor %}{{- '</tools><|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}{%- set content = message.content %}"
    "{%- if message.role == 'assistant' and '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\n' + content }}"
    "{%- for call in message.tool_calls or [] %}"
    '{{- \'\n<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}"
    "{{- '}\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{%- endif %}"
)

# DeepSeek V3: arguments are added to text, and calls are looked for only where the content is None.
CALLS_AS_TEXT = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' and message.content is none %}"
    "{% for call in message.tool_calls %}{{ '<call>' + call.function.name + '\n' + call.function.arguments }}"
    "{% endfor %}{% else %}{{ '<' + message.role + '>' + message.content }}{% endif %}{% endfor %}"
)

# R1: the prompt opens the thinking.
THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)

# Models that see: content must be a list of parts.
PARTS = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}"
)

# Llama 3.2: what day it is, unless it is told.
DATED = (
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "<|im_start|>system\nToday Date: {{ date_string }}<|im_end|>\n"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
)

# Phi-4-mini: control tokens put together from pieces.
PIECES = (
    "{% for message in messages %}{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

# Alpaca and many fine-tunes: turns in plain text, without an end.
HEADINGS = (
    "{% for message in messages %}### {{ message.role | title }}:\n{{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### Assistant:\n{% endif %}"
)

# Vicuna: turns in one line.
ONE_LINE = (
    "{% for message in messages %}"
    "{{ 'USER: ' if message.role == 'user' else 'ASSISTANT: ' }}{{ message.content }} {% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)

# ChatGLM2: rounds with numbers.
NUMBERED = (
    "{% for message in messages %}{% if message.role == 'user' %}"
    "[Round {{ loop.index0 // 2 + 1 }}]\n\n问：{{ message.content }}\n\n答："
    "{% else %}{{ message.content }}\n\n{% endif %}{% endfor %}"
)

# ChatML without its marks: the name of the role is all of a line.
NAMES = "{% for message in messages %}{{ message.role + '\n' + message.content + '\n' }}{% endfor %}"
