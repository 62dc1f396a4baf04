#!/usr/bin/env python3
"""House rules that no compiler checks: dependency edges, fences, sizes, banned words, dead files.

  tests/tidy/tidy.py [ROOT]        prints one line a finding, `file:line: rule: text`; exit 1 when there is one

Rules are data at the top of this file. Sources are the tracked and the not yet added files git knows of.
tests/tidy/ratchet.txt may list offenders (`rule file`); an entry that no longer offends is itself a finding.
"""
import dataclasses
import pathlib
import re
import subprocess
import sys

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

PRODUCT = ("base", "memory_budget", "policies", "kernels", "engine", "service")
EDGES = {  # folder -> folders whose headers it may include, besides its own
    "base": set(),
    "memory_budget": {"base"},
    "policies": {"base", "memory_budget"},
    "kernels": {"base"},
    "engine": {"kernels", "policies", "memory_budget", "base"},
    "service": {"policies", "memory_budget", "base"},
    "tests": set(PRODUCT) | {"tests"},
}

# Third-party header (regular expression) -> the paths that may include it (regular expression).
FENCES = {
    r"httplib\.h": r"service/http/",
    r"sqlite3\.h": r"service/store/",
    r"systemd/.*": r"service/systemd\.",
    r"toml\+\+/.*|toml\.hpp": r"service/config",
    r"rapidjson/.*": r"base/json_parse\.",
    r"nlohmann/.*|json\.hpp": r"tests/unit/base/json_oracle_test",
    r"spdlog/.*|fmt/.*": r"base/log\.",
    r"cuda.*\.h|cublas.*\.h": r"kernels/|engine/run/|memory_budget/probe",
    r"nvml\.h": r"memory_budget/probe",
    r"(imm|x86|smm|emm|xmm|amm|avx.*)intrin\.h|arm_neon\.h|arm_sve\.h|cpuid\.h": r"kernels/",
    r"catch2/.*|catch\.hpp": r"tests/support/",
    r"boost/.*|absl/.*|asio.*|curl/.*": r"(?!)",
}

# Policies are pure: data in, decision out.
POLICIES_BANNED_HEADERS = {"thread", "mutex", "shared_mutex", "condition_variable", "atomic", "future", "chrono",
                           "stop_token", "semaphore", "sys/socket.h", "unistd.h", "time.h", "ctime"}


@dataclasses.dataclass(frozen=True)
class Banned:
    rule: str
    pattern: str
    instead: str
    where: str = r""       # only in paths that match
    allowed: str = r"(?!)"  # but not in these


BANNED = [
    Banned("throw", r"\bthrow\b", "return an Error"),
    Banned("new", r"(?<!::)\bnew\b(?!\s*\()(?=\s+[A-Za-z_:])",
           "std::make_unique; for a private constructor std::unique_ptr<T>(new T(...)) in one line"),
    Banned("new", r"\boperator\s+new\b|\bnew\s*\(", "std::make_unique"),
    Banned("delete", r"(?<!= )(?<!=)\bdelete\b", "a value or unique_ptr"),
    Banned("malloc", r"\b(malloc|calloc|realloc|strdup|alloca)\s*\(", "std::vector or unique_ptr"),
    Banned("detach", r"[.>]detach\s*\(\s*\)",  # a thread's takes no argument
            "own the thread (std::jthread)"),
    Banned("thread", r"\bstd::thread\b(?!::)", "std::jthread"),
    Banned("sleep", r"\bsleep_(for|until)\b|\b(usleep|nanosleep)\s*\(|(?<![\w.:>])sleep\s*\(",
           "wait on an event, a deadline or an injected clock"),
    Banned("shared_ptr", r"\b(shared_ptr|make_shared|enable_shared_from_this)\b", "unique_ptr, a value or a reference",
           # base/log: spdlog's own interface hands out shared pointers.
           # engine/run/constraint: a compiled constraint is kept by a prompt (io thread) and used by requests
           # (loop thread) that may outlive it or end before it; immutable.
           allowed=r"base/log\.|engine/run/constraint\.|service/(engine_client|event_channel|tenant)\w*\.|service/http/(server|front|stream)[\w]*\.|tests/"),
    Banned("using-namespace", r"\busing\s+namespace\b", "names with their namespace"),
    Banned("todo", r"\b(FIXME|TODO|XXX|HACK)\b", "do it, or file it"),
    Banned("catch", r"\bcatch\s*\(", "Result",
           allowed=r"base/json\.cpp|base/log\.cpp|service/config|service/http/|service/store/|.*main\.cpp|tests/|"
                   r"engine/run/.*thread|service/.*thread"),
    Banned("unsafe-c", r"(?<![\w.>])(std::)?(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|strtok)\s*\(",
           "std::string, std::from_chars, snprintf", allowed=r"tests/"),
    Banned("locale", r"\bstd::(stoi|stol|stoul|stod|stof|stoull|stoll)\s*\(", "std::from_chars",
           allowed=r"tests/"),
    Banned("exceptions-off", r"\bsystem\s*\(|\bpopen\s*\(", "posix_spawn with an argument vector",
           where=r"base/|engine/|service/|memory_budget/|kernels/|policies/"),
    Banned("stdout", r"\bstd::(cout|cerr)\b|(?<![\w.>:])(std::)?printf\s*\(", "base/log.h",
           where=r"base/|engine/|service/|memory_budget/|kernels/|policies/",
           allowed=r"service/ctl/|.*main\.cpp"),
    Banned("kill-zero", r"\bkill\s*\(\s*[\w.]+\s*,\s*0\s*\)", "a pidfd: zombies answer kill(pid, 0)"),
    Banned("signal", r"(?<![\w.>])(std::)?signal\s*\(\s*SIG\w+\s*,(?!\s*SIG_)", "sigaction or sigwait"),
]

TEXT_BANNED = [  # in every text file of the repository, scripts and documents included
    Banned("machine-path", r"(?<![\w.~*$}])/(work|root|home)/\w", "a path relative to the repository",
           allowed=r"tests/tidy/"),
    Banned("registry-host", r"\b(py" r"pi\.org|python" r"hosted|deb\.de" r"bian|registry\.np" r"mjs)", "the package's name only",
           allowed=r"tests/tidy/"),
]

OWNED_AT_ONCE = re.compile(r"\bunique_ptr<(?:const )?([\w:]+)>(?: \w+)?\(new \1\(")

CODE_SUFFIXES = {".h", ".cpp", ".cc", ".cu", ".cuh"}
TEXT_SUFFIXES = CODE_SUFFIXES | {".py", ".md", ".txt", ".cmake", ".sh", ".toml", ".service", ".sql", ""}
SCRIPT_NAMES_OK = re.compile(r"^(check|quickstart|run|install_packages|fetch_models|[a-z0-9_]+)$")
NOT_ASCII_OK = re.compile(r"tests/(golden/data|fuzz/corpus|models|policies)/")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


RAW_STRING = re.compile(r'R"([^()\\\s]{0,16})\((?:.|\n)*?\)\1"')
TOKEN = re.compile(r'//[^\n]*|/\*(?:.|\n)*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
DIGIT_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")


def blank(text):
    """Same length and lines, nothing else."""
    return re.sub(r"[^\n]", " ", text)


def code_only(text):
    """Comments and the insides of strings blanked out, lines kept."""
    text = DIGIT_SEPARATOR.sub("_", text)
    text = RAW_STRING.sub(lambda m: '"' + blank(m.group(0))[2:] + '"', text)
    return TOKEN.sub(
        lambda m: blank(m.group(0)) if m.group(0)[0] == "/" else m.group(0)[0] + blank(m.group(0))[2:] + m.group(0)[0],
        text)


def check_includes(path, lines):
    folder = path.split("/")[0]
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        quote, name = match.groups()
        for fence, where in FENCES.items():
            if re.fullmatch(fence, name) and not re.match(where, path):
                yield Finding(path, number, "fence", f"{name} may be included in {where} only")
        if folder == "policies" and name in POLICIES_BANNED_HEADERS:
            yield Finding(path, number, "edge", f"policies/ knows no threads, clocks or sockets: {name}")
        if quote == '"' and folder in EDGES:
            target = name.split("/")[0]
            if "/" not in name or target not in EDGES:
                yield Finding(path, number, "include-path", f'"{name}" is not written from the repository root')
            elif target != folder and target not in EDGES[folder]:
                yield Finding(path, number, "edge", f"{folder}/ may not use {target}/ ({name})")


def check_words(path, code_lines):
    for banned in BANNED:
        if not re.match(banned.where, path) or re.match(banned.allowed, path):
            continue
        pattern = re.compile(banned.pattern)
        for number, line in enumerate(code_lines, 1):
            if banned.rule == "new" and OWNED_AT_ONCE.search(line):
                continue
            if "#include" not in line and pattern.search(line):
                yield Finding(path, number, banned.rule, f"banned; instead: {banned.instead}")


def check_todo(path, lines):
    # In comments too, where code_only cannot see them.
    for number, line in enumerate(lines, 1):
        if re.search(r"\b(FIXME|TODO|XXX)\b", line):
            yield Finding(path, number, "todo", "banned; do it, or file it")


NOT_A_FUNCTION = re.compile(r"\b(namespace|struct|class|enum|union|extern)\b")


def function_spans(code):
    """(first line, last line) of each outermost brace block that is a function body.

    Blocks of namespaces, classes and enums are entered; initialisers (`= {`) are not functions.
    """
    spans = []
    stack = []  # (kind, first line)
    head_start = 0
    head_line = 1
    line = 1
    for position, char in enumerate(code):
        if char == "\n":
            line += 1
        if char not in "{};":
            if head_line is None and not char.isspace():
                head_line = line
            continue
        if char == "{":
            kind = block_kind(code[head_start:position], stack)
            stack.append((kind, head_line or line))
        elif char == "}" and stack:
            kind, first = stack.pop()
            if kind == "function":
                spans.append((first, line))
        else:
            kind = ""
        if kind != "init" and not (stack and stack[-1][0] == "init"):  # an initialiser's head goes on after it
            head_start = position + 1
            head_line = None
    return spans


def block_kind(head, stack):
    """What a brace opens, judged by the text before it."""
    if any(kind in ("function", "inner") for kind, _ in stack):
        return "inner"
    head = re.sub(r"^[ \t]*#[^\n]*(\\\n[^\n]*)*$", "", head, flags=re.M).strip()
    if head.count("(") > head.count(")") or re.search(r"\)[\s\w]*:(?!:).*[\w>]$", head, re.S) or (
            stack and stack[-1][0] == "init"):
        return "init"
    if NOT_A_FUNCTION.search(head) and not re.search(r"\)\s*(const|noexcept|override|final|->.*|\s)*$", head):
        return "scope"
    if "(" in head and not head.endswith("="):
        return "function"
    return "data"


def check_sizes(path, lines, code):
    if len(lines) > FILE_LINES_MAX:
        yield Finding(path, len(lines), "file-size", f"{len(lines)} lines, {FILE_LINES_MAX} allowed")
    for first, last in function_spans(code):
        length = last - first + 1
        if length > FUNCTION_LINES_MAX:
            yield Finding(path, first, "function-size", f"{length} lines, {FUNCTION_LINES_MAX} allowed")


def check_form(path, text):
    if not NOT_ASCII_OK.match(path):
        for number, line in enumerate(text.split("\n"), 1):
            if any(ord(char) > 126 or (ord(char) < 32 and char != "\t") for char in line):
                yield Finding(path, number, "ascii", "only printable ASCII in sources; use escapes")
    if text and not text.endswith("\n"):
        yield Finding(path, text.count("\n") + 1, "last-line", "the last line has no line end")


def check_header(path, lines):
    if not path.endswith(".h") or path.split("/")[0] not in EDGES:
        return
    if not any(line.strip() == "#pragma once" for line in lines):
        yield Finding(path, 1, "pragma-once", "missing in a header")
    if path.split("/")[0] in PRODUCT and not (lines and lines[0].startswith("//")):
        yield Finding(path, 1, "header-text", "a public header starts with a paragraph on what it owns")


def check_code_file(path, text):
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    code = code_only(text)
    yield from check_includes(path, lines)
    yield from check_words(path, code.split("\n"))
    yield from check_todo(path, lines)
    yield from check_sizes(path, lines, code)
    yield from check_header(path, lines)


def check_text_file(path, text):
    for banned in TEXT_BANNED:
        if re.match(banned.allowed, path):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if re.search(banned.pattern, line):
                yield Finding(path, number, banned.rule, f"instead: {banned.instead}")


def check_listed(files):
    """Each .cpp is named in a CMakeLists.txt of its folder or of one above; each header is included."""
    lists = {path.rsplit("/", 1)[0] if "/" in path else "": text
             for path, text in files.items() if path.endswith("CMakeLists.txt")}
    lists[""] = lists.get("", "") + "".join(text for path, text in files.items() if path.endswith(".cmake"))
    includes = set()
    for path, text in files.items():
        if pathlib.PurePath(path).suffix in CODE_SUFFIXES:
            includes.update(re.findall(r'#\s*include\s*"([^"]+)"', text))
    for path in files:
        suffix = pathlib.PurePath(path).suffix
        if path.split("/")[0] not in EDGES:
            continue
        if suffix in {".cpp", ".cc", ".cu"}:
            folder = path.rsplit("/", 1)[0]
            while True:
                relative = path[len(folder) + 1:] if folder else path
                if re.search(rf"(?<![\w.-]){re.escape(relative)}(?![\w])", lists.get(folder, "")):
                    break
                if not folder:
                    yield Finding(path, 1, "unlisted", "named by no CMakeLists.txt of its folder or above")
                    break
                folder = folder.rsplit("/", 1)[0] if "/" in folder else ""
        elif suffix in {".h", ".cuh"} and path not in includes:
            yield Finding(path, 1, "dead-header", "included by nobody")
    for folder, text in lists.items():
        if re.search(r"(?<!tandem_)(?<!_)\badd_test\s*\(", text):
            yield Finding(f"{folder}/CMakeLists.txt", 1, "add-test", "use tandem_add_test")


def check_python_tests(files):
    """Each e2e and tidy test script is named in its CMakeLists.txt."""
    for path in files:
        if re.match(r"tests/(e2e|tidy|bench)/(test_\w+|\w+_test)\.py$", path):
            folder, name = path.rsplit("/", 1)
            if name.removesuffix(".py") not in files.get(f"{folder}/CMakeLists.txt", ""):
                yield Finding(path, 1, "unlisted", "named by no CMakeLists.txt")


def check_tree(files):
    """All findings of a tree given as {path: text}."""
    for path, text in files.items():
        suffix = pathlib.PurePath(path).suffix
        if suffix in CODE_SUFFIXES:
            yield from check_code_file(path, text)
        if suffix in CODE_SUFFIXES | {".py", ".cmake", ".sh", ""} or path.endswith("CMakeLists.txt"):
            yield from check_form(path, text)
        if suffix in TEXT_SUFFIXES:
            yield from check_text_file(path, text)
    yield from check_listed(files)
    yield from check_python_tests(files)


def read_tree(root):
    try:
        names = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"],
                               capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):  # an exported tree
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()
                 and not str(path.relative_to(root)).startswith((".git/", "build/", ".tandem/"))]
    files = {}
    for name in sorted(filter(None, names)):
        path = root / name
        suffix = path.suffix
        if not path.is_file() or path.is_symlink() or suffix not in TEXT_SUFFIXES:
            continue
        if re.match(r"tests/(fuzz/corpus|models|golden/data)/", name):
            continue
        data = path.read_bytes()
        if suffix == "" and not data.startswith(b"#!"):
            continue
        files[name] = data.decode("utf-8", "surrogateescape")
    return files


def apply_ratchet(findings, entries):
    """Drops listed offenders; an entry without an offence becomes a finding."""
    keys = {f"{finding.rule} {finding.path}" for finding in findings}
    kept = [finding for finding in findings if f"{finding.rule} {finding.path}" not in entries]
    kept += [Finding("tests/tidy/ratchet.txt", 1, "ratchet", f"no longer needed: {entry}")
             for entry in sorted(entries - keys)]
    return kept


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    files = read_tree(root)
    ratchet = root / "tests/tidy/ratchet.txt"
    entries = set()
    if ratchet.exists():
        entries = {line.strip() for line in ratchet.read_text().splitlines() if line.strip() and line[0] != "#"}
    findings = apply_ratchet(sorted(set(check_tree(files))), entries)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(files)} files, {len(findings)} findings")
    return 1 if findings or not files else 0


if __name__ == "__main__":
    sys.exit(main())
