// Random texts of schemas, for a validator that is not ours:
//   schema_samples FILE.jsonl COUNT SEED
// Each line of the file is an object with `schema`. For each one line of JSON comes out: the line's number
// with `texts` (a list of strings), or with `error`.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/json.h"
#include "engine/grammar/schema_compiler.h"
#include "tests/unit/engine/grammar_walk.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: schema_samples FILE.jsonl COUNT SEED\n");
    return 2;
  }
  std::ifstream file(argv[1]);
  const int count = std::atoi(argv[2]);
  tandem::engine::test::WalkRandom random(std::strtoull(argv[3], nullptr, 10));
  std::string line;
  int64_t number = 0;
  while (std::getline(file, line)) {
    ++number;
    tandem::Json out = tandem::Json::object().set("line", number);
    const auto parsed = tandem::parse_json(line);
    const tandem::Json* schema = parsed.ok() ? parsed->find("schema") : nullptr;
    if (schema == nullptr) {
      out.set("error", "not a line with a schema");
    } else if (const auto grammar = tandem::engine::compile_json_schema(*schema); !grammar.ok()) {
      out.set("error", grammar.error().message);
    } else {
      tandem::Json texts = tandem::Json::array();
      for (int i = 0; i < count; ++i) {
        texts.push_back(tandem::engine::test::random_text(*grammar, random, 1 + random.below(400)));
      }
      out.set("texts", texts);
      out.set("states", static_cast<int64_t>(grammar->states().size()));
    }
    std::printf("%s\n", out.dump().c_str());
  }
  return 0;
}
