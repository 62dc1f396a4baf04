#include "service/model_trial.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::service {
namespace {

using policies::FactSource;
using policies::ModelProfile;
using policies::ProfileFact;
using policies::SystemPlacement;
using policies::ThinkingSwitch;
using policies::ToolSyntax;

constexpr const char* kTitleQuestion =
    "Write a short title for this conversation: Tom asked us to review the budget before Wednesday "
    "because the invoice is late.";
constexpr int64_t kTitleTokens = 40;
constexpr int64_t kFewTokens = 8;
constexpr std::string_view kAuto = "auto";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

Json message(const char* role, const char* content) {
  return Json::object({{"role", Json(role)}, {"content", Json(content)}});
}

Json request_of(Json::Array messages, int64_t tokens) {
  return Json::object({{"messages", Json(std::move(messages))}, {"max_tokens", Json(tokens)}});
}

Json title_request() { return request_of({message("user", kTitleQuestion)}, kTitleTokens); }

Json clock_tool() {
  Json zone = Json::object({{"type", Json("string")}});
  Json schema = Json::object({{"type", Json("object")}});
  schema.set("properties", Json::object({{"zone", std::move(zone)}}));
  Json function = Json::object({{"name", Json("get_time")},
                                {"description", Json("Tells the time")},
                                {"parameters", std::move(schema)}});
  Json tool = Json::object({{"type", Json("function")}, {"function", std::move(function)}});
  return Json(Json::Array{std::move(tool)});
}

Json tool_request() {
  Json request = request_of({message("user", "What time is it?")}, kFewTokens);
  request.set("tools", clock_tool());
  return request;
}

Json history_request() {
  Json function = Json::object({{"name", Json("get_time")}, {"arguments", Json("{}")}});
  Json call = Json::object({{"id", Json("call00001")}, {"type", Json("function")}});
  call.set("function", std::move(function));
  Json head = message("assistant", "");
  head.set("tool_calls", Json(Json::Array{std::move(call)}));
  Json result = message("tool", "12:30");
  result.set("tool_call_id", Json("call00001"));
  Json request = request_of(
      {message("user", "What time is it?"), std::move(head), std::move(result)}, kFewTokens);
  request.set("tools", clock_tool());
  return request;
}

class Trial {
 public:
  Trial(const ModelConfig& configured, const policies::SanitizeSettings& settings,
        const AskModel& ask, ModelProfile& profile, std::vector<ProfileFact>& facts)
      : configured_(configured), settings_(settings), ask_(ask), profile_(profile), facts_(facts) {}

  void run() {
    try_late_system();
    try_system_only();
    try_tools();
    try_history();
    try_thinking_off();
    try_title();
    try_effort();
  }

 private:
  // What an answer must have.
  enum class Wants : uint8_t { any, text, content, content_only };
  struct Tried {
    std::string why;      // empty: it works
    bool known = true;    // false: there was no answer to be had
    [[nodiscard]] bool fails() const { return known && !why.empty(); }
  };

  void try_late_system();
  void try_system_only();
  void try_tools();
  void try_history();
  void try_thinking_off();
  void try_title();
  void try_effort();

  Tried ask(Json request, Wants wants);
  Result<TrialAnswer> send(Json request) const;
  // Tries once more with another profile, which stays where it helps.
  template <typename Change>
  bool helps(const Change& change, const Json& request, Wants wants, Tried& tried) {
    if (!tried.fails()) return false;
    const ModelProfile before = profile_;
    change(profile_);
    const Tried again = ask(request, wants);
    if (again.known && !again.fails()) return true;
    profile_ = before;
    return false;
  }
  void add(const char* name, const Tried& tried, const char* instead = nullptr);
  void replace(std::string_view name, const char* value);

  const ModelConfig& configured_;
  const policies::SanitizeSettings& settings_;
  const AskModel& ask_;
  ModelProfile& profile_;
  std::vector<ProfileFact>& facts_;
  std::optional<std::string> silent_;  // why nobody is asked any more
};

Result<TrialAnswer> Trial::send(Json request) const {
  policies::TargetFacts target = policies::default_facts(policies::EngineKind::own);
  target.grammar_after_reasoning = profile_.prompt_opens_think;
  auto outcome = policies::sanitize(std::move(request), profile_, target, settings_);
  if (const auto* rejection = std::get_if<policies::Rejection>(&outcome)) {
    return make_error(Errc::invalid_argument, rejection->message);
  }
  const auto& sanitized = std::get<policies::Sanitized>(outcome);
  const auto field = [&](const char* key) {
    const Json* value = sanitized.send.find(key);
    return value == nullptr ? Json() : *value;
  };
  protocol::PrepareChat chat;
  chat.messages = field("messages");
  if (profile_.syntax != ToolSyntax::plain) chat.tools = field("tools");
  if (Json kwargs = field("chat_template_kwargs"); kwargs.is_object()) {
    chat.template_args = std::move(kwargs);
  }
  if (Json word = field("reasoning_effort"); word.is_string()) {
    chat.template_args.set("reasoning_effort", std::move(word));
  }
  protocol::Submit submit;
  submit.sampling.temperature = 0.0;
  const Json tokens = field("max_tokens");
  submit.max_tokens = tokens.is_integer() ? tokens.as_integer() : kTitleTokens;
  submit.keep_special = profile_.markers_are_special_tokens;
  submit.format.emplace();
  submit.format->syntax = policies::tool_syntax_name(profile_.syntax);
  submit.format->thinking_open = profile_.prompt_opens_think && sanitized.thinking;
  if (sanitized.thinking) {
    submit.answer_tokens_reserved =
        sanitized.duties.requested_max_tokens.value_or(submit.max_tokens / 2);
  }
  return ask_(chat, std::move(submit));
}

Trial::Tried Trial::ask(Json request, Wants wants) {
  if (silent_.has_value()) return {.why = *silent_, .known = false};
  const auto answer = send(std::move(request));
  if (!answer.ok()) {
    const Error& error = answer.error();
    const bool no_answer = error.code == Errc::cancelled || error.code == Errc::unavailable ||
                           error.code == Errc::exhausted;
    if (no_answer) silent_ = error.message;
    return {.why = error.message, .known = !no_answer};
  }
  const bool thinks = !is_blank(answer->reasoning);
  const bool answers = !is_blank(answer->content);
  if (wants == Wants::text && !answers && !thinks) return {.why = "empty"};
  if (wants >= Wants::content && !answers) return {.why = "empty"};
  if (wants == Wants::content_only && thinks) return {.why = "it thinks all the same"};
  return {};
}

// `instead`: what is done where it fails.
void Trial::add(const char* name, const Tried& tried, const char* instead) {
  std::string value = "yes";
  if (!tried.known) {
    value = "not tried: " + tried.why;
  } else if (tried.fails()) {
    value = "no: " + tried.why;
    if (instead != nullptr) value += std::string("; ") + instead;
  }
  facts_.push_back({name, std::move(value), FactSource::probe});
}

void Trial::replace(std::string_view name, const char* value) {
  for (ProfileFact& fact : facts_) {
    if (fact.name == name) fact = {std::string(name), value, FactSource::probe};
  }
}

void Trial::try_late_system() {
  const Json request = request_of({message("system", "Be brief."), message("user", "Hello."),
                                   message("assistant", "Hello."),
                                   message("system", "Answer in one word."), message("user", "Go on.")},
                                  kFewTokens);
  Tried tried = ask(request, Wants::text);
  const bool fixed = configured_.system_messages != kAuto;
  for (const SystemPlacement next : {SystemPlacement::leading, SystemPlacement::none}) {
    if (fixed || profile_.system >= next) continue;
    if (!helps([next](ModelProfile& profile) { profile.system = next; }, request, Wants::text, tried)) {
      continue;
    }
    const bool leading = next == SystemPlacement::leading;
    replace("system_messages", leading ? "leading" : "none");
    return add("runs_late_system", tried, "folded into the user's turns");
  }
  add("runs_late_system", tried);
}

void Trial::try_system_only() {
  const Json request = request_of({message("system", "Say hello.")}, kFewTokens);
  Tried tried = ask(request, Wants::text);
  const bool may = configured_.needs_user == kAuto && !profile_.needs_user;
  if (may && helps([](ModelProfile& profile) { profile.needs_user = true; }, request, Wants::text, tried)) {
    replace("needs_user", "yes");
    return add("runs_system_only", tried, "sent as the user's");
  }
  add("runs_system_only", tried);
}

void Trial::try_tools() {
  if (profile_.syntax == ToolSyntax::plain) {
    return add("runs_tools", {.why = "the template writes none"}, "left out, with a warning");
  }
  const Json request = tool_request();
  Tried tried = ask(request, Wants::any);
  const bool may = configured_.tool_syntax == kAuto;
  if (may && helps([](ModelProfile& profile) { profile.syntax = ToolSyntax::plain; }, request,
                   Wants::any, tried)) {
    replace("tool_syntax", "plain");
    return add("runs_tools", tried, "left out, with a warning");
  }
  add("runs_tools", tried);
}

void Trial::try_history() {
  const Json request = history_request();
  Tried tried = ask(request, Wants::any);
  if (helps([](ModelProfile& profile) { profile.tool_turns = false; }, request, Wants::any, tried)) {
    return add("runs_tool_history", tried, "written as text");
  }
  add("runs_tool_history", tried);
}

void Trial::try_thinking_off() {
  if (profile_.thinking_switch != ThinkingSwitch::enable_thinking) return;
  Json request = title_request();
  request.set("enable_thinking", Json(false));
  const Tried tried = ask(std::move(request), Wants::content_only);
  if (!tried.fails() || configured_.thinking != kAuto) return add("title_without_thinking", tried);
  // Nothing is promised that does not hold: a short call gets room for its thoughts instead (R20).
  profile_.thinking_switch = ThinkingSwitch::effort_only;
  profile_.thinks_by_default = true;
  replace("thinking", "effort_only");
  replace("thinks_by_default", "yes");
  add("title_without_thinking", tried, "it always thinks");
}

void Trial::try_title() { add("runs_title", ask(title_request(), Wants::content)); }

void Trial::try_effort() {
  if (profile_.effort_scale == policies::EffortScale::none) return;
  Json request = request_of({message("user", "Say hello.")}, kFewTokens);
  request.set("reasoning_effort", Json("low"));
  Tried tried = ask(request, Wants::any);
  const auto no_words = [](ModelProfile& profile) {
    profile.effort_scale = policies::EffortScale::none;
  };
  if (configured_.effort == kAuto && helps(no_words, request, Wants::any, tried)) {
    replace("effort", "none");
    return add("runs_effort", tried, "the words are left out, with a warning");
  }
  add("runs_effort", tried);
}

}  // namespace

void try_model(const ModelConfig& configured, const policies::SanitizeSettings& settings,
               const AskModel& ask, ModelProfile& profile, std::vector<ProfileFact>& facts) {
  Trial(configured, settings, ask, profile, facts).run();
}

}  // namespace tandem::service
