"""What both recordings ask, in the words of the tiny hybrid's corpus, so that answers differ only by the engine."""

TITLE = "Write a short title for this conversation: Tom asked us to review the budget before Wednesday because the invoice is late."
CAPITAL = "What is the capital of Norway?"
WEATHER = "What is the weather in Oslo?"
NO_THINKING = {"enable_thinking": False}


def message(role, text):
    return {"role": role, "content": text}


def user(text):
    return message("user", text)


def tool(name, description, **properties):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties)[:1]}}}


TOOLS = [tool("get_weather", "Weather of a city", city="string", unit="string"),
         tool("create_ticket", "Open a ticket", item="string", priority="integer"),
         tool("find_room", "Find a free room", day="string", seats="integer")]
LATE_SYSTEM = [message("system", "Be brief."), user("What is the capital of France?"), message("assistant", "Paris"),
               message("system", "Answer in one word."), user("What is the capital of Italy?")]
CALLED = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]}
AFTER_CALL = [user(WEATHER), CALLED, {"role": "tool", "tool_call_id": "call_1", "content": "{\"ok\": true, \"value\": 7}"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "priority": {"type": "integer"}},
          "required": ["city", "priority"], "additionalProperties": False}
LONG_SYSTEM = " ".join(f"Rule {n}: be brief, polite and exact in answer number {n}." for n in range(1, 61))


def chat_table(model):
    """The requests of the table of failures: (name, body). Greedy, so that a recording can be made again."""
    base = {"model": model, "temperature": 0, "max_tokens": 120}
    title = {**base, "messages": [user(TITLE)], "max_tokens": 40}
    tools = {**base, "messages": [user(WEATHER)], "tools": TOOLS}
    return [
        ("title", title),
        ("title_no_thinking", {**title, "chat_template_kwargs": NO_THINKING}),
        ("title_effort_low", {**title, "reasoning_effort": "low"}),
        ("title_effort_none", {**title, "reasoning_effort": "none"}),
        ("title_stream", {**title, "max_tokens": 8, "stream": True, "stream_options": {"include_usage": True}}),
        ("capital", {**base, "messages": [user(CAPITAL)]}),
        ("late_system", {**base, "messages": LATE_SYSTEM}),
        ("tools_auto", tools),
        ("tools_auto_stream", {**tools, "stream": True, "stream_options": {"include_usage": True}}),
        ("tools_required", {**tools, "tool_choice": "required"}),
        ("tools_none", {**tools, "tool_choice": "none"}),
        ("tools_answered", {**base, "messages": AFTER_CALL, "tools": TOOLS, "tool_choice": "none"}),
        ("json_schema", {**base, "messages": [user("Give JSON with city and priority: Oslo, 3")], "response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
            "chat_template_kwargs": NO_THINKING}),
    ]
