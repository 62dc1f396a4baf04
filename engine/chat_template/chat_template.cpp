#include "engine/chat_template/chat_template.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/chat_template/evaluator.h"
#include "engine/chat_template/lexer.h"
#include "engine/chat_template/parser.h"

namespace tandem::engine {
namespace {

std::vector<ByteRange> client_ranges(const TplStr& text) {
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    if (!text.marked(i)) continue;
    if (!ranges.empty() && ranges.back().end == i) {
      ++ranges.back().end;
    } else {
      ranges.push_back({.begin = i, .end = i + 1});
    }
  }
  return ranges;
}

void add_request(TplHeap& heap, const ChatTemplateInput& input, TplScope& scope) {
  TplValue messages = heap.from_json(input.messages);
  if (messages.is(TplKind::list)) {
    for (size_t i = 0; i < messages.list->items.size(); ++i) {
      const TplValue& message = messages.list->items[i];
      if (message.is(TplKind::dict)) message.dict->message = i;
    }
  }
  scope.set("bos_token", heap.string({.bytes = input.bos_token}));
  scope.set("eos_token", heap.string({.bytes = input.eos_token}));
  if (input.variables.is_object()) {
    for (const auto& [name, value] : input.variables.as_object()) {
      scope.set(name, heap.from_json(value));
    }
  }
  scope.set("messages", messages);
  scope.set("tools", heap.from_json(input.tools));
  scope.set("add_generation_prompt", TplValue::of(input.add_generation_prompt));
}

}  // namespace

struct ChatTemplate::Parsed {
  ChatTemplateLimits limits;
  TplBody body;
  std::set<std::string, std::less<>> names;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source,
                                         const ChatTemplateLimits& limits) {
  if (source.size() > limits.template_bytes_max) {
    return make_error(Errc::too_large, "chat template of " + std::to_string(source.size()) +
                                           " bytes, the limit is " +
                                           std::to_string(limits.template_bytes_max));
  }
  auto parsed = std::make_unique<Parsed>();
  parsed->limits = limits;
  TRY_ASSIGN(std::vector<TplToken> tokens, tpl_lex(source));
  for (const TplToken& token : tokens) {
    if (token.kind == TplTokenKind::name) parsed->names.insert(token.text);
  }
  TplParser parser(std::move(tokens), limits.ast_depth_max);
  TRY_ASSIGN(parsed->body, parser.parse_template());
  return ChatTemplate(std::move(parsed));
}

Result<RenderedPrompt> ChatTemplate::render(const ChatTemplateInput& input) const {
  TplHeap heap(parsed_->limits);
  TplScope* globals = heap.scope(nullptr);
  tpl_add_globals(*globals);
  add_request(heap, input, *globals);
  TplEval eval(heap, input.now_unix_s);
  TRY(eval.run(parsed_->body, *globals));
  const TplStr text = eval.output().view();
  return RenderedPrompt{.text = std::string(text.bytes),
                        .client_ranges = client_ranges(text),
                        .message_ends = eval.message_ends()};
}

bool ChatTemplate::mentions(std::string_view variable) const {
  return parsed_->names.find(variable) != parsed_->names.end();
}

}  // namespace tandem::engine
