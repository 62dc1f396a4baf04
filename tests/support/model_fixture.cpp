#include "tests/support/model_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "kernels/isa.h"

namespace tandem_tests {

using tandem::Result;
using tandem::engine::GgufFile;
using tandem::engine::LoadMode;
using tandem::engine::LogitsFor;
using tandem::engine::Model;
using tandem::engine::StateStore;
using tandem::engine::Step;
using tandem::engine::StepLimits;

Result<std::unique_ptr<ModelFixture>> ModelFixture::open(const std::string& path,
                                                         const ModelFixtureOptions& options) {
  const char* load = std::getenv("TANDEM_TEST_LOAD");
  const bool direct = load != nullptr && std::string(load) == "direct";
  TRY_ASSIGN(GgufFile file, GgufFile::open(path, {.load = direct ? LoadMode::direct : LoadMode::mapped}));
  TRY(file.read_tensors());
  return make(std::move(file), options);
}

Result<std::unique_ptr<ModelFixture>> ModelFixture::make(GgufFile file,
                                                         const ModelFixtureOptions& options) {
  TRY_ASSIGN(std::unique_ptr<Model> model, Model::load(file));
  return make(std::move(file), std::move(model), options);
}

Result<std::unique_ptr<ModelFixture>> ModelFixture::make(GgufFile file,
                                                         std::unique_ptr<Model> model,
                                                         const ModelFixtureOptions& options) {
  auto fixture = std::make_unique<ModelFixture>(std::move(file));
  fixture->model = std::move(model);
  const int64_t kv_tokens = options.kv_tokens > 0 ? options.kv_tokens : options.context_tokens;
  const auto shape = fixture->model->state_shape(options.context_tokens);
  const int64_t pages = tandem::engine::PagePool::pages_for_tokens(kv_tokens);
  TRY_ASSIGN(fixture->store,
             StateStore::create(fixture->ledger, shape, pages * shape.page_bytes,
                                tandem::engine::kExtentBytesDefault,
                                tandem::engine::Commit::at_first_use, options.prefixes));
  tandem::kernels::ComputeOptions compute = {
      .threads = options.threads,
      .isa = tandem::kernels::Isa::portable,
      .scratch_bytes_per_thread = Step::scratch_bytes_per_thread(*fixture->model)};
  if (options.isa.has_value()) {
    compute.isa = *options.isa;
  } else {
    TRY_ASSIGN(compute.isa, tandem::kernels::isa_choose());
  }
  fixture->compute = std::make_unique<tandem::kernels::Compute>(compute);
  const StepLimits limits = {.rows_max = options.rows_max,
                             .logit_rows_max = options.logit_rows_max};
  TRY_ASSIGN(fixture->step, Step::create(*fixture->model, *fixture->store, *fixture->compute,
                                         fixture->ledger, limits));
  return fixture;
}

int32_t argmax(std::span<const float> values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

Result<std::vector<int32_t>> greedy(ModelFixture& fixture, std::span<const int32_t> prompt,
                                    int64_t chunk_tokens, int64_t count, int32_t stop) {
  TRY_ASSIGN(auto sequence, fixture.store->create_sequence());
  std::vector<int32_t> tokens;
  const auto take = [&tokens](int64_t, std::span<const float> logits) {
    tokens.push_back(argmax(logits));
  };
  TRY(fixture.run(*sequence, prompt, chunk_tokens, LogitsFor::last, take));
  while (static_cast<int64_t>(tokens.size()) < count && tokens.back() != stop) {
    const int32_t last = tokens.back();
    TRY(fixture.run(*sequence, {&last, 1}, chunk_tokens, LogitsFor::last, take));
  }
  return tokens;
}

namespace {

std::string if_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? path.string() : std::string();
}

}  // namespace

std::string cached_model(const std::string& file) {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path cache;
  if (xdg != nullptr && *xdg != '\0') {
    cache = xdg;
  } else if (home != nullptr) {
    cache = std::filesystem::path(home) / ".cache";
  }
  return if_there(cache / "tandem" / "models" / file);
}

std::string shared_model(const std::string& file) {
  return if_there(source_path("../shared/models/" + file));
}

std::string source_path(const std::string& relative) {
  const char* source = std::getenv("TANDEM_SOURCE_DIR");
  return (std::filesystem::path(source != nullptr ? source : ".") / relative).string();
}

}  // namespace tandem_tests
