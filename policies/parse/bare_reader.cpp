// Content that is nothing but calls, without a marker (R12): JSON objects, a JSON array where a call
// was demanded, Gemma's call:NAME{...}, and any of the JSON forms in one Markdown fence. All of it is
// held until something that is no call makes text of it, or the answer ends.
#include <array>
#include <utility>

#include "policies/parse/call_reader.h"
#include "policies/parse/spans.h"

namespace tandem::policies {
namespace {

constexpr std::string_view kFence = "```";
constexpr std::string_view kFenceWord = "json";
constexpr std::string_view kGemmaWord = "call:";

class BareCallsReader final : public CallReader {
 public:
  explicit BareCallsReader(const ReaderContext& context) : context_(context) {}

  ReadStep step(std::string_view held) override {
    const char c = held.back();
    switch (phase_) {
      case Phase::begin:
        return step_begin(held, c);
      case Phase::fence:
        if (c != '`') return no_call(held);
        return ++ticks_ == kFence.size() ? go(Phase::fence_word) : ReadStep::more;
      case Phase::fence_word:
        return step_fence_word(held, c);
      case Phase::word:
        word_.push_back(c);
        if (word_ == kGemmaWord) return open_unit(gemma_call_reader(context_, true));
        return kGemmaWord.substr(0, word_.size()) == word_ ? ReadStep::more : no_call(held);
      case Phase::unit:
        return step_unit(held);
      case Phase::between:
        return step_between(held, c);
      case Phase::tag:
        return step_tag(held, c);
      case Phase::fence_end:
        if (c != '`') return no_call(held);
        return ++ticks_ == kFence.size() ? go(Phase::closed) : ReadStep::more;
      case Phase::closed:
        return is_space_byte(c) ? ReadStep::more : no_call(held);
    }
    return no_call(held);
  }

  ReadStep finish(std::string_view held, EngineFinish reason) override {
    if (phase_ == Phase::unit) {
      ReadStep step = unit_->finish(held, reason);
      if (list_ && !calls.empty()) step = ReadStep::cut;  // what it is was said before
      if (step != ReadStep::cut || reason == EngineFinish::stop) calls.clear();
      replay = step == ReadStep::cut ? 0 : held.size();
      return step == ReadStep::cut ? step : ReadStep::text;
    }
    const bool in_gap = phase_ == Phase::between || phase_ == Phase::fence_end ||
                        phase_ == Phase::closed;
    if (!in_gap || calls.empty()) return no_call(held);
    replay = 0;
    if (list_ && !list_closed_) return ReadStep::cut;
    return ReadStep::done;
  }

 private:
  enum class Phase : uint8_t {
    begin,
    fence,       // in the opening fence
    fence_word,  // behind it
    word,        // in call:
    unit,
    between,
    tag,         // a marker behind a call
    fence_end,
    closed
  };

  ReadStep go(Phase phase) {
    phase_ = phase;
    return ReadStep::more;
  }
  ReadStep no_call(std::string_view held) {
    calls.clear();
    replay = held.size();
    return ReadStep::text;
  }
  ReadStep open_unit(std::unique_ptr<CallReader> unit) {
    unit_ = std::move(unit);
    return go(Phase::unit);
  }

  ReadStep step_begin(std::string_view held, char c) {
    if (is_space_byte(c)) return ReadStep::more;
    if (context_.syntax == ToolSyntax::gemma4 && c == kGemmaWord.front()) {
      word_ = c;
      return go(Phase::word);
    }
    if (!reads_json()) return no_call(held);
    if (c == '`' && !fenced_) {
      fenced_ = true;
      ticks_ = 1;
      return go(Phase::fence);
    }
    if (c == '[' && context_.forced && !list_) {
      list_ = true;
      return go(Phase::between);
    }
    if (c != '{') return no_call(held);
    open_unit(json_call_reader(context_, true));
    return step_unit(held);
  }

  [[nodiscard]] bool reads_json() const {
    return context_.forced || context_.syntax == ToolSyntax::hermes ||
           context_.syntax == ToolSyntax::llama3;
  }

  ReadStep step_fence_word(std::string_view held, char c) {
    if (word_.size() < kFenceWord.size() && c == kFenceWord[word_.size()]) {
      word_.push_back(c);
      return ReadStep::more;
    }
    if (!word_.empty() && word_.size() < kFenceWord.size()) return no_call(held);
    phase_ = Phase::begin;
    return step_begin(held, c);
  }

  ReadStep step_unit(std::string_view held) {
    const ReadStep step = unit_->step(held);
    if (step == ReadStep::more) return step;
    if (step == ReadStep::unreadable) {
      calls.clear();
      replay = 0;
      return step;
    }
    if (step == ReadStep::text) return no_call(held);
    for (ReadCall& call : unit_->calls) calls.push_back(std::move(call));
    // Llama 3 alone may go on with prose: nothing is left to wait for.
    if (context_.syntax == ToolSyntax::llama3 && !fenced_ && !list_) {
      replay = 0;
      return ReadStep::done;
    }
    return go(Phase::between);
  }

  ReadStep step_between(std::string_view held, char c) {
    if (is_space_byte(c)) return ReadStep::more;
    if (list_ && !list_closed_ && c == ',') return ReadStep::more;
    if (list_ && !list_closed_ && c == ']') {
      list_closed_ = true;
      return calls.empty() ? no_call(held) : ReadStep::more;
    }
    if (c == ';' && context_.syntax == ToolSyntax::llama3) return ReadStep::more;
    if (fenced_ && c == '`') {
      ticks_ = 1;
      return go(Phase::fence_end);
    }
    if (list_closed_) return no_call(held);
    if (c == '{' && reads_json()) {
      open_unit(json_call_reader(context_, true));
      return step_unit(held);
    }
    if (c == kGemmaWord.front() && context_.syntax == ToolSyntax::gemma4 && !list_) {
      word_ = c;
      return go(Phase::word);
    }
    if (c == '<' && !fenced_ && !list_ && !calls.empty()) {
      word_ = c;
      return go(Phase::tag);
    }
    return no_call(held);
  }

  // Markers of a call that lost its opener, or the opener of the next one.
  ReadStep step_tag(std::string_view held, char c) {
    static constexpr std::array<std::string_view, 2> kHermes = {"</tool_call>", "<tool_call>"};
    static constexpr std::array<std::string_view, 2> kGemma = {"<tool_call|>", "<|tool_call>"};
    const auto& words = context_.syntax == ToolSyntax::gemma4 ? kGemma : kHermes;
    word_.push_back(c);
    if (word_ == words[0]) return go(Phase::between);
    if (word_ == words[1]) {
      replay = word_.size();
      return ReadStep::done;
    }
    return begins_one_of(word_, words) ? ReadStep::more : no_call(held);
  }

  const ReaderContext& context_;
  Phase phase_ = Phase::begin;
  std::unique_ptr<CallReader> unit_;
  std::string word_;
  size_t ticks_ = 0;
  bool fenced_ = false;
  bool list_ = false;
  bool list_closed_ = false;
};

}  // namespace

std::unique_ptr<CallReader> bare_calls_reader(const ReaderContext& context) {
  return std::make_unique<BareCallsReader>(context);
}

}  // namespace tandem::policies
