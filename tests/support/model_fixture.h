// A loaded model with store, compute and step, for goldens, model tests and the model bench. Not
// thread safe. Members are declared so that what is used dies after its users.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf.h"
#include "engine/kv/sequence_state.h"
#include "engine/model/model.h"
#include "engine/model/step.h"
#include "kernels/compute.h"
#include "memory_budget/ledger.h"

namespace tandem_tests {

struct ModelFixtureOptions {
  int threads = 2;
  int64_t context_tokens = 2048;
  int64_t kv_tokens = 0;  // 0: context_tokens
  int64_t rows_max = 512;
  int64_t logit_rows_max = 16;
  std::optional<tandem::kernels::Isa> isa;  // else isa_choose()
  tandem::engine::PrefixOptions prefixes;
};

class ModelFixture {
 public:
  // Mapped, or read past the page cache when TANDEM_TEST_LOAD is "direct".
  static tandem::Result<std::unique_ptr<ModelFixture>> open(const std::string& path,
                                                            const ModelFixtureOptions& options);
  static tandem::Result<std::unique_ptr<ModelFixture>> make(tandem::engine::GgufFile file,
                                                            const ModelFixtureOptions& options);
  // A model that the caller has assembled from `file`, which it may have changed.
  static tandem::Result<std::unique_ptr<ModelFixture>> make(
      tandem::engine::GgufFile file, std::unique_ptr<tandem::engine::Model> model,
      const ModelFixtureOptions& options);

  explicit ModelFixture(tandem::engine::GgufFile opened) : file(std::move(opened)) {}

  // Logits of the wanted positions of `ids`, run in chunks of at most chunk_tokens, row after row.
  // sink(position, logits); stops at the first error.
  template <typename Sink>
  tandem::Result<void> run(tandem::engine::SequenceState& sequence, std::span<const int32_t> ids,
                           int64_t chunk_tokens, tandem::engine::LogitsFor wanted, Sink sink);

  tandem::budget::Ledger ledger;
  tandem::engine::GgufFile file;
  std::unique_ptr<tandem::engine::Model> model;
  std::unique_ptr<tandem::engine::StateStore> store;
  std::unique_ptr<tandem::kernels::Compute> compute;
  std::unique_ptr<tandem::engine::Step> step;
};

// Index of the largest value; the first of equals.
int32_t argmax(std::span<const float> values);

// Greedy continuation of a prompt, alone, prefilled in chunks; `count` tokens, or fewer when `stop`
// (-1: none) is generated, which is then the last.
tandem::Result<std::vector<int32_t>> greedy(ModelFixture& fixture, std::span<const int32_t> prompt,
                                            int64_t chunk_tokens, int64_t count, int32_t stop = -1);

// ${XDG_CACHE_HOME:-~/.cache}/tandem/models/<file>, or empty when it is not there.
std::string cached_model(const std::string& file);
// A file of the folder of shared test models beside the checkout, or empty.
std::string shared_model(const std::string& file);
// A path below the source tree.
std::string source_path(const std::string& relative);

template <typename Sink>
tandem::Result<void> ModelFixture::run(tandem::engine::SequenceState& sequence,
                                       std::span<const int32_t> ids, int64_t chunk_tokens,
                                       tandem::engine::LogitsFor wanted, Sink sink) {
  using tandem::engine::LogitsFor;
  size_t done = 0;
  while (done < ids.size()) {
    const int64_t position = sequence.length();
    const auto room =
        static_cast<size_t>(tandem::engine::chunk_end(position, chunk_tokens) - position);
    const auto chunk = ids.subspan(done, std::min(room, ids.size() - done));
    done += chunk.size();
    const bool last_chunk = done == ids.size();
    const LogitsFor here =
        wanted == LogitsFor::last && !last_chunk ? LogitsFor::none : wanted;
    const tandem::engine::StepItem item = {&sequence, chunk, here};
    TRY(step->begin({&item, 1}));
    step->run_all();
    step->finish();
    const int64_t first = sequence.length() - static_cast<int64_t>(step->logit_rows());
    for (size_t row = 0; row < step->logit_rows(); ++row) {
      sink(first + static_cast<int64_t>(row), step->logits(row));
    }
  }
  return {};
}

}  // namespace tandem_tests
