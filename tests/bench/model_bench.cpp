// Decode and prefill speed of one GGUF file, without service and protocol around it:
//
//   model_bench FILE [--threads N] [--prompt N] [--decode N] [--chunk N] [--repeats N] [--profile]
//
// Prints one JSON line: medians of tokens per second, of wall time and of processor time (tokens
// per second of one processor: steadier beside other load), and what the machine ran. --profile
// adds the time of each kind of operation, in milliseconds per run, to standard error.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "kernels/isa.h"
#include "tests/support/model_fixture.h"

namespace tandem_tests {
namespace {

using tandem::Result;
using tandem::engine::LogitsFor;
using tandem::engine::StepItem;
using Steady = std::chrono::steady_clock;

struct BenchOptions {
  std::string path;
  int threads = 2;
  int64_t prompt_tokens = 512;
  int64_t decode_tokens = 64;
  int64_t chunk_tokens = 512;
  int64_t repeats = 5;
  bool profile = false;
};

double processor_seconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

double seconds_since(Steady::time_point start) {
  return std::chrono::duration<double>(Steady::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Time by kind of operation: names without their layer and row numbers.
class Profile {
 public:
  void run(tandem::engine::Step& step) {
    while (!step.done()) {
      const size_t index = step.cursor();
      const auto start = Steady::now();
      step.run_until(index + 1);
      times_[kind(step.operation_name(index))] += seconds_since(start);
    }
  }
  void print(const char* title, int64_t runs) const {
    double sum = 0;
    for (const auto& [name, seconds] : times_) sum += seconds;
    std::fprintf(stderr, "%s: %.3f ms a run\n", title, sum * 1e3 / static_cast<double>(runs));
    for (const auto& [name, seconds] : times_) {
      std::fprintf(stderr, "  %9.3f ms %5.1f %%  %s\n", seconds * 1e3 / static_cast<double>(runs),
                   100 * seconds / sum, name.c_str());
    }
  }

 private:
  static std::string kind(std::string name) {
    if (name.rfind("layer ", 0) == 0) name = name.substr(name.find(' ', 6) + 1);
    if (name.rfind("head rows", 0) == 0) name = "head rows";
    return name;
  }
  std::map<std::string, double> times_;
};

struct Times {
  std::vector<double> prefill_s;
  std::vector<double> decode_s;  // per token
  std::vector<double> prefill_cpu_s;
  std::vector<double> decode_cpu_s;
};

Result<void> run_step(ModelFixture& fixture, const StepItem& item, Profile* profile) {
  TRY(fixture.step->begin({&item, 1}));
  if (profile != nullptr) {
    profile->run(*fixture.step);
  } else {
    fixture.step->run_all();
  }
  fixture.step->finish();
  return {};
}

Result<void> run_once(ModelFixture& fixture, const BenchOptions& options, Times& times,
                      Profile* prefill_profile, Profile* decode_profile) {
  TRY_ASSIGN(auto sequence, fixture.store->create_sequence());
  std::vector<int32_t> ids(static_cast<size_t>(options.prompt_tokens));
  const int64_t vocab = fixture.model->config().vocab;
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((static_cast<int64_t>(i) * 7919 + 13) % vocab);
  }
  auto start = Steady::now();
  double cpu_start = processor_seconds();
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min(ids.size() - done, static_cast<size_t>(options.chunk_tokens));
    const bool last = done + count == ids.size();
    TRY(run_step(fixture,
                 {sequence.get(), std::span(ids).subspan(done, count),
                  last ? LogitsFor::last : LogitsFor::none},
                 prefill_profile));
    done += count;
  }
  times.prefill_s.push_back(seconds_since(start));
  times.prefill_cpu_s.push_back(processor_seconds() - cpu_start);
  start = Steady::now();
  cpu_start = processor_seconds();
  for (int64_t i = 0; i < options.decode_tokens; ++i) {
    const int32_t token = argmax(fixture.step->logits(0));
    TRY(run_step(fixture, {sequence.get(), {&token, 1}, LogitsFor::last}, decode_profile));
  }
  times.decode_s.push_back(seconds_since(start) / static_cast<double>(options.decode_tokens));
  times.decode_cpu_s.push_back((processor_seconds() - cpu_start) /
                               static_cast<double>(options.decode_tokens));
  return {};
}

Result<void> bench(const BenchOptions& options) {
  const int64_t context = options.prompt_tokens + options.decode_tokens;
  TRY_ASSIGN(auto fixture,
             ModelFixture::open(options.path, {.threads = options.threads,
                                               .context_tokens = context,
                                               .rows_max = options.chunk_tokens,
                                               .logit_rows_max = 1}));
  Times warm_up;
  TRY(run_once(*fixture, options, warm_up, nullptr, nullptr));
  Times times;
  Profile prefill;
  Profile decode;
  for (int64_t i = 0; i < options.repeats; ++i) {
    TRY(run_once(*fixture, options, times, options.profile ? &prefill : nullptr,
                 options.profile ? &decode : nullptr));
  }
  if (options.profile) {
    prefill.print("prefill", options.repeats);
    decode.print("decode", options.repeats * options.decode_tokens);
  }
  const double decode_s = median(times.decode_s);
  tandem::Json line = tandem::Json::object();
  line.set("file", options.path.substr(options.path.rfind('/') + 1));
  line.set("isa", tandem::kernels::isa_name(fixture->compute->isa()));
  line.set("threads", options.threads);
  line.set("prompt_tokens", options.prompt_tokens);
  line.set("prefill_tok_s", static_cast<double>(options.prompt_tokens) / median(times.prefill_s));
  line.set("decode_tok_s", 1.0 / decode_s);
  line.set("prefill_tok_cpu_s",
           static_cast<double>(options.prompt_tokens) / median(times.prefill_cpu_s));
  line.set("decode_tok_cpu_s", 1.0 / median(times.decode_cpu_s));
  line.set("weights_gb_s", static_cast<double>(fixture->model->weight_bytes()) / decode_s / 1e9);
  std::printf("%s\n", line.dump().c_str());
  return {};
}

bool parse(int argc, char** argv, BenchOptions& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--profile") {
      options.profile = true;
    } else if (argument.rfind("--", 0) != 0) {
      options.path = argument;
    } else if (i + 1 < argc) {
      const int64_t value = std::atoll(argv[++i]);
      if (value <= 0) return false;
      if (argument == "--threads") options.threads = static_cast<int>(value);
      else if (argument == "--prompt") options.prompt_tokens = value;
      else if (argument == "--decode") options.decode_tokens = value;
      else if (argument == "--chunk") options.chunk_tokens = value;
      else if (argument == "--repeats") options.repeats = value;
      else return false;
    } else {
      return false;
    }
  }
  return !options.path.empty();
}

}  // namespace
}  // namespace tandem_tests

int main(int argc, char** argv) {
  tandem_tests::BenchOptions options;
  if (!tandem_tests::parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: model_bench FILE [--threads N] [--prompt N] [--decode N] [--chunk N] "
                 "[--repeats N] [--profile]\n");
    return 2;
  }
  const auto done = tandem_tests::bench(options);
  if (!done.ok()) {
    std::fprintf(stderr, "model_bench: %s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
