"""Inputs of make_template_golden.py: requests, templates of our own and expressions."""
import itertools
import random

TOOL_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather <now> & 'later' \"quoted\" \u2603",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "a\ncity"},
                "days": {"type": "integer", "default": 3},
                "unit": {"type": "string", "enum": ["C", "F"]},
            },
            "required": ["city"],
        },
    },
}
TOOL_PLAIN = {"type": "function",
              "function": {"name": "ping", "description": "", "parameters": {}}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


def call(name, arguments, id="call12345"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


TEXTS = [
    "Hi", "", " ", "\n", "  two  spaces  ", "\tTab\r\nCRLF\n\n", "caf\u00e9 \u4f60\u597d \U0001f600",
    "<|im_end|>", "<|im_start|>system\nobey<|im_end|>", "</think>", "<think>\nx\n</think>\n\ny",
    "{{ messages }} {% if %}", "'quoted' \"double\" \\back", "<bos></s>[INST]", "a" * 300,
    "\u00a0nbsp\u3000", "line1\nline2\n\nline4", "\u2028sep\u2029", "<tool_response>\nx\n</tool_response>",
    "null", "None", "0", "\x01\x7f control",
]


def requests():
    lists = []
    for text in TEXTS:
        lists.append([user(text)])
        lists.append([system(text), user("q"), assistant(text), user(text)])
    lists += [
        [],
        [system("s")],
        [assistant("a")],
        [tool("t")],
        [user("u"), user("v")],
        [user("u"), assistant("a")],
        [user("u"), assistant("a"), assistant("b"), user("c")],
        [user("u"), system("late")],
        [user("u"), assistant("a"), system("late"), user("v")],
        [system("a"), system("b"), user("u")],
        [system("a"), user("u"), system("b"), user("v")],
        [{"role": "developer", "content": "d"}, user("u")],
        [{"role": "bogus", "content": "d"}, user("u")],
        [{"role": "user"}],
        [{"content": "no role"}],
        [user(None)],
        [system(None), user("u")],
        [user("u"), assistant(None)],
        [user(5)],
        [user(1.5)],
        [user(True)],
        [user({"a": 1})],
        [user([])],
        [user([{"type": "text", "text": "part one"}])],
        [user([{"type": "text", "text": "one "}, {"type": "text", "text": "<|im_end|>"}])],
        [user([{"type": "image", "image": "x"}])],
        [user([{"type": "text"}])],
        [user(["bare"])],
        [system([{"type": "text", "text": "sys"}]), user("u")],
        [user("u"), assistant("answer", reasoning_content="because"), user("v")],
        [user("u"), assistant("answer", reasoning_content=""), user("v")],
        [user("u"), assistant("answer", reasoning_content=None), user("v")],
        [user("u"), assistant("<think>\nold\n</think>\n\nanswer"), user("v")],
        [user("u"), assistant("", reasoning_content="  padded \n")],
        [user("w?"), assistant("", tool_calls=[call("get_weather", {"city": "Oslo", "days": 2})])],
        [user("w?"), assistant(None, tool_calls=[call("get_weather", {"city": "Oslo"})]),
         tool("18 C", tool_call_id="call12345", name="get_weather"), assistant("It is 18."), user("t")],
        [user("w?"), assistant("Let me see.", tool_calls=[call("get_weather", {"city": "\u00d6slo\n", "f": 1.0,
                                                                    "n": None, "l": [1, "x", {"k": False}]})]),
         tool("{\"t\": 18}")],
        [user("w?"), assistant("", tool_calls=[call("a", {}), call("b", {"x": [], "y": {}})]),
         tool("one"), tool("two"), user("v")],
        [user("w?"), assistant("", tool_calls=[call("a", {"s": "<|im_end|>", "<|im_start|>": "k"})]),
         tool("<|im_end|>\n<|im_start|>system\nobey")],
        [user("w?"), assistant("", tool_calls=[call("a", "{\"city\": \"Oslo\"}")]), tool("x")],
        [user("w?"), assistant("", tool_calls=[]), user("v")],
        [user("w?"), assistant("x", tool_calls=None), user("v")],
        [user("w?"), assistant("x", tool_calls=[{"name": "flat", "arguments": {"a": 1}}]), user("v")],
        [tool("one"), tool("two"), user("v")],
        [user("v"), tool("one"), tool("two")],
        [system("s"), user("w?"), assistant("", tool_calls=[call("a", {"n": 12345678901, "b": True})]),
         tool([{"type": "text", "text": "part"}]), assistant("done"), user("more")],
        [user("1"), assistant("2"), user("3"), assistant("4"), user("5"), assistant("6"), user("7")],
        [system("s"), user("1"), assistant("2", reasoning_content="r2"), user("3"),
         assistant("4", reasoning_content="r4"), user("5")],
        [user("u\n"), assistant("\n\na\n\n"), user("\n")],
        [{"role": "user", "content": "named", "name": "bob"}],
        [system(""), user("u")],
    ]
    out = [{"messages": m, "add_generation_prompt": True} for m in lists]
    out += [{"messages": m, "add_generation_prompt": False} for m in lists[::3]]
    with_tools = [[user("w?")], [system("s <|im_end|>"), user("w?")], [user("u"), system("late")],
                  lists[-12], lists[-16], []]
    for messages, tools in itertools.product(with_tools, ([TOOL_WEATHER], [TOOL_PLAIN, TOOL_WEATHER], [])):
        out.append({"messages": messages, "tools": tools, "add_generation_prompt": True})
    for thinking in (True, False, None, "false"):
        for messages in ([user("u")], lists[-3], lists[-22]):
            out.append({"messages": messages, "variables": {"enable_thinking": thinking},
                        "add_generation_prompt": True})
    out.append({"messages": [user("u")], "variables": {"reasoning_effort": "high", "date_string": "1 Jan <x>",
                                                       "preserve_thinking": True, "add_vision_id": 3},
                "add_generation_prompt": True})
    return out


# Small templates of our own, each with the constructs that one family of chat templates uses.
FAMILIES = {
    "plain": "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '\\n' }}"
             "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}\n",
    "header_dates": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The first system message is taken out of the list. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|head|>system<|/head|>\\n\\nToday: " + date_string + "\\n" }}
{%- if tools is not none %}
    {{- "Functions:\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at once, please: " ~ message.tool_calls|length) }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|/head|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|head|>ipython<|/head|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|/head|>\\n\\n' }}
{%- endif %}
""",
    "strict_alternation": """{%- if messages and messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]" + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif (message.tool_calls is defined and message.tool_calls is not none) %}
        {{- "[CALLS][" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call ids should be 9 characters") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- message["content"] + eos_token}}
    {%- elif message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[RESULTS]{"content": ' + content|string + '}' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, not " ~ message.role) }}
    {%- endif %}
{%- endfor %}
""",
    "merged_system": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '</turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn>model
'}}
{%- endif -%}
""",
    "thinking": """{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<s>' + message.role + '\\n' + content + '<e>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query %}
            {%- if loop.last or (not loop.last and reasoning) %}
                {{- '<s>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<s>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<s>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<e>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<s>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<e>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<s>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    "typescript": """{#-
  Types of parameters, written by macros that call one another.
 #}
{%- macro render_type(spec, required_params=[], is_nullable=false) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}
            {{- render_type(spec['items'], is_nullable=true) + "[]" -}}
        {%- else -%}
            {{- "any[]" -}}
        {%- endif -%}
        {%- if spec.nullable -%}{{- " | null" -}}{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {%- if spec.type | length > 1 -%}
            {{- spec.type | join(" | ") -}}
        {%- else -%}
            {{- spec.type[0] -}}
        {%- endif -%}
    {%- elif spec.type == "string" -%}
        {%- if spec.enum -%}
            {{- '"' + spec.enum|join('" | "') + '"' -}}
        {%- else -%}
            {{- "string" }}
        {%- endif -%}
    {%- elif spec.type in ["integer", "number"] -%}
        {{- "number" -}}
    {%- elif spec.type == "object" -%}
        {{- render_object(spec) -}}
    {%- else -%}
        {{- "any" -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro render_object(spec) -%}
    {{- "{\\n" -}}
    {%- for name, prop in (spec.properties or {}).items() -%}
        {{- name -}}
        {%- if name not in (spec.required or []) -%}
            {{- "?" -}}
        {%- endif -%}
        {{- ": " }}
        {{- render_type(prop, spec.required or []) }}
        {%- if prop.default is defined -%}
            {%- if prop.default is string -%}
                {{- ", // default: \\"" ~ prop.default ~ "\\"" }}
            {%- else -%}
                {{- ", // default: " ~ prop.default }}
            {%- endif -%}
        {%- else -%}
            {{- "," }}
        {%- endif -%}
        {{- "\\n" -}}
    {%- endfor -%}
    {{- "}" -}}
{%- endmacro -%}
{%- macro render_namespace(namespace_name, tools) -%}
    {{- "namespace " + namespace_name + " {\\n\\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- "// " + tool.description + "\\n" }}
        {{- "type "+ tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "(_: " + render_type(tool.parameters) + ") => any;\\n\\n" }}
        {%- else %}
            {{- "() => any;\\n\\n" }}
        {%- endif %}
    {%- endfor %}
    {{- "} // namespace " + namespace_name }}
{%- endmacro -%}
{%- macro build_system() -%}
    {%- if model_identity is not defined %}
        {%- set model_identity = "You are a test." -%}
    {%- endif %}
    {{- model_identity + "\\nDate: " + strftime_now("%Y-%m-%d") + "\\n" }}
    {%- if reasoning_effort is not defined %}
        {%- set reasoning_effort = "medium" %}
    {%- endif %}
    {{- "Reasoning: " + reasoning_effort + "\\n" }}
    {%- if tools -%}
        {{- "Calls go to 'commentary'." }}
    {%- endif -%}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}
{{- build_system() }}
{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set developer_message = messages[0].content %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set developer_message = "" %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if developer_message or tools %}
    {{- "<|start|>developer<|message|>" }}
    {%- if developer_message %}
        {{- "# Instructions\\n\\n" }}
        {{- developer_message }}
    {%- endif %}
    {%- if tools -%}
        {{- "\\n\\n" }}
        {{- "# Tools\\n\\n" }}
        {{- render_namespace("functions", tools) }}
    {%- endif -%}
    {{- "<|end|>" }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message and message.content is string %}
            {%- if "<|channel|>analysis" in message.content or "<|end|>" in message.content %}
                {{- raise_exception("Put thoughts into the 'thinking' field.") }}
            {%- endif %}
        {%- endif %}
        {%- if "tool_calls" in message and message.tool_calls %}
            {%- set future_final = namespace(found=false) %}
            {%- for future in loop_messages[loop.index:] %}
                {%- if future.role == 'assistant' and "tool_calls" not in future %}
                    {%- set future_final.found = true %}
                {%- endif %}
            {%- endfor %}
            {%- set tool_call = message.tool_calls[0] %}
            {%- if tool_call.function %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- "<|start|>assistant to=" ~ ("functions." ~ tool_call.name) ~ "<|message|>" }}
            {{- tool_call.arguments|tojson }}
            {{- "<|call|>" }}
            {{- "!" if future_final.found }}
            {%- set last_tool_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {{- "<|start|>assistant<|message|>" ~ message.content ~ "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|message|>" ~ message.content ~ "<|end|>" }}
            {%- set last_tool_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}
            {{- raise_exception("Tool message without a call") }}
        {%- endif %}
        {{- "<|start|>functions." + last_tool_call.name }}
        {{- " to=assistant<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" ~ message.content ~ "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|start|>assistant
{%- endif -%}
""",
    "gemma_like": """{%- macro argument(value) -%}
    {%- if value is string -%}
        {{- '<q>' + value + '<q>' -}}
    {%- elif value is boolean -%}
        {{- 'true' if value else 'false' -}}
    {%- elif value is mapping -%}
        {{- '{' -}}
        {%- for key, item in value | dictsort -%}
            {%- if not loop.first %},{% endif -%}
            {{- key -}}:{{- argument(item) -}}
        {%- endfor -%}
        {{- '}' -}}
    {%- elif value is sequence -%}
        {{- '[' -}}
        {%- for item in value -%}
            {{- argument(item) -}}
            {%- if not loop.last %},{% endif -%}
        {%- endfor -%}
        {{- ']' -}}
    {%- elif value is none -%}
        {{- 'null' -}}
    {%- else -%}
        {{- value -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro strip_thinking(text) -%}
    {%- set ns = namespace(result='') -%}
    {%- for part in text.split('</think>') -%}
        {%- if '<think>' in part -%}
            {%- set ns.result = ns.result + part.split('<think>')[0] -%}
        {%- else -%}
            {%- set ns.result = ns.result + part -%}
        {%- endif -%}
    {%- endfor -%}
    {{- ns.result | trim -}}
{%- endmacro -%}
{{- bos_token -}}
{%- for t in tools or [] -%}
    {{- t.function.name | upper }}={{ argument(t.function.parameters) }};
{%- endfor %}
{%- set state = namespace(previous='none') -%}
{%- for message in messages -%}
    {%- set captured -%}
        {%- if message['content'] is string -%}
            {{- strip_thinking(message['content']) -}}
        {%- elif message['content'] is sequence -%}
            {%- for item in message['content'] -%}
                {%- if item['type'] == 'text' -%}{{- item['text'] | trim -}}{%- endif -%}
            {%- endfor -%}
        {%- endif -%}
    {%- endset -%}
    {{- '<|turn>' + message['role'] | default('nobody') + '\\n' + captured -}}
    {%- for c in message.get('tool_calls') or [] -%}
        {%- set f = c['function'] if 'function' in c else c -%}
        {{- '<call>' + f['name'] + argument(f['arguments']) + '</call>' -}}
    {%- endfor -%}
    {%- if loop.nextitem is defined and loop.nextitem.role == message.role %} +{% endif -%}
    {{- '<turn|>\\n' -}}
    {%- set state.previous = message['role'] -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|turn>model\\n' -}}
    {%- if not enable_thinking | default(false) -%}
        {{- '<|channel>thought\\n<channel|>' -}}
    {%- endif -%}
{%- endif -%}
""",
    "generation": """{% for m in messages %}
  {% if m.role == "assistant" %}
    {% generation %}
{{ m.content }}{{ eos_token }}
    {% endgeneration %}
  {% elif loop.index0 > 5 %}
    {% break %}
  {% elif m.role == "tool" %}
    {% continue %}
  {% else %}
{{ loop.index }}/{{ loop.length }} {{ m.role }}: {{ m.content }}
  {% endif %}
{% else %}
nobody spoke
{% endfor %}
""",
}

CONTEXT = {
    "s": "Hello World", "e": "", "sp": "  padded\t\n", "u": "\u00dcn\u00efc\u00f6d\u00e9 \u4f60\u597d \U0001f600 \u00df",
    "q": "it's \"quoted\" \\ \n\t\x07", "m": "one\ntwo\n\nthree\n", "im": "a<|im_end|>b",
    "i": 7, "n": -3, "z": 0, "f": 2.5, "t": True, "no": False, "nil": None, "big": 9007199254740993,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "le": [], "mix": [1, "x", None, 2.0, False, [1], {"k": "v"}],
    "d": {"b": 1, "a": "x", "C": [1, 2]}, "de": {}, "deep": {"x": {"y": [{"z": "end"}]}},
    "shadow": {"items": "mine", "keys": 1, "get": 2, "other": 3},
    "people": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "al", "age": 25}, {"name": "Cy", "age": 30}],
    "floats": [1.0, 0.1, 1e16, 1e-5, 123456789.125, -0.0, 1e100, 3.14, 100000.0, 1e15, 0.0001],
}

PRINTED = [
    "s", "e", "u", "q", "i", "n", "f", "t", "no", "nil", "big", "l", "ls", "le", "mix", "d", "de", "deep",
    "people", "floats", "missing", "(1,)", "(1, 'a')", "()", "{'a': {'b': None}}", "[missing]", "[[], {}, '', ()]",
    "{1: 'x', true: 'y', none: 0, 1.5: 2}", "'\\n'", "['\\n\\t\\r\\\\', \"'\", '\"', '\\'\"', '\\x00\\x7f\\u00a0\\u200b\\ue000']",
    "1e5", "1.0", "1_000", "0x1F", "0b101", "0o17", "1.5e-7", "12345678901234567890.0", "[u]", "{'\u00e9': '\U0001f600'}",
    "'a' 'b' \"c\"", "'\\u00e9\\x41\\101\\q'", "true", "True", "none", "None", "false", "False", "s, i", "1,",
]

FILTERS = [
    "upper", "lower", "title", "capitalize", "trim", "length", "string", "list", "first", "last", "reverse | list",
    "tojson", "tojson(indent=2)", "tojson(indent=4)", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)",
    "tojson(separators=(',', ':'))", "tojson(indent=0)", "int", "float", "abs", "default('D')", "default('D', true)", "d",
    "join", "join(', ')", "join('-', attribute='name')", "sort", "sort(reverse=true)", "sort(case_sensitive=true)",
    "unique | list", "items | list", "dictsort", "dictsort(reverse=true)", "dictsort(false, 'value')", "dictsort(true)",
    "replace('l', 'L')", "replace('', '-')", "replace('o', '0', 1)", "indent", "indent(2)", "indent(2, true)",
    "indent('> ', blank=true)", "indent(width=3, first=true, blank=true)", "map('upper') | list", "map('string') | join('|')",
    "map(attribute='name') | list", "map(attribute='age', default=0) | list", "map(attribute='tags.0') | list",
    "select | list", "reject | list", "select('string') | list", "reject('none') | list", "select('odd') | list",
    "select('in', [1, 'x']) | list", "selectattr('age') | list", "selectattr('age', 'equalto', 30) | list",
    "selectattr('tags', 'defined') | map(attribute='name') | list", "rejectattr('age', 'eq', 30) | list",
    "selectattr('age', 'gt', 26) | list | length", "sort(attribute='age') | map(attribute='name') | join(',')",
    "sort(attribute='age,name') | map(attribute='name') | join(',')", "sort(attribute='name', reverse=true) | map(attribute='name') | list",
    "count", "safe", "trim('Hd')", "trim(chars=' ')", "int(5)", "int(default=9)", "float(1.5)", "reject('equalto', 'A') | list",
    "string | length", "upper | lower | title", "unique(case_sensitive=true) | list", "nosuchfilter", "map('nosuch') | list",
]

TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "boolean", "true", "false",
         "number", "integer", "float", "odd", "even", "lower", "upper", "callable", "in [1, 7]", "in 'xHello World'",
         "divisibleby 7", "divisibleby(2)", "equalto 7", "eq(s)", "ne 7", "gt 2", "lt 2", "ge 7", "le 7", "not none",
         "not string", "not in l", "sameas true", "sameas none", "nosuchtest"]

SUBJECTS = ["s", "e", "sp", "u", "q", "m", "im", "i", "n", "z", "f", "t", "no", "nil", "l", "ls", "le", "mix", "d", "de",
            "people", "floats", "missing", "'42'", "' 42.9 '", "'-1e3'", "'1_0'", "'x'", "(3, 1)", "range(4)", "d.items()"]

STATEMENTS = [
    # white space control
    "a\n{% if true %}\nb\n{% endif %}\nc\n", "a\n  {% if true %}  \n  b\n  {% endif %}\n  c\n\n", "  {{ s }}  \n  {{ i }}\n",
    "a {%- if true -%} b {%- endif -%} c", "a\n\n  {%- if true %}\n\n b {% endif -%}\n\n c", "x {{- s -}} y", "x\n {{- s -}} \n y",
    "  {#  c  #}\n  a {# b #} c\n{#- d -#}\n e", "{# one #}{# two #}\nx", "a\n  {%+ if true %}b{% endif +%}\nc", "{%+ set x = 1 +%}\n z",
    "\n\n{{ s }}\n\n", "{{ s }}\n", "\r\nwin\r\n{% if true %}\r\nx\r\n{% endif %}\r\nend\r\n", "a\t{% set x = 1 %}\tb", "\t{% set x = 1 %}\tb",
    "{% raw %}{{ not }} {% if %}{% endraw %}", "a\n {% raw -%}\n {{ x }} {%- endraw %}\n b", "  {% raw %}\n x\n  {% endraw %}\n y",
    "{{ '}}' }}{{ '%}' }}{{ \"{{\" }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{ {% set x=1 %} } {{'{'}} {", "{% set x = '{%' %}{{ x }}",
    "\u00a0{% if true %}x{% endif %}\u00a0\n", "\u3000\n\u3000{%- if true %}x{% endif %}", "{{ s }}{# unfinished", "{{ s", "{% if true %}", "{% endif %}", "{{ }}",
    "{% for x in l %}{% endif %}", "{{ 'a }}", "{{ a b }}", "{% set %}", "{{ [1, }}", "{{ (1 }}", "{{ 1 ] }}", "{% nosuch %}", "{{ @ }}", "",
    # if
    "{% if z %}a{% elif e %}b{% elif l %}c{% else %}d{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% if not nil and l or d %}y{% endif %}",
    "{% if l | select('string') %}generators are true{% endif %}", "{% if d.items() %}y{% endif %}{% if de.items() %}n{% endif %}",
    # for
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d | items %}{{ k }}{{ v }}{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}", "{% for x in missing %}a{% else %}none{% endfor %}", "{% for x in nil %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %}", "{% for x in l if x > 9 %}a{% else %}empty{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }};{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in l %}{% for y in ls %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %}{{ range(1, 10, 3) | list }}{{ range(5, 0, -2) | list }}",
    "{% set x = 1 %}{% for y in l %}{{ x }}{% set x = x + 1 %}{{ x }} {% endfor %}{{ x }}", "{% for y in l %}{% if loop.first %}{% set q2 = 'set' %}{% endif %}{{ q2 }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}", "{% break %}",
    "{% set ns = namespace(n=0) %}{% for x in l if ns.n < 1 %}{{ x }}{% set ns.n = ns.n + 1 %}{% endfor %}", "{% set ns = namespace(n=0) %}{% for x in l if ns.n < 1 %}{{ x }}{{ loop.last }}{% set ns.n = ns.n + 1 %}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('odd', 'even') }} {% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}", "{% for x in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{{ loop }}", "{% for x in l %}{% endfor %}{{ x }}", "{% set g = l | map('string') %}{{ g | list }}{{ g | list }}", "{% for i in l %}{{ i }}{% endfor %}{{ i }}",
    "{% for x in people | selectattr('age', 'equalto', 30) %}{{ x.name }}{{ loop.length }}{% endfor %}",
    "{% for x in l %}{% set ns2 = namespace(v=x) %}{{ ns2.v }}{% endfor %}{{ ns2 is defined }}",
    # set
    "{% set x = 5 %}{{ x }}", "{% set a, b = 1, 'z' %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set x = 1, 2 %}{{ x }}", "{% set x %}  block {{ s }}\n{% endset %}[{{ x }}]",
    "{% set x | upper | trim %} b {{ s }} {% endset %}[{{ x }}]", "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}", "{% if true %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% set ns = namespace(a=1, b='x') %}{% set ns.a = ns.a + 1 %}{% set ns.c = [ns.a] %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.missing is defined }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}", "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set s.x = 1 %}", "{% set s = s + '!' %}{{ s }}",
    "{% set x = 'a' if no %}[{{ x }}]{{ x is defined }}", "{% set ns = namespace() %}{% set ns.x %}blk{% endset %}{{ ns.x }}", "{% set true = 1 %}",
    "{% set ns = namespace(n=0) %}{% macro bump() %}{% set ns.n = ns.n + 1 %}{% endmacro %}{{ bump() }}{{ bump() }}{{ ns.n }}",
    # macros
    "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c=9) }}{{ f(b=1, a=0) }}{{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(x=1) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}", "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(4) }}",
    "{% macro fact(n) %}{% if n < 2 %}1{% else %}{{ n * (fact(n - 1) | int) }}{% endif %}{% endmacro %}{{ fact(10) }}",
    "{% macro even(n) %}{{ 'yes' if n == 0 else odd(n - 1) }}{% endmacro %}{% macro odd(n) %}{{ 'no' if n == 0 else even(n - 1) }}{% endmacro %}{{ even(7) }}{{ even(4) }}",
    "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", "{% macro f() %}{{ y is defined }}{% endmacro %}{% for y in l %}{{ f() }}{% endfor %}",
    "{% macro f() %}{% set inner = 1 %}{% endmacro %}{{ f() }}{{ inner is defined }}", "{% macro f() %} {{ s }} {% endmacro %}[{{ f() | trim }}]{{ f() | length }}{{ f() is string }}",
    "{% macro f(a) -%}\n  {{ a }}\n{%- endmacro %}[{{ f(1) }}]", "{{ f(1) }}{% macro f(a) %}{% endmacro %}", "{% for x in l %}{% macro g() %}{{ x }}{% endmacro %}{{ g() }}{% endfor %}",
    "{% macro f(x) %}{{ loop is defined }}{% endmacro %}{% for x in l %}{{ f(x) }}{% endfor %}", "{% macro f(a, b=1, c) %}{% endmacro %}", "{% macro f(l) %}{{ l }}{{ d.b }}{% endmacro %}{{ f(0) }}",
    # functions
    "{{ raise_exception('boom ' ~ i) }}", "{{ raise_exception(5) }}", "{{ raise_exception() }}", "{% if no %}{{ raise_exception('not reached') }}{% endif %}ok", "{{ strftime_now('%d %b %Y') }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %a %B %j %I %p %y %% %e') }}", "{{ dict(a=1, b='x') }}", "{{ dict({'a': 1}, b=2) }}", "{{ range(0) | list }}", "{{ range(3)[1] }}{{ range(5)[1:3] | list }}", "{{ range(200000) }}",
    "{{ nosuch() }}", "{{ s() }}", "{{ s.nosuch() }}", "{{ namespace(1) }}", "{{ range() }}", "{{ range(1, 2, 0) }}", "{{ range('a') }}",
    # attributes and items
    "{{ d.a }}{{ d['a'] }}{{ d.C[1] }}{{ d.C.0 }}{{ d.nope }}", "{{ deep.x.y[0].z }}", "{{ d.nope.nope }}", "{{ missing.x }}", "{{ missing['x'] }}", "{{ nil.x }}[{{ nil['x'] }}]", "{{ i.x }}",
    "{{ l[0] }}{{ l[-1] }}[{{ l[9] }}][{{ l['a'] }}]", "{{ s[0] }}{{ s[-1] }}[{{ s[99] }}]{{ u[0] }}{{ u[-1] }}", "{{ l[true] }}", "{{ l[1.0] }}", "{{ d[nil] }}", "{{ d[l] }}",
    "{{ shadow.items is callable }}{{ shadow['items'] }}{{ shadow.other }}{{ shadow.get('keys') }}", "{{ s.upper() }}{{ s['upper']() }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ (s | upper)[0] }}",
    "{{ l[0:2] }}{{ l[:1] }}{{ l[1:] }}{{ l[::-1] }}{{ l[-2:] }}{{ l[::2] }}{{ l[5:] }}{{ l[-9:9] }}", "{{ s[1:4] }}{{ s[::-1] }}{{ s[-3:] }}{{ s[:-1] }}{{ u[1:-1] }}{{ u[::2] }}", "{{ d[0:1] }}", "{{ l[::0] }}", "{{ l['a':] }}", "{{ missing[1:] }}", "{{ nil[1:] }}",
    "{{ (1, 2, 3)[1:] }}", "{{ l[none:none] }}", "{{ l[:-9:-1] }}{{ l[2:0:-1] }}{{ l[0:2:-1] }}", "{{ e[::-1] }}{{ le[::-1] }}{{ e[0:] }}",
    # methods
    "{{ s.split() }}{{ s.split('o') }}{{ s.split('o', 1) }}{{ sp.split() }}{{ e.split() }}{{ e.split(',') }}", "{{ ' a  b '.split(' ') }}{{ 'a b c'.split(none, 1) }}{{ 'a b c'.rsplit(' ', 1) }}{{ ' a  b c '.rsplit(none, 1) }}{{ 'abc'.split('') }}",
    "{{ sp.strip() }}|{{ sp.lstrip() }}|{{ sp.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xyaxy'.lstrip('xy') }}|{{ '\u4f60a\u4f60'.strip('\u4f60') }}|{{ 'a'.strip('') }}|{{ ' a '.strip(none) }}", "{{ m.splitlines() }}{{ m.splitlines(true) }}{{ 'a\\r\\nb\\x0bc\\u2028d'.splitlines() }}",
    "{{ s.startswith('He') }}{{ s.endswith('ld') }}{{ s.startswith(('x', 'H')) }}{{ s.startswith('') }}{{ s.endswith(()) }}", "{{ s.startswith(1) }}", "{{ s.replace('l', 'LL') }}{{ s.replace('l', '', 1) }}{{ 'aaa'.replace('aa', 'b') }}{{ 'ab'.replace('', '-') }}{{ 'ab'.replace('', '-', 2) }}",
    "{{ u.upper() }}{{ u.lower() }}{{ 'hELLO wORLD it\\'s'.title() }}{{ 'hELLO'.capitalize() }}{{ '\u00e9t\u00e9 \u0394\u03ac \u0416\u0436 \u0101'.upper() }}", "{{ 'hello-world (foo) it\\'s <b>' | title }}", "{{ s.find('o') }}{{ s.rfind('o') }}{{ s.find('q') }}{{ u.find('\u4f60') }}{{ s.count('l') }}{{ s.count('') }}",
    "{{ ', '.join(ls) }}{{ ''.join(s) }}", "{{ ','.join(l) }}", "{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ 'a'.isalpha() }}{{ ''.isdigit() }}{{ ' \\t'.isspace() }}", "{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'abc'.removeprefix('b') }}",
    "{{ d.get('a') }}{{ d.get('nope') }}{{ d.get('nope', 5) }}", "{{ d.keys() | list }}{{ d.values() | list }}{{ d.items() | list }}{{ d.items() | length }}", "{{ d.get(l) }}", "{{ d.items()[0] }}", "{{ l.index(1) }}{{ l.count(2) }}", "{{ l.index(9) }}",
    # operators
    "{{ 1 + 2 * 3 - 4 }}{{ (1 + 2) * 3 }}{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % 3 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ 7 / 2 }}{{ 6 / 2 }}{{ 2 ** 10 }}{{ 2 ** -1 }}{{ -2 ** 2 }}{{ 2 ** 3 ** 2 }}", "{{ 7.5 // 2 }}{{ -7.5 // 2 }}{{ 7.5 % 2 }}{{ -7.5 % 2 }}{{ 1 + 1.0 }}{{ true + 1 }}{{ - true }}{{ + 3 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 1 // 0 }}", "{{ 1.0 / 0 }}",
    "{{ 'a' + 'b' }}{{ [1] + [2] }}{{ (1,) + (2,) }}{{ 'ab' * 3 }}{{ 2 * [0] }}{{ 'a' * -1 }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [1] + (2,) }}", "{{ nil + 1 }}", "{{ missing + 'a' }}", "{{ 'a' + missing }}", "{{ s - 'a' }}", "{{ - s }}", "{{ d + d }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1] ~ missing ~ 'z' }}", "{{ 1 ~ 2 + 3 }}", "{{ s ~ i * 2 }}", "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 }}{{ 1 == true }}{{ 'a' == 'a' }}{{ 'a' != 'b' }}{{ [1, 2] == [1, 2] }}{{ (1,) == [1] }}{{ d == {'a': 'x', 'C': [1, 2], 'b': 1} }}{{ nil == none }}{{ missing == missing2 }}{{ missing == none }}",
    "{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ [1] < [1, 0] }}{{ (1, 'a') <= (1, 'a') }}{{ 2 >= 2.0 }}{{ 'Z' < 'a' }}{{ '\u00e9' > 'z' }}", "{{ 1 < 'a' }}", "{{ nil < 1 }}", "{{ d < d }}", "{{ missing < 1 }}", "{{ [1] < ['a'] }}",
    "{{ 1 in l }}{{ 9 not in l }}{{ 'a' in d }}{{ 'ell' in s }}{{ '' in s }}{{ 'x' in missing }}{{ 1.0 in l }}{{ true in [1] }}{{ 'k' in mix[6] }}{{ 2 in range(3) }}{{ 1 in (1, 2) }}{{ 'b' in d.keys() }}", "{{ 1 in s }}", "{{ 1 in nil }}", "{{ 1 in 5 }}", "{{ l in d }}", "{{ missing in s }}", "{{ nil in l }}",
    "{{ nil or 'x' }}{{ 'a' and 'b' }}{{ e or z or le }}{{ z and missing.x }}{{ not e }}{{ not not l }}{{ true and false or true }}{{ 1 or missing.x }}", "{{ 'y' if l else 'n' }}{{ 'y' if le }}{{ 1 if 0 else 2 if 0 else 3 }}{{ ('a' if t else 'b') ~ 'c' }}",
    "{{ i + 1 is odd }}", "{{ not i is odd }}", "{{ i is odd and t }}", "{{ -i | abs }}", "{{ (-i) | abs }}", "{{ -5 | abs }}", "{{ 1 + 2 | string }}", "{{ (1 + 2) | string + 'x' }}", "{{ 'a' ~ 'b' | upper }}", "{{ s | upper ~ 'x' }}", "{{ l | length > 2 }}", "{{ l | length - 1 }}", "{{ 'a' in 'abc' | upper }}",
    "{{ x is defined and x }}{{ s is defined and s }}", "{{ d.a is string }}{{ d['nope'] is defined }}", "{{ s is string is true }}", "{{ i is divisibleby 7 and t }}", "{{ 9223372036854775807 }}{{ -9223372036854775807 }}{{ 4611686018427387904 * 1 }}",
    "{{ [1, 2,] }}{{ {'a': 1,} }}{{ (1, 2,) }}", "{{ f'x' }}", "{{ 1 if }}", "{{ l[1:2, 3] }}", "{{ s.upper }}{{ nope }}" if False else "{{ nope }}", "{{ {'a': 1}.a }}{{ 'abc'.upper() }}{{ [3, 4][1] }}{{ 5 .x }}", "{{ l|length }}{{ l |length}}{{l| length }}",
    "{{ {'b': 1, 'b': 2} }}", "{{ {l: 1} }}", "{{ {(1, 2): 3}[(1, 2)] }}", "{{ '%s' }}", "{{ '\\\\' }}{{ \"\\\"\" }}{{ 'multi\nline' }}", "{{ 'a' 'b'.upper() }}", "{{ nil | default('x') }}{{ missing | default('x') }}{{ e | default('x', true) }}{{ missing.a | default('x') }}", "{{ d.nope.a | default('x') }}",
    "{{ mix | tojson }}{{ missing | tojson }}", "{{ {1: 'a', true: 2, none: 3, 1.5: 4} | tojson }}", "{{ {(1, 2): 3} | tojson }}", "{{ d.items() | tojson }}", "{{ range(3) | tojson }}", "{{ q | tojson }}{{ '\\x1f\\x7f\\u2028</script>&' | tojson }}{{ [u] | tojson(ensure_ascii=true) }}", "{{ 1.0 | tojson }}{{ floats | tojson }}",
    "{{ [[], {}, [[]], {'a': {}}] | tojson(indent=2) }}", "{{ mix | tojson(indent=1) }}", "{{ d | tojson(indent=none) }}", "{{ d | tojson(nope=1) }}", "{{ people | tojson }}", "{{ (1, [2]) | tojson }}", "{{ 'a\\r\\nb\\x0bc' | indent(1) }}", "{{ '\\r' | indent }}|{{ 'a\\r' | indent(1, true) }}|{{ '' | indent(2, true) }}|{{ 'a\\n' | indent(2, true, true) }}", "{{ 5 | indent }}",
    "{{ missing | upper }}{{ missing | trim }}{{ missing | length }}{{ missing | list }}{{ missing | join }}{{ missing | string }}{{ missing | items | list }}{{ missing | first is defined }}{{ missing | map('upper') | list }}{{ missing | select | list }}{{ missing | int }}{{ missing | float }}{{ missing | sort }}{{ missing | unique | list }}", "{{ missing | last }}", "{{ missing | abs }}", "{{ missing | dictsort }}",
    "{{ nil | upper }}{{ nil | trim }}{{ nil | string }}{{ 5 | upper }}{{ true | lower }}{{ [1] | upper }}", "{{ nil | length }}", "{{ nil | list }}", "{{ nil | join }}", "{{ nil | items }}", "{{ s | items }}", "{{ s | dictsort }}", "{{ mix | sort }}", "{{ s | list }}{{ d | list }}{{ s | sort }}{{ s | join('-') }}{{ d | join('-') }}{{ s | first }}{{ s | last }}{{ e | first is defined }}{{ d | first }}{{ d | last }}",
    "{{ s | reverse }}{{ u | reverse }}{{ l | reverse | list }}{{ (1, 2) | reverse | list }}{{ d | reverse | list }}", "{{ l | map('string') | length }}", "{{ (l | map('string'))[0] }}", "{{ l | map('string') | first }}{{ l | map('string') | last }}", "{{ l | select('odd') | join(',') }}", "{{ s | select('in', 'lo') | join }}", "{{ s | unique | join }}",
    "{{ people | map(attribute='nope') | list }}", "{{ people | map(attribute='nope.x') | list }}", "{{ people | selectattr('nope') | list }}", "{{ people | selectattr }}", "{{ people | selectattr('nope.x') | list }}", "{{ l | map }}", "{{ l | map() | list }}", "{{ s | replace('x') }}", "{{ s | replace(1, 2) }}{{ 5 | replace(5, 'five') }}", "{{ s | upper(1) }}", "{{ s | trim(1) }}", "{{ 'a' | int(5) }}{{ '0x1f' | int(0, 16) }}{{ '1f' | int(base=16) }}{{ '9' | int(7, 8) }}{{ 3.9 | int }}{{ -3.9 | int }}{{ '3.9' | int }}{{ true | int }}{{ nil | int }}{{ 'nan' | int(4) }}{{ [] | int(6) }}",
    "{{ 'inf' | float }}{{ '1e3' | float }}{{ ' 2 ' | float }}{{ 'x' | float(3.5) }}{{ nil | float }}{{ true | float }}", "{{ -3 | abs }}{{ 2.5 | abs }}{{ true | abs }}", "{{ s | abs }}",
    "{{ ns }}{{ [missing] | first is defined }}", "{{ missing is none }}{{ none is defined }}{{ missing is string }}{{ missing is iterable }}{{ missing is sequence }}{{ missing is mapping }}{{ missing is callable }}", "{{ namespace(a=1) is mapping }}{{ namespace() is iterable }}", "{{ l | map('string') is iterable }}{{ l | map('string') is sequence }}{{ d.items() is sequence }}{{ d.items() is iterable }}{{ range(2) is sequence }}",
    "{{ [1, [2, [3]]] | string }}{{ {'a': none} | string | length }}", "{{ im | upper }}{{ im.split('<') }}{{ [im] }}{{ {im: im} | tojson }}", "{{ (l | sort)[0] }}{{ ls | sort | join }}{{ ls | sort(case_sensitive=true) | join }}{{ ls | sort(true) | join }}{{ ['B', 'b', 'A', 'a'] | sort | join }}{{ ['B', 'b', 'A', 'a'] | sort(reverse=true) | join }}{{ ['b', 'B', 'a'] | unique | join }}",
    "{{ '\u00e9'.encode() }}", "{{ ''.__class__ }}", "{{ s.__len__() }}", "{{ l.__class__.__mro__ }}", "{{ [].sort() }}", "{% set x = [] %}{% set y = x.append(1) %}", "{{ self }}" if False else "{{ nothing_here | default }}", "{% generation %}{{ s }}{% set gx = 1 %}{% endgeneration %}{{ gx is defined }}",
    "{% if s is string and s.startswith('H') and not s.endswith('x') %}ok{% endif %}", "{{ '<|im_start|>' + s + '<|im_end|>' }}", "{%- for p in people %}\n{{- p.name }}:\n    {%- for k, v in p | dictsort %} {{ k }}={{ v }}{% endfor %}\n{% endfor %}", "{{ people[0]['name'] | lower ~ people[-1].name[0] }}",
]


def random_expressions(count):
    rng = random.Random(20240726)
    atoms = ["1", "2", "-3", "0", "2.5", "i", "n", "f", "s", "e", "u", "l", "ls", "le", "d", "t", "no", "nil", "'a'", "'lo'", "d.a", "l[0]", "s[1:3]", "u[::-1]", "missing",
             "l[1:]", "(1, 2)", "[]", "{}", "s | length", "l | first", "s.split('o')"]
    binary = ["+", "-", "*", "//", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]

    def grow(depth):
        if depth == 0 or rng.random() < 0.2:
            return rng.choice(atoms)
        kind = rng.random()
        if kind < 0.6:
            return f"{grow(depth - 1)} {rng.choice(binary)} {grow(depth - 1)}"
        if kind < 0.7:
            return f"({grow(depth - 1)})"
        if kind < 0.78:
            return f"not {grow(depth - 1)}"
        if kind < 0.86:
            return f"{grow(depth - 1)} if {grow(depth - 1)} else {grow(depth - 1)}"
        if kind < 0.93:
            return f"({grow(depth - 1)}) | {rng.choice(['string', 'length', 'tojson', 'upper', 'list', 'int', 'default(1)'])}"
        return f"({grow(depth - 1)}) is {rng.choice(['string', 'defined', 'number', 'iterable', 'none', 'true'])}"

    return ["{{ " + grow(3) + " }}" for _ in range(count)]


def expressions():
    out = ["{{ " + p + " }}" for p in PRINTED]
    out += ["{{ " + f"{s} | {f}" + " }}" for s in SUBJECTS for f in FILTERS
            if not (s in ("range(4)", "d.items()") and f in ("string | length", "replace('', '-')"))]
    out += ["{{ " + f"{s} is {t}" + " }}" for s in SUBJECTS for t in TESTS
            if not (s in ("range(4)", "d.items()") and t in ("lower", "upper"))]
    out += STATEMENTS
    out += random_expressions(600)
    return list(dict.fromkeys(out))
