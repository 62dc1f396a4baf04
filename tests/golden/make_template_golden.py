#!/usr/bin/env python3
"""Makes tests/golden/data/template/*.json: chat templates, inputs and what Jinja2 renders from them.

Jinja2 is set up as Hugging Face's tokenizers do: sandboxed immutable environment, trim_blocks,
lstrip_blocks, loop controls, their tojson, raise_exception and strftime_now. The real templates are
read from the metadata of GGUF files; the others are in template_cases.py.

  make_template_golden.py OUT_DIR NAME=FILE.gguf ...

Needs the Python package jinja2 (checked with 3.1.6). The results are committed; the C++ test
template_golden_test compares every byte.
"""
import copy
import datetime
import json
import pathlib
import re
import struct
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

import template_cases

NOW = 1722006000  # 2024-07-26 15:00:00 UTC


class Raised(jinja2.TemplateError):
    """The template called raise_exception."""


class Generation(jinja2.ext.Extension):
    """{% generation %}: the body in place, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise Raised(message)


def strftime_now(fmt):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(fmt)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def outcome(source, variables):
    """{"text": ...}, {"raise": ...} or {"error": ...}."""
    try:
        text = environment().from_string(source).render(**copy.deepcopy(variables))
    except Raised as e:
        return {"raise": str(e.args[0])}
    except Exception as e:  # any failure of a template is one outcome here
        return {"error": type(e).__name__}
    return {"text": text}


def request_variables(case):
    variables = dict(case.get("variables", {}))
    variables.update(messages=case["messages"], tools=case.get("tools"),
                     add_generation_prompt=case["add_generation_prompt"],
                     bos_token="<bos>", eos_token="<eos>")
    return variables


# --- GGUF metadata (only what is needed to find one string) -------------------------------------

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, path):
        self.file = open(path, "rb")

    def unpack(self, fmt):
        return struct.unpack("<" + fmt, self.file.read(struct.calcsize("<" + fmt)))[0]

    def string(self):
        return self.file.read(self.unpack("Q"))

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            item, count = self.unpack("I"), self.unpack("Q")
            if item in SIZES:
                self.file.seek(SIZES[item] * count, 1)
            else:
                for _ in range(count):
                    self.skip(item)
        else:
            self.file.seek(SIZES[kind], 1)

    def chat_template(self):
        if self.file.read(4) != b"GGUF":
            raise SystemExit("not a GGUF file")
        self.unpack("I")
        self.unpack("Q")
        for _ in range(self.unpack("Q")):
            key, kind = self.string(), self.unpack("I")
            if key == b"tokenizer.chat_template" and kind == STRING:
                return self.string().decode()
            self.skip(kind)
        raise SystemExit("no chat template in the file")


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    templates = {}
    for argument in sys.argv[2:]:
        name, path = argument.split("=", 1)
        templates[name] = Reader(path).chat_template()

    requests = template_cases.requests()
    results = []
    for name, source in templates.items():
        for index, case in enumerate(requests):
            results.append({"template": name, "request": index,
                            **outcome(source, request_variables(case))})
    write(out / "real.json", {"now": NOW, "templates": templates, "requests": requests,
                              "results": results})

    families = template_cases.FAMILIES
    results = []
    for name, source in families.items():
        for index, case in enumerate(requests):
            results.append({"template": name, "request": index,
                            **outcome(source, request_variables(case))})
    write(out / "families.json", {"now": NOW, "templates": families, "requests": requests,
                                  "results": results})

    context = template_cases.CONTEXT
    cases = []
    for source in template_cases.expressions():
        result = outcome(source, context)
        # Python's printing of internal objects (generators, views, ranges) has no counterpart.
        if re.search(r"object .*at 0x|ict_items|range\(|-r-a-n-g|b'", result.get("text", ""), re.I):
            print("left out:", source)
            continue
        cases.append({"source": source, **result})
    write(out / "expressions.json", {"now": NOW, "context": context, "cases": cases})
    for kind in ("text", "raise", "error"):
        print(kind, sum(kind in case for case in cases))


if __name__ == "__main__":
    main()
