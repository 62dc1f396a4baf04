#include "policies/template_probe.h"

#include <optional>
#include <string_view>
#include <utility>

namespace tandem::policies {
namespace {

// Words that no template holds, so that finding one means that the message was printed.
constexpr std::string_view kMark = "zq7mark";
constexpr std::string_view kToolName = "zq7tool";

Json message(const char* role, std::string_view content) {
  return Json::object({{"role", Json(role)}, {"content", Json(content)}});
}

ProbeChat chat(Json::Array messages) { return ProbeChat{.messages = Json(std::move(messages))}; }

ProbeChat plain_chat() { return chat({message("user", "a")}); }

Json call(std::string_view id) {
  Json arguments = Json::object({{"key", Json("value")}});
  Json function = Json::object({{"name", Json(kToolName)}, {"arguments", std::move(arguments)}});
  return Json::object(
      {{"id", Json(id)}, {"type", Json("function")}, {"function", std::move(function)}});
}

Json tool_list() {
  Json key = Json::object({{"type", Json("string")}});
  Json schema = Json::object({{"type", Json("object")}});
  schema.set("properties", Json::object({{"key", std::move(key)}}));
  Json function = Json::object(
      {{"name", Json(kToolName)}, {"description", Json("d")}, {"parameters", std::move(schema)}});
  Json tool = Json::object({{"type", Json("function")}, {"function", std::move(function)}});
  return Json(Json::Array{std::move(tool)});
}

// One round with the calls of these ids, and an answer.
ProbeChat tool_chat(const std::vector<std::string>& ids) {
  Json::Array calls;
  for (const std::string& id : ids) calls.push_back(call(id));
  Json head = message("assistant", "");
  head.set("tool_calls", Json(std::move(calls)));
  Json::Array messages{message("user", "a"), std::move(head)};
  for (const std::string& id : ids) {
    Json result = message("tool", "r");
    result.set("tool_call_id", Json(id));
    result.set("name", Json(kToolName));
    messages.push_back(std::move(result));
  }
  ProbeChat probe = chat(std::move(messages));
  probe.tools = tool_list();
  return probe;
}

class Probe {
 public:
  Probe(ModelProfile start, const RenderProbe& render) : render_(render) {
    result_.profile = std::move(start);
  }

  Result<ProbedProfile> run() {
    TRY_ASSIGN(plain_, render_(plain_chat()));
    probe_system();
    probe_order();
    probe_thinking();
    probe_effort();
    probe_tools();
    return std::move(result_);
  }

 private:
  std::optional<std::string> text(const ProbeChat& probe) const {
    Result<std::string> rendered = render_(probe);
    if (!rendered.ok()) return std::nullopt;
    return std::move(rendered).value();
  }
  [[nodiscard]] bool prints(const ProbeChat& probe, std::string_view what) const {
    const std::optional<std::string> rendered = text(probe);
    return rendered.has_value() && rendered->find(what) != std::string::npos;
  }
  [[nodiscard]] bool renders(const ProbeChat& probe) const { return text(probe).has_value(); }
  std::optional<std::string> with_variable(const char* name, Json value) const {
    ProbeChat probe = plain_chat();
    probe.variables.set(name, std::move(value));
    return text(probe);
  }
  void found(const char* name, std::string value) {
    result_.profile.source = FactSource::probe;
    result_.facts.push_back({name, std::move(value), FactSource::probe});
  }

  void probe_system();
  void probe_order();
  void probe_thinking();
  void probe_effort();
  void probe_tools();
  void find_syntax(const std::string& prompt);

  const RenderProbe& render_;
  std::string plain_;
  ProbedProfile result_;
};

void Probe::probe_system() {
  const bool first = prints(chat({message("system", kMark), message("user", "a")}), kMark);
  const bool late =
      prints(chat({message("system", "s"), message("user", "a"), message("assistant", "b"),
                   message("system", kMark), message("user", "c")}),
             kMark);
  // A message that is left out without an error is as bad as one that raises.
  result_.profile.system = late && first ? SystemPlacement::any
                           : first       ? SystemPlacement::leading
                                         : SystemPlacement::none;
  found("system", late && first ? "any" : first ? "leading" : "none");
  if (first) {
    result_.profile.needs_user = !renders(chat({message("system", "s")}));
    found("needs_user", result_.profile.needs_user ? "yes" : "no");
  }
}

void Probe::probe_order() {
  result_.profile.alternates = !renders(chat({message("user", "a"), message("user", "b")}));
  found("alternates", result_.profile.alternates ? "yes" : "no");
}

void Probe::probe_thinking() {
  const std::optional<std::string> on = with_variable("enable_thinking", Json(true));
  const std::optional<std::string> off = with_variable("enable_thinking", Json(false));
  ModelProfile& profile = result_.profile;
  if (!on.has_value() || !off.has_value() || *on == *off) {
    if (profile.thinking_switch == ThinkingSwitch::enable_thinking) {
      profile.thinking_switch = ThinkingSwitch::none;
      profile.thinks_by_default = false;
      profile.prompt_opens_think = false;
    }
    found("thinking",
          profile.thinking_switch == ThinkingSwitch::none ? "no switch" : "effort only");
    return;
  }
  profile.thinking_switch = ThinkingSwitch::enable_thinking;
  profile.thinks_by_default = plain_ == *on;
  found("thinking", profile.thinks_by_default ? "on, enable_thinking" : "off, enable_thinking");
  const size_t end = on->find_last_not_of(" \n\t\r");
  const std::string_view tail = std::string_view(*on).substr(0, end + 1);
  const auto ends_with = [&](std::string_view marker) {
    return tail.size() >= marker.size() && tail.substr(tail.size() - marker.size()) == marker;
  };
  profile.prompt_opens_think =
      ends_with("<think>") || ends_with("<|channel>thought") || ends_with("[THINK]");
  found("prompt_opens_think", profile.prompt_opens_think ? "yes" : "no");
}

void Probe::probe_effort() {
  const std::optional<std::string> low = with_variable("reasoning_effort", Json("low"));
  const std::optional<std::string> medium = with_variable("reasoning_effort", Json("medium"));
  const std::optional<std::string> high = with_variable("reasoning_effort", Json("high"));
  const std::optional<std::string> xhigh = with_variable("reasoning_effort", Json("xhigh"));
  EffortScale scale = EffortScale::none;
  if (low.has_value() && medium.has_value() && *low != *medium) {
    if (high.has_value() && *high != *medium) {
      scale = EffortScale::low_medium_high;
    } else if (!high.has_value() && xhigh.has_value()) {
      scale = EffortScale::low_medium_xhigh;
    }
  }
  ModelProfile& profile = result_.profile;
  profile.effort_scale = scale;
  if (scale == EffortScale::none && profile.thinking_switch == ThinkingSwitch::effort_only) {
    profile.thinking_switch = ThinkingSwitch::none;
    profile.thinks_by_default = false;
  }
  found("effort", scale == EffortScale::none              ? "none"
                  : scale == EffortScale::low_medium_high ? "low, medium, high"
                                                          : "low, medium, xhigh");
}

void Probe::find_syntax(const std::string& prompt) {
  constexpr std::pair<std::string_view, ToolSyntax> kMarkers[] = {
      {"<|tool_call>", ToolSyntax::gemma4},   {"[TOOL_CALLS]", ToolSyntax::mistral},
      {"to=functions.", ToolSyntax::gpt_oss}, {"<function=", ToolSyntax::qwen_xml},
      {"<tool_call>", ToolSyntax::hermes},
  };
  for (const auto& [marker, syntax] : kMarkers) {
    if (prompt.find(marker) == std::string::npos) continue;
    result_.profile.syntax = syntax;
    found("tool_syntax", tool_syntax_name(syntax));
    return;
  }
  const std::string bare = "{\"name\": \"" + std::string(kToolName) + "\", \"parameters\":";
  if (prompt.find(bare) == std::string::npos) return;
  result_.profile.syntax = ToolSyntax::llama3;
  found("tool_syntax", tool_syntax_name(ToolSyntax::llama3));
}

void Probe::probe_tools() {
  ModelProfile& profile = result_.profile;
  std::optional<std::string> one = text(tool_chat({"call_0001"}));
  profile.nine_character_ids = false;
  if (!one.has_value()) {
    one = text(tool_chat({"call00001"}));
    profile.nine_character_ids = one.has_value();
  }
  // Declared, but printed nowhere: the template has no place for tools.
  if (!one.has_value() || one->find(kToolName) == std::string::npos) {
    profile.syntax = ToolSyntax::plain;
    profile.one_call_per_message = false;
    found("tool_syntax", tool_syntax_name(ToolSyntax::plain));
    return;
  }
  find_syntax(*one);
  const bool nine = profile.nine_character_ids;
  profile.one_call_per_message =
      !renders(tool_chat({nine ? "call00001" : "call_0001", nine ? "call00002" : "call_0002"}));
  found("one_call_per_message", profile.one_call_per_message ? "yes" : "no");
}

}  // namespace

Result<ProbedProfile> probe_template(ModelProfile start, const RenderProbe& render) {
  return Probe(std::move(start), render).run();
}

}  // namespace tandem::policies
