// Families with think markers: thought first, then content (R24), and calls that stand in the thought
// (R16).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "policies/parse/content_scanner.h"
#include "policies/parse/reader.h"

namespace tandem::policies {
namespace {

// A call in the thought counts only if nothing follows; until that is known it goes here.
class Trial final : public CallTarget {
 public:
  void text(std::string_view) override { draft = true; }
  void call(ReadCall call) override { calls.push_back(std::move(call)); }
  void truncated_call() override { draft = true; }
  void unparsed_call() override { draft = true; }

  bool draft = false;
  std::vector<ReadCall> calls;
};

class MarkerReader final : public AnswerReader {
 public:
  MarkerReader(const ParseOptions& options, bool calls, AnswerSink& sink);

  void feed(std::string_view text) override;
  void finish(EngineFinish reason) override;
  [[nodiscard]] bool in_reasoning() const override {
    return state_ != State::start && state_ != State::content_start && state_ != State::content;
  }

 private:
  enum class State : uint8_t {
    start,          // the block may still be opened
    thought_start,  // the prompt opened it; the answer may open it once more
    thought,
    marker,         // in the thought, perhaps a marker
    trial,          // in the thought, behind the opener of a call
    closed,         // the block ended right behind a call
    content_start,  // behind a closer: more of them may come
    content
  };

  void step(char c);
  void push(char c);
  void step_start(char c);
  void step_thought_start(char c);
  void step_thought(char c);
  void step_marker(char c);
  void step_trial(char c);
  void step_closed(char c);
  void step_content_start(char c);
  void think(std::string_view text);
  void replay(std::string_view bytes);
  void begin_trial();
  void end_draft(size_t tail);
  void begin_content_start();
  void begin_content();
  void content(std::string_view text);

  const ParseOptions& options_;
  const bool calls_;
  AnswerSink& sink_;
  const ThinkMarkers markers_;
  const ReaderContext context_;
  std::vector<std::string_view> openers_;  // of calls in the thought
  std::vector<std::string_view> noise_;
  ByteSet first_bytes_;                    // of markers in the thought
  State state_ = State::start;
  bool line_start_ = true;
  std::string held_;
  std::string replay_;  // bytes to read again, the next one last
  std::string after_;   // closed: a marker that is on its way
  size_t close_matched_ = 0;
  Trial trial_;
  std::unique_ptr<ContentScanner> trial_scanner_;
  std::unique_ptr<ContentScanner> scanner_;
};

MarkerReader::MarkerReader(const ParseOptions& options, bool calls, AnswerSink& sink)
    : options_(options),
      calls_(calls),
      sink_(sink),
      markers_(options.off[24] ? ThinkMarkers() : think_markers(options.syntax)),
      context_{options.tools, options.syntax, options.choice == CallChoice::forced,
               markers_.close},
      noise_(noise_markers(options.syntax)) {
  if (markers_.open.empty()) {
    begin_content();
    return;
  }
  if (options.thinking_open) state_ = State::thought_start;
  first_bytes_.add(markers_.close.front());
  if (!calls || options.off[16]) return;
  openers_ = call_openers(options.syntax);
  for (const std::string_view opener : openers_) first_bytes_.add(opener.front());
}

void MarkerReader::feed(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (state_ == State::content) {
      content(text.substr(at));
      return;
    }
    if (state_ == State::thought) {
      const size_t end = first_bytes_.find_in(text, at);
      think(text.substr(at, end - at));
      if (end == text.size()) return;
      at = end;
    }
    push(text[at++]);
  }
}

void MarkerReader::push(char c) {
  step(c);
  while (!replay_.empty()) {
    const char again = replay_.back();
    replay_.pop_back();
    step(again);
  }
}

void MarkerReader::step(char c) {
  switch (state_) {
    case State::start:
      return step_start(c);
    case State::thought_start:
      return step_thought_start(c);
    case State::thought:
      return step_thought(c);
    case State::marker:
      return step_marker(c);
    case State::trial:
      return step_trial(c);
    case State::closed:
      return step_closed(c);
    case State::content_start:
      return step_content_start(c);
    case State::content:
      return content({&c, 1});
  }
}

void MarkerReader::think(std::string_view text) {
  if (text.empty()) return;
  line_start_ = text.back() == '\n';
  sink_.reasoning(text);
}

void MarkerReader::replay(std::string_view bytes) { replay_.append(bytes.rbegin(), bytes.rend()); }

void MarkerReader::step_start(char c) {
  held_.push_back(c);
  const size_t begin = std::min(held_.find_first_not_of(" \t\r\n\v\f"), held_.size());
  const std::string_view word = std::string_view(held_).substr(begin);
  if (word == markers_.open) {
    held_.clear();
    state_ = State::thought;
  } else if (word == markers_.close) {
    begin_content_start();
  } else if (!begins_one_of(word, std::vector{markers_.open, markers_.close})) {
    begin_content();
  }
}

void MarkerReader::step_thought_start(char c) {
  if (held_.empty() && is_space_byte(c)) return;
  held_.push_back(c);
  if (held_ == markers_.open) {
    held_.clear();
    state_ = State::thought;
    return;
  }
  if (markers_.open.substr(0, held_.size()) == held_) return;
  state_ = State::thought;
  replay(std::exchange(held_, std::string()));
}

void MarkerReader::step_thought(char c) {
  if (!first_bytes_.has(c)) {
    think({&c, 1});
    return;
  }
  held_ = c;
  state_ = State::marker;
}

void MarkerReader::step_marker(char c) {
  held_.push_back(c);
  if (held_ == markers_.close) {
    begin_content_start();
    return;
  }
  for (const std::string_view opener : openers_) {
    if (held_ != opener || (opener == kLineOpener && !line_start_)) continue;
    begin_trial();
    return;
  }
  const bool open = begins_one_of(held_, std::vector{markers_.close}) ||
                    (begins_one_of(held_, openers_) && held_ != kLineOpener);
  if (open) return;
  state_ = State::thought;
  replay_.push_back(c);
  held_.pop_back();
  think(std::exchange(held_, std::string()));
}

void MarkerReader::begin_trial() {
  state_ = State::trial;
  close_matched_ = 0;
  trial_ = Trial();
  ScannerOptions options;
  options.held_bytes_max = options_.held_bytes_max;
  trial_scanner_ = std::make_unique<ContentScanner>(context_, options, trial_);
  trial_scanner_->feed(held_);
}

void MarkerReader::step_trial(char c) {
  held_.push_back(c);
  if (c != markers_.close[close_matched_]) close_matched_ = 0;
  if (c == markers_.close[close_matched_]) ++close_matched_;
  trial_scanner_->feed({&c, 1});
  if (close_matched_ == markers_.close.size()) {  // the first closer ends the block, whatever is open
    held_.resize(held_.size() - close_matched_);
    if (!trial_.draft && !trial_.calls.empty() && trial_scanner_->behind_call()) {
      after_.clear();
      state_ = State::closed;
      return;
    }
    think(held_);
    begin_content_start();
    return;
  }
  if (trial_.draft) end_draft(std::max(trial_scanner_->undecided(), close_matched_));
}

void MarkerReader::end_draft(size_t tail) {
  const std::string held = std::exchange(held_, std::string());
  state_ = State::thought;
  think(std::string_view(held).substr(0, held.size() - tail));
  replay(std::string_view(held).substr(held.size() - tail));
}

void MarkerReader::step_closed(char c) {
  if (after_.empty() && is_space_byte(c)) return;
  after_.push_back(c);
  for (const std::string_view word : noise_) {
    if (after_ != word) continue;
    after_.clear();
    return;
  }
  if (begins_one_of(after_, noise_)) return;
  think(held_);  // something follows: it was a draft
  begin_content_start();
  replay(std::exchange(after_, std::string()));
}

void MarkerReader::begin_content_start() {
  held_.clear();
  sink_.drop_content_space();
  state_ = State::content_start;
}

void MarkerReader::step_content_start(char c) {
  if (held_.empty() && is_space_byte(c)) return;
  held_.push_back(c);
  if (held_ == markers_.close) {
    held_.clear();
  } else if (!begins_one_of(held_, std::vector{markers_.close})) {
    begin_content();
  }
}

void MarkerReader::begin_content() {
  state_ = State::content;
  if (calls_) {
    ScannerOptions options;
    options.bare = true;
    options.held_bytes_max = options_.held_bytes_max;
    scanner_ = std::make_unique<ContentScanner>(context_, options, sink_);
  }
  content(std::exchange(held_, std::string()));
}

void MarkerReader::content(std::string_view text) {
  if (scanner_ != nullptr) {
    scanner_->feed(text);
  } else {
    sink_.text(text);
  }
}

void MarkerReader::finish(EngineFinish reason) {
  if (state_ == State::trial) {
    trial_scanner_->finish(reason);
    const bool real = reason == EngineFinish::stop && !trial_.draft && !trial_.calls.empty();
    if (!real) think(held_);
    held_.clear();
    if (!real) return;
    for (ReadCall& call : trial_.calls) sink_.call(std::move(call));
    return;
  }
  if (state_ == State::closed) {
    if (reason == EngineFinish::stop && after_.size() != 1) {  // a closer may be cut
      for (ReadCall& call : trial_.calls) sink_.call(std::move(call));
      return;
    }
    think(held_);
    begin_content_start();
    held_ = after_;
  }
  if (state_ == State::marker || state_ == State::thought_start) {
    think(held_);
    return;
  }
  if (state_ == State::start || state_ == State::content_start) begin_content();
  if (scanner_ != nullptr) scanner_->finish(reason);
}

}  // namespace

std::unique_ptr<AnswerReader> marker_reader(const ParseOptions& options, bool calls,
                                            AnswerSink& sink) {
  return std::make_unique<MarkerReader>(options, calls, sink);
}

}  // namespace tandem::policies
