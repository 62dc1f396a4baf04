// R17, R18 and R19: the tools of a request.
#include <algorithm>

#include "policies/sanitize/steps.h"

namespace tandem::policies {
namespace {

constexpr std::string_view kToolKeys[] = {"tools", "tool_choice", "parallel_tool_calls"};
constexpr int kSchemaDepthMax = 64;
// Both fields go to the engine with each choice, as members of messages that it reads to a depth of 64.
constexpr size_t kToolsBytesMax = size_t{1} << 20;
constexpr size_t kToolsDepthMax = 48;

void remove_tools(Draft& draft, const char* why) {
  for (std::string_view key : kToolKeys) draft.erase(17, key, why);
}

const Json* name_of_tool(const Json& tool) {
  const Json* function = tool.find("function");
  const Json* name = function == nullptr ? nullptr : function->find("name");
  return name != nullptr && name->is_string() ? name : nullptr;
}

size_t depth_of(const Json& value) {  // the parser bounds it
  size_t deepest = 0;
  if (value.is_array()) {
    for (const Json& item : value.as_array()) deepest = std::max(deepest, depth_of(item));
  } else if (value.is_object()) {
    for (const auto& member : value.as_object()) {
      deepest = std::max(deepest, depth_of(member.second));
    }
  } else {
    return 0;
  }
  return deepest + 1;
}

Refusal check_size(const Draft& draft, std::string_view key) {
  const Json* value = draft.find(key);
  if (value == nullptr) return std::nullopt;
  const std::string name(key);
  if (const size_t depth = depth_of(*value); depth > kToolsDepthMax) {
    return refuse(17, name, name + " is nested " + std::to_string(depth) + " deep, the limit is " +
                                std::to_string(kToolsDepthMax));
  }
  if (const size_t bytes = value->dump().size(); bytes > kToolsBytesMax) {
    return refuse(17, name, name + " has " + std::to_string(bytes) +
                                " bytes of JSON, the limit is " + std::to_string(kToolsBytesMax));
  }
  return std::nullopt;
}

Refusal check_named_choice(const Draft& draft, const Json& choice) {
  const Json* name = name_of_tool(choice);
  if (name == nullptr) {
    return refuse(17, "tool_choice", "tool_choice must name a function, or be a known word");
  }
  for (const Json& tool : draft.find("tools")->as_array()) {
    const Json* known = name_of_tool(tool);
    if (known != nullptr && *known == *name) return std::nullopt;
  }
  return refuse(17, "tool_choice.function.name",
                "no tool of the list is called " + name->as_string());
}

Refusal check_tool_list(const Json::Array& tools) {
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!tools[i].is_object()) {
      return refuse(17, index_path("tools", i, ""), "a tool must be an object");
    }
    if (tools[i].find("function") != nullptr && name_of_tool(tools[i]) == nullptr) {
      return refuse(17, index_path("tools", i, "function.name"), "a tool needs a name");
    }
  }
  return std::nullopt;
}

// A pair of bounds where one is beyond what the grammar can repeat.
bool drop_bounds(Json& schema, std::string_view low, std::string_view high, int64_t most) {
  const auto beyond = [&](std::string_view key) {
    const Json* bound = schema.find(key);
    return bound != nullptr && bound->is_number() && bound->as_double() > static_cast<double>(most);
  };
  if (!beyond(low) && !beyond(high)) return false;
  const bool had_low = schema.erase(low);
  return schema.erase(high) || had_low;
}

// Walks schemas only where a schema stands, so that a property called "pattern" is left alone.
bool reduce_schema(Json& schema, int64_t most, int depth) {
  if (depth > kSchemaDepthMax) return false;
  bool changed = false;
  if (schema.is_array()) {
    for (Json& item : schema.as_array()) changed = reduce_schema(item, most, depth + 1) || changed;
    return changed;
  }
  if (!schema.is_object()) return false;
  const Json* pattern = schema.find("pattern");
  if (pattern != nullptr && pattern->is_string()) changed = schema.erase("pattern");
  changed = drop_bounds(schema, "minLength", "maxLength", most) || changed;
  changed = drop_bounds(schema, "minItems", "maxItems", most) || changed;
  constexpr std::string_view kMaps[] = {"properties", "patternProperties", "$defs", "definitions",
                                        "dependentSchemas"};
  constexpr std::string_view kSchemas[] = {"items",
                                           "prefixItems",
                                           "additionalItems",
                                           "additionalProperties",
                                           "propertyNames",
                                           "contains",
                                           "anyOf",
                                           "oneOf",
                                           "allOf",
                                           "not",
                                           "if",
                                           "then",
                                           "else"};
  for (std::string_view key : kMaps) {
    Json* map = schema.find(key);
    if (map == nullptr || !map->is_object()) continue;
    for (auto& member : map->as_object()) {
      changed = reduce_schema(member.second, most, depth + 1) || changed;
    }
  }
  for (std::string_view key : kSchemas) {
    Json* inner = schema.find(key);
    if (inner != nullptr) changed = reduce_schema(*inner, most, depth + 1) || changed;
  }
  return changed;
}

}  // namespace

Refusal check_tools(Draft& draft) {
  if (Refusal refusal = check_size(draft, "tools")) return refusal;
  if (Refusal refusal = check_size(draft, "tool_choice")) return refusal;
  if (!draft.on(17)) return std::nullopt;
  const Json* tools = draft.find("tools");
  if (tools != nullptr && !tools->is_array()) return refuse(17, "tools", "tools must be a list");
  const Json* choice = draft.find("tool_choice");
  const bool word = choice != nullptr && choice->is_string();
  if (choice != nullptr && !word && !choice->is_object()) {
    return refuse(17, "tool_choice", "tool_choice must be a word or an object");
  }
  if (word && choice->as_string() != "none" && choice->as_string() != "auto" &&
      choice->as_string() != "required") {
    return refuse(17, "tool_choice",
                  "tool_choice must be none, auto, required or a named function");
  }
  if (tools == nullptr || tools->as_array().empty()) {
    if (choice != nullptr && (!word || choice->as_string() == "required")) {
      return refuse(17, "tool_choice", "a call is required, but no tool is declared");
    }
    remove_tools(draft, "no tools are declared");
    return std::nullopt;
  }
  if (Refusal refusal = check_tool_list(tools->as_array())) return refusal;
  if (word && choice->as_string() == "none") {
    remove_tools(draft, "the client wants no calls");
    return std::nullopt;
  }
  if (choice != nullptr && choice->is_object()) {
    if (Refusal refusal = check_named_choice(draft, *choice)) return refusal;
  }
  const Json* parallel = draft.find("parallel_tool_calls");
  if (parallel != nullptr && !parallel->is_bool()) {
    return refuse(19, "parallel_tool_calls", "parallel_tool_calls must be true or false");
  }
  draft.result.duties.keep_first_tool_call_only =
      draft.on(19) && parallel != nullptr && !parallel->as_bool();
  return std::nullopt;
}

void reduce_tool_schemas(Draft& draft) {
  if (!draft.on(18) || draft.target.engine != EngineKind::llama_server) return;
  Json* tools = draft.request.find("tools");
  if (tools == nullptr || !tools->is_array()) return;
  bool changed = false;
  for (Json& tool : tools->as_array()) {
    Json* function = tool.find("function");
    Json* schema = function == nullptr ? nullptr : function->find("parameters");
    if (schema == nullptr) continue;
    changed = reduce_schema(*schema, draft.settings.grammar_repetition_max, 0) || changed;
  }
  if (!changed) return;
  draft.result.duties.validate_arguments = true;
  draft.note(18, "tools", "limits that the engine's grammar cannot express left out of its copy");
}

void send_tools_through_prompt(Draft& draft) {
  if (!draft.on(18) || draft.target.tool_parser || draft.find("tools") == nullptr) return;
  draft.result.duties.parse_tool_calls = true;
  if (!draft.settings.tools_through_choice_none) return;
  const char* why = "the engine has no tool parser: it prints the tools, the gateway parses";
  if (draft.target.engine != EngineKind::ollama) {
    draft.set(18, "tool_choice", Json("none"), why);
  }
  if (draft.profile.markers_are_special_tokens) {
    draft.set(18, "skip_special_tokens", Json(false), why);
  }
}

}  // namespace tandem::policies
