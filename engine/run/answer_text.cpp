#include "engine/run/answer_text.h"

#include <utility>

namespace tandem::engine {
namespace {

Result<policies::ParseOptions> options_from(protocol::AnswerFormat format,
                                            std::vector<std::string> stop) {
  policies::ParseOptions options;
  const auto syntax = policies::tool_syntax(format.syntax);
  if (!syntax) {
    return make_error(Errc::invalid_argument, "unknown syntax '" + format.syntax + "'",
                      "format.syntax");
  }
  options.syntax = *syntax;
  options.thinking_open = format.thinking_open;
  options.tools = policies::declared_tools(std::move(format.tools));
  options.choice = policies::call_choice(&format.tool_choice);
  options.parallel_calls = format.parallel_calls;
  options.stop = std::move(stop);
  options.nine_character_ids = format.nine_character_ids;
  options.id_seed = std::move(format.id_seed);
  for (const int32_t rule : format.rules_off) {
    if (rule < 1 || rule >= policies::kRules) {
      return make_error(Errc::invalid_argument, "rule " + std::to_string(rule), "format.rules_off");
    }
    options.off.set(static_cast<size_t>(rule));
  }
  return options;
}

protocol::Event event_from(policies::AnswerEvent& event) {
  if (event.part != policies::AnswerPart::call) {
    return {protocol::ContentEvent{.text = std::move(event.text),
                                   .token = protocol::kNoToken,
                                   .reasoning = event.part == policies::AnswerPart::reasoning,
                                   .score = {}}};
  }
  return {protocol::ToolCallEvent{.index = event.call.index,
                                  .id = std::move(event.call.id),
                                  .name = std::move(event.call.name),
                                  .arguments = std::move(event.call.arguments)}};
}

protocol::FinishReason reason_from(const std::string& name) {
  if (name == "tool_calls") return protocol::FinishReason::tool_calls;
  return name == "length" ? protocol::FinishReason::length : protocol::FinishReason::stop;
}

}  // namespace

Result<AnswerText> AnswerText::create(protocol::Submit& submit, const TextSide& text) {
  TRY_ASSIGN(StopMatcher stops, StopMatcher::create(submit.stop));
  AnswerText out(text.make_decoder(submit.keep_special), std::move(stops), std::move(submit.stop));
  if (!submit.format) return out;
  const bool begins = submit.format->thinking_begins;
  TRY_ASSIGN(policies::ParseOptions options,
             options_from(*std::exchange(submit.format, std::nullopt),
                          std::exchange(out.stop_texts_, {})));
  if (!options.off[24]) {
    out.thought_end_ =
        policies::thought_end(options.syntax, options.choice == policies::CallChoice::forced);
    if (begins && !options.thinking_open) out.thought_start_ = policies::thought_start(options.syntax);
  }
  out.thinking_open_ = options.thinking_open && !out.thought_end_.marker.empty();
  out.parser_.emplace(std::move(options));
  return out;
}

AnswerStep AnswerText::add(int32_t token) { return read(decoder_->add(token)); }

AnswerStep AnswerText::read(const std::string& text) {
  AnswerStep step;
  if (!parser_) {
    StopMatcher::Step passed = stops_.push(text);
    step.text = std::move(passed.text);
    step.stopped = passed.stop.has_value();
    if (passed.stop) stop_sequence_ = stop_texts_[*passed.stop];
    return step;
  }
  step.reasoning = parser_->in_reasoning();
  policies::AnswerEvents& events = parser_->feed(text);
  step.reasoning = step.reasoning || parser_->in_reasoning();
  size_t first = 0;
  if (!events.empty() && events[0].part != policies::AnswerPart::call) {
    step.text = std::move(events[0].text);
    step.reasoning = events[0].part == policies::AnswerPart::reasoning;
    first = 1;
  }
  for (size_t i = first; i < events.size(); ++i) step.more.push_back(event_from(events[i]));
  step.stopped = parser_->stopped();
  if (step.stopped) stop_sequence_ = parser_->stop_sequence();
  return step;
}

AnswerRest AnswerText::finish(protocol::FinishReason reason) {
  AnswerRest rest;
  rest.reason = reason;
  if (!parser_) {
    if (stops_.stopped()) return rest;
    AnswerStep last = read(decoder_->flush());
    rest.text = std::move(last.text) + stops_.flush();
    const bool completed = reason == protocol::FinishReason::length;
    if (last.stopped && completed) rest.reason = protocol::FinishReason::stop;
    return rest;
  }
  if (reason == protocol::FinishReason::cancelled) return rest;
  policies::AnswerEvents events = parser_->feed(decoder_->flush());
  policies::AnswerEnd end = parser_->finish(reason == protocol::FinishReason::length
                                                ? policies::EngineFinish::length
                                                : policies::EngineFinish::stop);
  if (parser_->stopped()) stop_sequence_ = parser_->stop_sequence();
  for (policies::AnswerEvent& event : end.events) events.push_back(std::move(event));
  if (!events.empty() && events.back().part == policies::AnswerPart::content) {
    rest.text = std::move(events.back().text);
    events.pop_back();
  }
  for (policies::AnswerEvent& event : events) rest.more.push_back(event_from(event));
  rest.reason = reason_from(end.finish);
  rest.call_missing = end.call_missing;
  for (policies::ReceiptEntry& entry : end.warnings) {
    rest.warnings.push_back({.rule = entry.rule,
                             .code = std::move(entry.code),
                             .detail = std::move(entry.detail)});
  }
  return rest;
}

}  // namespace tandem::engine
