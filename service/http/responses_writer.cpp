#include "service/http/responses_writer.h"

#include <utility>
#include <variant>

namespace tandem::service {
namespace {

class ResponsesWriter final : public AnswerWriter {
 public:
  ResponsesWriter(wire::ResponseHead head, ResponseKeeping keeping)
      : created_unix_s_(head.created_unix_s),
        builder_(std::move(head)),
        keeping_(std::move(keeping)) {}

  std::string chunk(size_t, const protocol::Event& event) override {
    if (const auto* finish = std::get_if<protocol::FinishEvent>(&event.body)) {
      usage_ = finish->usage;
      finish_reason_ = protocol::finish_reason_name(finish->reason);
    }
    return builder_.add(event);
  }
  std::string tail() override {
    const bool kept = keep();
    builder_.explain(std::move(explain_));  // belongs to this answer, not to what is stored
    return builder_.end(kept);
  }
  std::string failure(const wire::ApiError& error) override { return builder_.failed(error); }
  void collect(size_t choice, const protocol::Event& event) override {
    static_cast<void>(chunk(choice, event));
  }
  Json body() override {
    static_cast<void>(builder_.end(keep()));
    return builder_.body();
  }

 private:
  bool keep() {
    if (keeping_.store == nullptr) return false;
    std::string items = std::move(keeping_.items);
    items.pop_back();  // the bracket
    for (const Json& item : builder_.output()) append_stored_item(items, item);
    items += ']';
    if (!parse_stored_items(items).ok()) return false;
    return keeping_.store->keep({.id = builder_.id(),
                                 .key_id = std::move(keeping_.key_id),
                                 .created_unix_s = created_unix_s_,
                                 .body = builder_.body().dump(),
                                 .items = std::move(items)});
  }

  const int64_t created_unix_s_;
  wire::ResponseBuilder builder_;
  ResponseKeeping keeping_;
};

}  // namespace

void append_stored_item(std::string& items, Json item) {
  Json* content = item.find("content");
  if (content != nullptr && content->is_array()) {
    for (Json& part : content->as_array()) {
      if (part.is_object()) part.erase("logprobs");
    }
  }
  if (items.size() > 1) items += ',';
  item.dump_to(items);
}

Result<Json> parse_stored_items(const std::string& items) {
  return parse_json(items, {.bytes_max = items.size()});
}

std::unique_ptr<AnswerWriter> make_responses_writer(wire::ResponseHead head,
                                                    ResponseKeeping keeping) {
  return std::make_unique<ResponsesWriter>(std::move(head), std::move(keeping));
}

}  // namespace tandem::service
