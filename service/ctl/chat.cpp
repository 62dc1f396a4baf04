#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "service/ctl/commands.h"
#include "service/ctl/http_client.h"

namespace tandem::service::ctl {
namespace {

struct Session {
  std::string address;
  std::string key;
};

// --url with --key (or TANDEM_KEY) reaches any server; else tandemd gives a key over the admin socket.
Result<Session> open_session(const Context& context) {
  const Arguments& arguments = context.arguments();
  if (arguments.has("--url")) {
    const char* from_environment = std::getenv("TANDEM_KEY");
    return Session{.address = arguments.flag("--url"),
                   .key = arguments.flag("--key", from_environment == nullptr ? "" : from_environment)};
  }
  TRY_ASSIGN(const Json answer, context.ask("session"));
  const Json* address = answer.find("address");
  const Json* key = answer.find("key");
  if (address == nullptr || !address->is_string() || key == nullptr || !key->is_string()) {
    return make_error(Errc::corrupt, "tandemd gave no session");
  }
  return Session{.address = address->as_string(), .key = key->as_string()};
}

Json message(const char* role, const std::string& content) {
  return Json::object({{"role", role}, {"content", content}});
}

Result<Json> request_body(const Arguments& arguments, const Json& messages, bool stream) {
  Json body = Json::object();
  body.set("model", arguments.flag("--model", "default")).set("messages", messages);
  body.set("stream", stream);
  if (arguments.has("--max-tokens")) {
    const std::string text = arguments.flag("--max-tokens");
    int64_t tokens = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), tokens);
    if (code != std::errc() || end != text.data() + text.size() || tokens < 1) {
      return make_error(Errc::invalid_argument, "--max-tokens needs a number from 1");
    }
    body.set("max_tokens", tokens);
  }
  if (arguments.has("--temperature")) {
    const auto value = parse_json(arguments.flag("--temperature"));
    if (!value.ok() || !value->is_number()) {
      return make_error(Errc::invalid_argument, "--temperature needs a number");
    }
    body.set("temperature", *value);
  }
  return body;
}

// {"error": {"message": ...}}
std::string error_text(const Json& json) {
  const Json* error = json.find("error");
  const Json* text = error == nullptr ? nullptr : error->find("message");
  return text != nullptr && text->is_string() ? text->as_string() : "";
}

Error refusal(const HttpAnswer& answer) {
  const auto json = parse_json(answer.body);
  std::string text = json.ok() ? error_text(*json) : "";
  if (text.empty()) text = "the server answered with status " + std::to_string(answer.status);
  return make_error(Errc::unavailable, std::move(text));
}

const Json* first_delta(const Json& json) {
  const Json* choices = json.find("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return nullptr;
  return choices->as_array()[0].find("delta");
}

class AnswerPrinter {
 public:
  void on_data(std::string_view data) {
    if (data == "[DONE]") {
      done_ = true;
      return;
    }
    const auto json = parse_json(data);
    if (!json.ok()) return;
    if (const std::string text = error_text(*json); !text.empty()) error_ = text;
    const Json* delta = first_delta(*json);
    const Json* content = delta == nullptr ? nullptr : delta->find("content");
    if (content == nullptr || !content->is_string()) return;
    text_ += content->as_string();
    std::fputs(content->as_string().c_str(), stdout);
    std::fflush(stdout);
  }
  [[nodiscard]] bool failed() const { return !error_.empty(); }
  // The whole text, or why it is not whole.
  Result<std::string> result() && {
    if (!error_.empty()) return make_error(Errc::unavailable, error_);
    if (!done_) return make_error(Errc::unavailable, "the answer was cut off");
    return std::move(text_);
  }

 private:
  std::string text_;
  std::string error_;
  bool done_ = false;
};

Result<std::string> ask_streaming(const Session& session, const Json& body) {
  AnswerPrinter printer;
  SseReader events([&](std::string_view data) { printer.on_data(data); });
  const auto answer = http_post(session.address, "/v1/chat/completions", session.key, body.dump(),
                                [&](std::string_view bytes) { events.feed(bytes); });
  if (answer.ok() && answer->status != 200) return refusal(*answer);
  if (!answer.ok() && !printer.failed()) return answer.error();
  // A failed answer ends with an error event and then without its last chunk: the event says why.
  std::fputs("\n", stdout);
  return std::move(printer).result();
}

int print_whole(const Session& session, const Json& body) {
  std::string text;
  const auto answer = http_post(session.address, "/v1/chat/completions", session.key, body.dump(),
                                [&](std::string_view bytes) { text += bytes; });
  if (!answer.ok()) return report(answer.error());
  if (answer->status != 200) return report(refusal(*answer));
  std::printf("%s\n", text.c_str());
  return kDone;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

int run_interactive(const Context& context, const Session& session, const Json& first) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) std::puts("Ctrl-D ends, /clear forgets the conversation.");
  Json messages = first;
  std::string line;
  int code = kDone;
  while (true) {
    if (terminal) std::fputs("> ", stdout);
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    if (line == "/clear") {
      messages = first;
      continue;
    }
    messages.push_back(message("user", line));
    const auto body = request_body(context.arguments(), messages, true);
    if (!body.ok()) return report(body.error());
    const auto answer = ask_streaming(session, *body);
    if (!answer.ok()) {
      // The question stays out of the conversation: it had no answer.
      messages.as_array().pop_back();
      code = report(answer.error());
      continue;
    }
    messages.push_back(message("assistant", *answer));
    code = kDone;
  }
  return code;
}

}  // namespace

int run_chat(const Context& context) {
  const Arguments& arguments = context.arguments();
  const auto session = open_session(context);
  if (!session.ok()) return report(session.error());
  Json messages = Json::array();
  if (arguments.has("--system")) messages.push_back(message("system", arguments.flag("--system")));
  if (arguments.positional.empty()) {
    if (arguments.json) return report(make_error(Errc::invalid_argument, "--json needs a text"));
    return run_interactive(context, *session, messages);
  }
  messages.push_back(message("user", joined(arguments.positional)));
  const auto body = request_body(arguments, messages, !arguments.json);
  if (!body.ok()) return report(body.error());
  if (arguments.json) return print_whole(*session, *body);
  const auto answer = ask_streaming(*session, *body);
  return answer.ok() ? kDone : report(answer.error());
}

}  // namespace tandem::service::ctl
