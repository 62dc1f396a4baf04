#!/usr/bin/env python3
"""tidy.py finds what it is there for: bad snippets, each with the finding it must give, and good ones without."""
import unittest

import tidy

LONG_BODY = "  work();\n" * 70


def rules(path, text, **others):
    """Rules that a tree of this one file breaks; it is listed and included, so that these rules keep quiet."""
    files = {path: text, **{name.replace("__", "/"): body for name, body in others.items()}}
    folder = path.split("/")[0]
    files.setdefault(f"{folder}/CMakeLists.txt", path[len(folder) + 1:] + "\n")
    files.setdefault("tests/includes_all.cpp", f'#include "{path}"\n')
    files.setdefault("tests/CMakeLists.txt", "includes_all.cpp\n")
    return {finding.rule for finding in tidy.check_tree(files) if finding.path == path}


class BadSnippets(unittest.TestCase):
    def expect(self, rule, path, text):
        with self.subTest(rule=rule, text=text):
            self.assertIn(rule, rules(path, text))

    def test_edges(self):
        self.expect("edge", "base/a.cpp", '#include "engine/run/loop.h"\n')
        self.expect("edge", "policies/a.cpp", '#include "service/config.h"\n')
        self.expect("edge", "service/a.cpp", '#include "engine/gguf/gguf.h"\n')
        self.expect("edge", "service/a.cpp", '#include "kernels/matmul.h"\n')
        self.expect("edge", "engine/a.cpp", '#include "service/wire/error.h"\n')
        self.expect("edge", "base/a.cpp", '#include "tests/support/catch.h"\n')
        self.expect("edge", "policies/a.cpp", "#include <mutex>\n")
        self.expect("edge", "kernels/a.cpp", '#include "memory_budget/ledger.h"\n')
        self.expect("include-path", "engine/a.cpp", '#include "loop.h"\n')

    def test_fences(self):
        for path, header in [
            ("service/ctl/a.cpp", "<httplib.h>"), ("service/http2/a.cpp", "<httplib.h>"), ("engine/a.cpp", "<sqlite3.h>"),
            ("service/main.cpp", "<systemd/sd-daemon.h>"), ("service/http/a.cpp", "<toml++/toml.h>"),
            ("service/wire/a.cpp", "<nlohmann/json.hpp>"), ("engine/a.cpp", "<spdlog/spdlog.h>"),
            ("engine/model/a.cpp", "<cuda_runtime.h>"), ("engine/model/a.cpp", "<immintrin.h>"),
            ("engine/a.cpp", "<arm_neon.h>"), ("base/a.cpp", "<x86intrin.h>"),
            ("tests/unit/a.cpp", "<catch2/catch.hpp>"),
        ]:
            self.expect("fence", path, f"#include {header}\n")

    def test_words(self):
        for rule, line in [
            ("throw", 'if (bad) throw std::runtime_error("x");'), ("new", "auto* p = new Widget();"),
            ("new", "std::unique_ptr<Base> p(new Derived());"),
            ("new", "void* p = ::operator new(8);"), ("delete", "delete p;"), ("delete", "  delete[] p;"),
            ("detach", "worker.detach();"), ("detach", "worker->detach ();"), ("thread", "std::thread worker(run);"),
            ("sleep", "std::this_thread::sleep_for(1ms);"), ("sleep", "usleep(100);"), ("sleep", "sleep(1);"),
            ("shared_ptr", "std::shared_ptr<int> p;"), ("shared_ptr", "auto p = std::make_shared<int>(1);"),
            ("using-namespace", "using namespace std;"), ("todo", "// TODO later"), ("todo", "int x;  // FIXME"),
            ("catch", "} catch (...) {"), ("malloc", "void* p = malloc(8);"), ("unsafe-c", "int x = atoi(text);"),
            ("unsafe-c", "sprintf(out, fmt);"), ("locale", "int x = std::stoi(text);"),
            ("exceptions-off", 'system("ls");'), ("stdout", 'printf("x");'), ("stdout", "std::cout << 1;"),
            ("kill-zero", "if (kill(pid, 0) == 0) {"), ("signal", "signal(SIGTERM, on_term);"),
        ]:
            self.expect(rule, "engine/a.cpp", line + "\n")

    def test_sizes(self):
        self.expect("file-size", "base/a.cpp", "int x;\n" * 501)
        self.expect("function-size", "base/a.cpp", "void f() {\n" + LONG_BODY + "}\n")
        self.expect("function-size", "base/a.cpp",
                    "namespace tandem {\nclass A {\n public:\n  int g(int a,\n        int b) const noexcept {\n"
                    + LONG_BODY + "  }\n};\n}\n")
        self.expect("function-size", "base/a.cpp",
                    "A::A(int x)\n    : x_(x), y_{2} {\n" + LONG_BODY + "}\n")
        self.expect("function-size", "base/a.cpp",
                    "int f(const Options& options = {}, std::vector<int> v = {1, 2}) {\n" + LONG_BODY + "}\n")
        self.expect("function-size", "base/a.cpp",
                    "template <typename T>\nauto f(T t) -> Result<T> {\n  if (t) {\n" + LONG_BODY + "  }\n}\n")
        self.expect("function-size", "base/a.cpp", "Result<struct X> f(struct Y y) {\n" + LONG_BODY + "}\n")

    def test_form(self):
        self.expect("ascii", "base/a.cpp", "// caf\u00e9\n")
        self.expect("ascii", "base/a.cpp", "int x;\r\n")
        self.expect("last-line", "base/a.cpp", "int x;")
        self.expect("pragma-once", "base/a.h", "// a: what it owns.\nint f();\n")
        self.expect("header-text", "base/a.h", "#pragma once\n")
        self.expect("machine-path", "base/a.cpp", "// see /work" + "/shared/x\n")
        self.expect("registry-host", "tools/a.py", "# pypi" + ".org\n")

    def test_unlisted(self):
        self.assertIn("unlisted", rules("base/a.cpp", "int x;\n", base__CMakeLists="", **{"base__CMakeLists.txt": "b.cpp\n"}))
        self.assertIn("unlisted", rules("base/a.cpp", "int x;\n", **{"base__CMakeLists.txt": "data.cpp a.cpp2\n"}))
        found = {f.rule for f in tidy.check_tree({"base/a.h": "// a.\n#pragma once\n"})}
        self.assertIn("dead-header", found)
        found = {f.rule for f in tidy.check_tree({"base/CMakeLists.txt": "add_test(NAME x COMMAND y)\n"})}
        self.assertIn("add-test", found)
        found = {f.rule for f in tidy.check_tree({"tests/e2e/test_x.py": "pass\n", "tests/e2e/CMakeLists.txt": "\n"})}
        self.assertIn("unlisted", found)

    def test_stale_ratchet(self):
        finding = tidy.Finding("base/a.cpp", 3, "throw", "banned")
        self.assertEqual([], tidy.apply_ratchet([finding], {"throw base/a.cpp"}))
        self.assertEqual(["ratchet"], [f.rule for f in tidy.apply_ratchet([], {"throw base/a.cpp"})])
        self.assertEqual([finding], tidy.apply_ratchet([finding], set()))


class GoodSnippets(unittest.TestCase):
    def test_nothing_found(self):
        for path, text in [
            ("engine/a.cpp", '#include "kernels/matmul.h"\n#include "engine/b.h"\n#include <thread>\n'),
            ("service/http/a.cpp", "#include <httplib.h>\n"),
            ("kernels/a.cpp", "#include <immintrin.h>\n"),
            ("base/a.cpp", 'const char* s = "new throw delete";  // delete and throw, anew\n'),
            ("base/a.cpp", "return std::unique_ptr<Store>(new Store(std::move(path)));\n"),
            ("base/a.cpp", "std::unique_ptr<Slot> slot(new Slot(n));\n"),
            ("base/a.cpp", "A(const A&) = delete;\nA& operator=(const A&) = delete;\n"),
            ("base/a.cpp", 'const char* s = R"(throw x; } } { new T)";\nint separated = 1\'000\'000;\n'),
            ("base/a.cpp", "void f() {\n" + "  work();\n" * 68 + "}\n"),
            ("base/a.cpp", "const int table[] = {\n" + "  1,\n" * 200 + "};\n"),
            ("base/a.cpp", "namespace tandem {\n" + "int f();\n" * 300 + "}  // namespace tandem\n"),
            ("base/a.cpp", "struct Big {\n" + "  int x;\n" * 100 + "};\n"),
            ("base/a.cpp", "char c = '{';\nchar d = '\"';\nvoid f() { g(\"}\"); }\n"),
            ("base/a.cpp", "bool asleep(int x);\nint renew(int new_value);\nstd::thread::id t;\n"),
            ("base/a.h", "// a: what it owns.\n#pragma once\n"),
        ]:
            with self.subTest(text=text):
                self.assertEqual(set(), rules(path, text))


if __name__ == "__main__":
    unittest.main()
