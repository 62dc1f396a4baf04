#include "service/learned_memory.h"

#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>

#include "base/log.h"
#include "memory_budget/plan_box.h"
#include "service/sha256.h"
#include "service/store/store.h"
#include "service/version.h"

namespace tandem::service {
namespace {

// A stretch of work counts as prefill when it is nearly all of it.
constexpr int64_t kPrefillTokensMin = 256;
constexpr int64_t kPrefillShare = 16;
// Growth below this is no news worth a write.
constexpr int64_t kNewsBytes = int64_t{1} << 20;

const std::string& weights_of(const ModelConfig& model) {
  return model.file.empty() ? model.repository : model.file;
}

int64_t peak_of(int64_t before, int64_t run) {
  if (run == 0) return before;  // an adopted engine: its load was not seen
  return run >= before ? run : before - (before - run) / 8;
}

std::string kernel_release() {
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "";
}

std::string driver_version() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  std::getline(file, version);
  return version.substr(0, 40);
}

}  // namespace

void RunMeter::look(const RunLook& look) {
  if (!look.ready) {
    if (ready_ms_ >= 0) *this = {};
    numbers_.load_peak_bytes = std::max({numbers_.load_peak_bytes, look.held_bytes, look.peak_bytes});
    return;
  }
  if (ready_ms_ < 0) ready_ms_ = look.at_ms;
  numbers_.post_load_peak_bytes =
      std::max({numbers_.post_load_peak_bytes, look.held_bytes, look.peak_bytes});
  numbers_.host_plateau_bytes = std::max(numbers_.host_plateau_bytes, look.anonymous_bytes);
  numbers_.steady_bytes = look.held_bytes;
  if (look.kv_bytes > 0) numbers_.kv_bytes = look.kv_bytes;
  note_prefill(look);
  last_ = look;
}

void RunMeter::note_prefill(const RunLook& look) {
  const int64_t prompt = look.prompt_tokens - last_.prompt_tokens;
  const int64_t answered = look.completion_tokens - last_.completion_tokens;
  if (last_.at_ms == 0 || prompt < kPrefillTokensMin || answered * kPrefillShare > prompt) return;
  numbers_.prefill_ns_per_token = (look.step_us - last_.step_us) * 1000 / prompt;
}

bool RunMeter::take_news() {
  if (ready_ms_ < 0 || last_.at_ms - ready_ms_ < kSettledMs) return false;
  const bool grown = numbers_.post_load_peak_bytes > told_.post_load_peak_bytes + kNewsBytes ||
                     numbers_.host_plateau_bytes > told_.host_plateau_bytes + kNewsBytes ||
                     numbers_.prefill_ns_per_token != told_.prefill_ns_per_token;
  if (told_.runs != 0 && !grown) return false;
  told_ = numbers_;
  told_.runs = 1;
  return true;
}

LearnedNumbers combine(const LearnedNumbers& before, const LearnedNumbers& run) {
  LearnedNumbers out = run;
  out.load_peak_bytes = peak_of(before.load_peak_bytes, run.load_peak_bytes);
  out.post_load_peak_bytes = peak_of(before.post_load_peak_bytes, run.post_load_peak_bytes);
  out.host_plateau_bytes = peak_of(before.host_plateau_bytes, run.host_plateau_bytes);
  if (run.kv_bytes == 0) out.kv_bytes = before.kv_bytes;
  if (run.prefill_ns_per_token == 0) out.prefill_ns_per_token = before.prefill_ns_per_token;
  out.runs = before.runs + 1;
  return out;
}

std::string weights_identity(const std::string& file) {
  struct stat info {};
  std::string text = file + '\0';
  if (::stat(file.c_str(), &info) == 0) {
    text += std::to_string(info.st_size) + ' ' + std::to_string(info.st_mtim.tv_sec) + '.' +
            std::to_string(info.st_mtim.tv_nsec);
  }
  return sha256_hex(text).substr(0, 32);
}

std::string memory_flags_hash(const ModelConfig& model) {
  std::string text;
  const int64_t keeps_prefixes = model.prefix_cache == "off" ? 0 : 1;
  for (const int64_t value : {model.context_tokens, model.slots, model.kv_bytes, model.batch_tokens,
                              model.threads, model.memory_limit_bytes, keeps_prefixes, model.checkpoint_bytes}) {
    text += std::to_string(value) + ' ';
  }
  if (model.is_foreign()) {
    text += model.engine;
    for (const auto* words : {&model.command, &model.arguments}) {
      for (const std::string& word : *words) text += '\0' + word;
    }
  }
  return sha256_hex(text).substr(0, 32);
}

LearnedBook::LearnedBook(Store& store, const Clock& clock)
    : store_(store), clock_(clock), kernel_(kernel_release()), driver_(driver_version()) {}

LearnedKey LearnedBook::key_of(const ModelConfig& model) const {
  return {.weights = weights_identity(weights_of(model)),
          .engine_version = std::string(kVersion),
          .flags_hash = memory_flags_hash(model),
          .kernel = kernel_,
          .driver = driver_};
}

void LearnedBook::open(const ModelConfig& model) {
  const auto rows = store_.learned_of_weights(weights_identity(weights_of(model)));
  if (!rows.ok()) return log::warning("what was learned is not known: " + rows.error().message);
  for (const LearnedRow& row : *rows) known_[row.key] = row.numbers;
}

budget::Profile LearnedBook::profile(const ModelConfig& model, budget::Profile otherwise) const {
  const auto at = known_.find(key_of(model));
  if (at == known_.end()) return otherwise;
  const LearnedNumbers& known = at->second;
  otherwise.peak_bytes = std::max(known.load_peak_bytes, known.post_load_peak_bytes);
  otherwise.steady_bytes = known.steady_bytes;
  return otherwise;
}

std::optional<budget::Profile> LearnedBook::known_good(const ModelConfig& model,
                                                       const budget::Profile& wanted) const {
  const LearnedKey key = key_of(model);
  std::optional<budget::Profile> best;
  for (const auto& [other, numbers] : known_) {
    const bool same = other.weights == key.weights && other.engine_version == key.engine_version &&
                      other.kernel == key.kernel && other.driver == key.driver;
    const int64_t peak = std::max(numbers.load_peak_bytes, numbers.post_load_peak_bytes);
    if (!same || other == key || numbers.kv_bytes == 0 || peak >= wanted.peak_bytes) continue;
    if (best.has_value() && best->peak_bytes >= peak) continue;
    best = {.name = "known good: KV " + budget::size_text(numbers.kv_bytes),
            .kv_bytes = numbers.kv_bytes,
            .slots = model.slots,
            .peak_bytes = peak,
            .steady_bytes = numbers.steady_bytes};
  }
  return best;
}

void LearnedBook::learn(const ModelConfig& model, const LearnedNumbers& run) {
  const LearnedKey key = key_of(model);
  // The same run again, with more to tell: combined with what was known before it.
  const auto [before, first] = before_run_.try_emplace(key, known_[key]);
  LearnedNumbers now = before->second.runs == 0 ? run : combine(before->second, run);
  now.runs = before->second.runs + 1;
  now.updated_unix_s = clock_.unix_seconds();
  known_[key] = now;
  if (!store_.put_learned({.key = key, .numbers = now})) {
    log::warning("learned numbers wait for the store no longer: its queue is full");
  }
}

}  // namespace tandem::service
