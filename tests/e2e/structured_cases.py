"""Schemas, tools and prompts of structured_test.py."""


def closed(**properties):
    """An object of exactly these members, all required."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def text(most, **more):
    return {"type": "string", "maxLength": most, **more}


NODE = {"$defs": {"node": {"type": "object", "properties": {
    "value": {"type": "integer", "minimum": 0, "maximum": 99},
    "children": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/node"}}},
    "required": ["value"], "additionalProperties": False}}, "$ref": "#/$defs/node"}

LINKED = {"type": "object", "properties": {"word": text(8, minLength=1), "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
          "required": ["word", "next"], "additionalProperties": False}

# name, what is asked, schema
SCHEMAS = [
    ("town", "Give JSON about Oslo.", closed(city=text(12, minLength=2), size={"enum": ["big", "small", "medium"]})),
    ("nested", "Describe a company as JSON.", closed(
        name=text(20), address=closed(street=text(20), number={"type": "integer", "minimum": 1, "maximum": 9999},
                                      country=closed(code={"type": "string", "pattern": "^[A-Z]{2}$"})))),
    ("enums", "Rate the product.", closed(score={"enum": [1, 2, 3, 4, 5]}, verdict={"enum": ["yes", "no", None, True]},
                                         color={"enum": ["red", "dark blue", "gr\u00fcn", "\u9752"]})),
    ("patterns", "Write a part number, a phone number and a time.", closed(
        part={"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}(-[a-z]+)?$", "maxLength": 16},
        phone={"type": "string", "pattern": "^\\+?[0-9]{3,4}( [0-9]{2,4}){1,3}$"},
        clock={"type": "string", "pattern": "^([01]\\d|2[0-3]):[0-5]\\d$"})),
    ("ranges", "Measure the room.", closed(
        celsius={"type": "number", "minimum": -40, "maximum": 60}, share={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        seats={"type": "integer", "minimum": 17, "maximum": 1234}, step={"type": "integer", "minimum": -100, "maximum": 100, "multipleOf": 5})),
    ("dates", "When does the meeting begin?", closed(day={"type": "string", "format": "date"}, at={"type": "string", "format": "date-time"},
                                                    hour={"type": "string", "format": "time"})),
    ("addresses", "Describe the server.", closed(id={"type": "string", "format": "uuid"}, mail={"type": "string", "format": "email"},
                                                ip={"type": "string", "format": "ipv4"}, host={"type": "string", "format": "hostname"})),
    ("tree", "Write a small tree of numbers as JSON.", NODE),
    ("linked list", "Write the words of a sentence as a linked list.", LINKED),
    ("any of", "Pay the bill by card or by cash.", closed(payment={"anyOf": [
        closed(kind={"const": "card"}, number={"type": "string", "pattern": "^\\d{8}$"}),
        closed(kind={"const": "cash"}, amount={"type": "number", "minimum": 0, "maximum": 1000}),
        {"type": "null"}]})),
    ("one of", "Draw a shape.", {"oneOf": [
        closed(shape={"const": "circle"}, radius={"type": "integer", "minimum": 1, "maximum": 50}),
        closed(shape={"const": "box"}, width={"type": "integer", "minimum": 1, "maximum": 50}, height={"type": "integer"})]}),
    ("all of", "Name an animal.", {"allOf": [
        {"type": "object", "properties": {"animal": text(12)}, "required": ["animal"]},
        {"type": "object", "properties": {"legs": {"type": "integer", "minimum": 0, "maximum": 8}}, "required": ["legs"]}]}),
    ("array", "List three to five fruits.", {"type": "array", "minItems": 3, "maxItems": 5, "items": text(12, minLength=1)}),
    ("matrix", "Write a matrix.", closed(rows={"type": "array", "minItems": 2, "maxItems": 3, "items": {
        "type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "integer", "minimum": -9, "maximum": 9}}})),
    ("tuple", "Where is the ship?", {"type": "array", "prefixItems": [
        {"type": "number", "minimum": -90, "maximum": 90}, {"type": "number", "minimum": -180, "maximum": 180}, {"enum": ["sea", "port"]}],
        "items": False, "minItems": 3}),
    ("optional", "Describe yourself.", {"type": "object", "properties": {
        "name": text(16), "age": {"type": "integer", "minimum": 0, "maximum": 150}, "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "maxItems": 3, "items": text(8)}}, "required": ["name"], "additionalProperties": False}),
    ("type lists", "Fill in the form.", closed(comment={"type": ["string", "null"], "maxLength": 30}, agreed={"type": "boolean"},
                                              weight={"type": ["number", "null"]}, nothing={"type": "null"})),
    ("lengths", "Write a haiku as JSON.", closed(title=text(10, minLength=10), lines={
        "type": "array", "minItems": 3, "maxItems": 3, "items": text(40, minLength=5)})),
    ("free keys", "Count the letters of a word.", {"type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": {
        "pattern": "^[a-z]$"}}),
    ("open text", "Explain why the sky is blue.", closed(version={"const": 2}, explanation={"type": "string"},
                                                        sources={"type": "array", "items": {"type": "string"}})),
]

OBJECT_PROMPTS = ["Give me JSON about a dog.", "Count the letters of 'banana' as a JSON object.",
                  "Write a JSON object with the settings of a web server.", "Hello!"]

CALL_PROMPTS = ["Hello there!", "What is the weather in Oslo?", "Find a room for 8 people on Friday.",
                "Open a ticket for the printer with priority 3.", "Write a poem about tools."]


def tool(name, description, parameters):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    tool("get_weather", "Weather of a city", {"type": "object", "properties": {
        "city": text(30, minLength=1), "unit": {"enum": ["celsius", "fahrenheit"]}}, "required": ["city"]}),
    tool("create_ticket", "Open a ticket", {"type": "object", "properties": {
        "item": text(30), "priority": {"type": "integer", "minimum": 1, "maximum": 5}, "urgent": {"type": "boolean"}},
        "required": ["item", "priority"], "additionalProperties": False}),
    tool("find_room", "Find a free room", {"type": "object", "properties": {
        "day": {"enum": ["Monday", "Friday"]}, "seats": {"type": "integer", "minimum": 1, "maximum": 500},
        "equipment": {"type": "array", "maxItems": 2, "items": {"enum": ["screen", "phone", "board"]}},
        "contact": {"type": "object", "properties": {"name": text(20), "floor": {"type": ["integer", "null"], "minimum": 0, "maximum": 40}},
                    "required": ["floor"]}},
        "required": ["day", "seats"]}),
]
