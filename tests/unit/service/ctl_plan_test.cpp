// tandemctl plan: sizes, and an engine binary that answers, lies, floods, dies or hangs.
#include <sys/stat.h>

#include <string>

#include "service/ctl/plan_input.h"
#include "service/describe_engine.h"
#include "tests/support/emulated.h"
#include "tests/support/catch.h"
#include "tests/support/engine_process.h"

namespace tandem::service::ctl {
namespace {

TEST_CASE("ctl plan: sizes with decimals") {
  CHECK(parse_plan_size("24GiB").value() == int64_t{24} << 30);
  CHECK(parse_plan_size("14").value() == 14);
  CHECK(parse_plan_size("14B").value() == 14);
  CHECK(parse_plan_size("1.5KiB").value() == 1536);
  CHECK(parse_plan_size("121.7GiB").value() == 130'674'379'981);  // 130,674,379,980.8
  CHECK(parse_plan_size("0").value() == 0);
  for (const char* bad : {"", "GiB", ".", ".5GiB", "5.GiB", "1.5.5GiB", "-1GiB", "1 GiB", "1GB", "1e3",
                          "1048577GiB", "9223372036854775807", "9223372036854775808", "1.1234567GiB"}) {
    INFO(bad);
    REQUIRE_FALSE(parse_plan_size(bad).ok());
    CHECK(parse_plan_size(bad).error().code == Errc::invalid_argument);
  }
}

// A shell script in the place of tandem-engine.
Result<Json> ask(const std::string& script, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  const tests::TempFolder folder;
  const std::string path = folder.write("engine", "#!/bin/sh\n" + script + "\n");
  REQUIRE(::chmod(path.c_str(), 0700) == 0);
  return ask_engine({.engine = path, .file = "some.gguf", .slots = 3, .answer_limit = limit});
}

TEST_CASE("ctl plan: the engine's answer is read, and its error is told") {
  const auto good = ask(R"(echo "{\"format\": 1, \"arguments\": \"$*\"}")");
  REQUIRE(good.ok());
  CHECK(good->find("arguments")->as_string() ==
        "--describe some.gguf --slots 3 --context 8192 --batch-tokens 512 --threads 0");
  const auto bad = ask(R"(echo '{"error": {"code": "io", "message": "no such file"}}'; exit 1)");
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().code == Errc::io);
  CHECK(bad.error().message == "some.gguf: no such file");
}

TEST_CASE("ctl plan: an engine that lies, dies, floods or hangs is an error") {
  CHECK(ask("echo hello").error().code == Errc::corrupt);
  CHECK(ask("echo '[1]'").error().code == Errc::corrupt);
  CHECK(ask("exit 3").error().message.find("exit code 3") != std::string::npos);
  CHECK(ask("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done")
            .error().code == Errc::too_large);
  CHECK(ask("exec sleep 100", std::chrono::milliseconds(200)).error().code == Errc::unavailable);
  if (tests::emulated()) return;
  CHECK(ask_engine({.engine = "/nonexistent/tandem-engine", .file = "x"}).error().code == Errc::io);
}

}  // namespace
}  // namespace tandem::service::ctl
