#include "service/http/answer_receipt.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace tandem::service {
namespace {

// Codes are ours, but they come from an engine as well: a label must not grow without bound.
constexpr std::string_view kCodes[] = {
    "orphan_tool_message",        "reasoning_effort_not_supported",
    "greedy_with_thinking",       "reasoning_cannot_be_switched_off",
    "param_dropped",              "reasoning_exhausted_budget",
    "empty_answer",               "invalid_json_truncated",
    "unknown_tool_name",          "schema_not_enforced_by_engine",
    "truncated_tool_call_dropped", "call_syntax_with_tool_choice_none",
    "unparsed_tool_call",         "tool_schema_not_enforced",
    "tools_not_in_template",      "retry_failed",
    "foreign_script",             "receipt_cut",
    "too_many_tool_calls",
};

std::string_view code_label(std::string_view code) {
  if (code.empty()) return code;
  code = code.substr(0, code.find(':'));  // param_dropped:NAME
  const bool known = std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
  return known ? code : "other";
}

}  // namespace

AnswerReceipt::AnswerReceipt(Metrics& metrics, Options options)
    : metrics_(metrics), options_(std::move(options)) {}

AnswerReceipt::~AnswerReceipt() {
  if (entries_.empty()) return;
  const bool warned = std::any_of(entries_.begin(), entries_.end(),
                                  [](const auto& entry) { return !entry.code.empty(); });
  const std::string line = options_.id + ", model " + options_.model + ": " + header();
  warned ? log::warning(line) : log::info(line);
}

void AnswerReceipt::add(std::vector<policies::ReceiptEntry> entries) {
  for (policies::ReceiptEntry& entry : entries) {
    metrics_
        .counter("tandem_sanitizer_changes_total",
                 "Changes of requests and warnings about answers, by rule; code is set for warnings.",
                 {{"model_name", options_.model},
                  {"rule", "R" + std::to_string(entry.rule)},
                  {"code", std::string(code_label(entry.code))}})
        .add();
    entries_.push_back(std::move(entry));
  }
}

void AnswerReceipt::count_empty_answer() {
  metrics_
      .counter("tandem_empty_content_after_reasoning_total",
               "Answers of an engine that had thoughts and no content.",
               {{"model_name", options_.model}})
      .add();
}

Json AnswerReceipt::json() const {
  return Json::object().set("receipt", policies::receipt_json(entries_));
}

}  // namespace tandem::service
