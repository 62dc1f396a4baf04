#include "engine/grammar/call_grammar.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "engine/grammar/call_grammar_xml.h"
#include "engine/grammar/schema_emit.h"
#include "policies/parse/literals.h"

namespace tandem::engine {
namespace {

using policies::DeclaredTool;
using policies::ToolSyntax;

constexpr std::string_view kToolCall = "<tool_call>";
constexpr std::string_view kToolCallEnd = "</tool_call>";
constexpr std::string_view kToolCalls = "[TOOL_CALLS]";
constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kGemmaCall = "<|tool_call>";
constexpr std::string_view kGemmaCallEnd = "<tool_call|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kConstrain = "<|constrain|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kMarkers[] = {kToolCall,     kToolCallEnd, kToolCalls,  kArgs,
                                         kGemmaCall,    kGemmaCallEnd, policies::kGemmaQuote,
                                         kChannel,      kConstrain,   kMessage};

// How the call of one tool is written: in the syntax itself, as JSON, or as JSON with any arguments.
enum class CallForm : uint8_t { native, json, any_object };

// What an emitter refers to must stay where it is until the grammar is built.
struct ToolParts {
  Json schema;
  SchemaOptions options;
  std::optional<SchemaSurvey> survey;
  std::optional<SchemaShapes> shapes;
  std::optional<SchemaEmitter> emitter;
};

class CallBuilder {
 public:
  CallBuilder(GrammarBuilder& builder, const CallGrammarOptions& options)
      : builder_(builder), parts_(builder), syntax_(options.syntax), vocabulary_(options.vocabulary) {}

  // Of the parts made so far.
  [[nodiscard]] bool writes_control_tokens() const { return writes_control_tokens_; }

  // One call with its markers. Errors: the schema's, or what the form cannot carry.
  Result<GrammarPart> call(const DeclaredTool& tool, CallForm form) {
    ToolParts& own = tools_.emplace_back();
    own.schema = form != CallForm::any_object && !tool.parameters.is_null()
                     ? tool.parameters
                     : Json::object().set("type", "object");
    own.options.path = "parameters";
    own.survey.emplace(own.schema, own.options);
    if (!own.survey->problems().empty()) return own.survey->problems().error();
    own.shapes.emplace(*own.survey);
    const bool gemma = syntax_ == ToolSyntax::gemma4 && form == CallForm::native;
    own.emitter.emplace(parts_, *own.shapes, gemma ? ValueForm::gemma : ValueForm::json,
                        gemma ? written(policies::kGemmaQuote) : std::string());
    Result<GrammarPart> part = form == CallForm::native ? native(tool.name, own) : json_call(tool.name, own);
    own.emitter->finish();
    if (part.ok() && !own.shapes->problems().empty()) return own.shapes->problems().error();
    return part;
  }

  GrammarPart separator() const {
    switch (syntax_) {
      case ToolSyntax::llama3:
        return builder_.literal("; ");
      case ToolSyntax::gemma4:
        return builder_.optional(builder_.literal("\n"));
      case ToolSyntax::hermes:
      case ToolSyntax::qwen_xml:
      case ToolSyntax::plain:
      case ToolSyntax::mistral:
      case ToolSyntax::gpt_oss:
        break;
    }
    return builder_.literal("\n");
  }

 private:
  static Error cannot_carry(const std::string& name) {
    return make_error(Errc::invalid_argument, "the syntax cannot carry a call of " + name);
  }

  std::string written(std::string_view marker) {
    std::string text = vocabulary_ == nullptr ? std::string(marker) : vocabulary_->as_written(marker);
    writes_control_tokens_ = writes_control_tokens_ || text.size() > marker.size();
    return text;
  }

  GrammarPart marker(std::string_view marker) { return builder_.literal(written(marker)); }

  GrammarPart object(ToolParts& own) {
    return own.emitter->value_of_types({&own.schema}, kTypeObject);
  }

  // {"name": ..., "arguments": ...}
  GrammarPart json_object(const std::string& name, ToolParts& own, const char* key) {
    std::string quoted;
    append_json_string(quoted, name);
    return parts_.sequence({builder_.literal("{\"name\":"), parts_.colon_gap(),
                            builder_.literal(quoted + ","), parts_.colon_gap(),
                            builder_.literal("\"" + std::string(key) + "\":"), parts_.colon_gap(),
                            object(own), parts_.byte('}')});
  }

  // A JSON call as each family writes it, or as it is read everywhere.
  Result<GrammarPart> json_call(const std::string& name, ToolParts& own) {
    const char* key = syntax_ == ToolSyntax::llama3 ? "parameters" : "arguments";
    const GrammarPart text = json_object(name, own, key);
    switch (syntax_) {
      case ToolSyntax::hermes:
      case ToolSyntax::qwen_xml:
        return parts_.sequence(
            {marker(kToolCall), parts_.byte('\n'), text, parts_.byte('\n'), marker(kToolCallEnd)});
      case ToolSyntax::mistral:
        return parts_.sequence({marker(kToolCalls), parts_.byte('['), text, parts_.byte(']')});
      case ToolSyntax::gpt_oss:
        return native(name, own);
      case ToolSyntax::plain:
      case ToolSyntax::llama3:
      case ToolSyntax::gemma4:
        break;
    }
    return text;
  }

  Result<GrammarPart> native(const std::string& name, ToolParts& own) {
    switch (syntax_) {
      case ToolSyntax::qwen_xml: {
        if (!is_xml_name(name)) return cannot_carry(name);
        const std::optional<GrammarPart> arguments = xml_arguments(*own.emitter, own.schema);
        if (!arguments.has_value()) return cannot_carry(name);
        return parts_.sequence({marker(kToolCall), builder_.literal("\n<function=" + name + ">\n"),
                                *arguments, builder_.literal("</function>\n"), marker(kToolCallEnd)});
      }
      case ToolSyntax::gemma4:
        if (!is_xml_name(name) || name.find_first_of("{}:") != std::string::npos) {
          return cannot_carry(name);
        }
        return parts_.sequence({marker(kGemmaCall), builder_.literal("call:" + name), object(own),
                                marker(kGemmaCallEnd)});
      case ToolSyntax::gpt_oss:
        if (!is_xml_name(name)) return cannot_carry(name);
        return parts_.sequence({marker(kChannel), builder_.literal("commentary to=functions." + name),
                                builder_.optional(parts_.sequence(
                                    {parts_.byte(' '), marker(kConstrain), builder_.literal("json")})),
                                marker(kMessage), object(own)});
      case ToolSyntax::mistral: {
        TRY_ASSIGN(const GrammarPart list, json_call(name, own));
        if (!is_xml_name(name) || name.find_first_of("[{") != std::string::npos) return list;
        return parts_.choice({list, parts_.sequence({marker(kToolCalls), builder_.literal(name),
                                                     marker(kArgs), object(own)})});
      }
      case ToolSyntax::hermes:
      case ToolSyntax::llama3:
      case ToolSyntax::plain:
        break;
    }
    return json_call(name, own);
  }

  GrammarBuilder& builder_;
  TextParts parts_;
  ToolSyntax syntax_;
  const TokenTrie* vocabulary_;
  bool writes_control_tokens_ = false;
  std::deque<ToolParts> tools_;
};

// The first form in which this tool's call can be written, found by building it alone.
struct ChosenForm {
  CallForm form = CallForm::any_object;
  std::string reason;  // why the schema is not enforced
};

ChosenForm choose_form(const DeclaredTool& tool, const CallGrammarOptions& options) {
  ChosenForm chosen;
  for (const CallForm form : {CallForm::native, CallForm::json}) {
    GrammarBuilder builder;
    CallBuilder calls(builder, options);
    const Result<GrammarPart> part = calls.call(tool, form);
    if (!part.ok()) {
      chosen.reason = part.error().message;
      continue;
    }
    const Result<Grammar> grammar = builder.build(*part);
    if (grammar.ok()) return {form, {}};
    chosen.reason = grammar.error().message;
  }
  return chosen;
}

Result<CallGrammar> build_calls(const std::vector<std::pair<const DeclaredTool*, CallForm>>& tools,
                            const CallGrammarOptions& options) {
  GrammarBuilder builder;
  CallBuilder calls(builder, options);
  std::vector<GrammarPart> choices;
  for (const auto& [tool, form] : tools) {
    TRY_ASSIGN(const GrammarPart part, calls.call(*tool, form));
    choices.push_back(part);
  }
  GrammarPart root = builder.choice(choices);
  if (options.parallel_calls && options.syntax != ToolSyntax::gpt_oss && options.calls_max > 1) {
    const uint32_t rule = builder.declare_rule();
    builder.define_rule(rule, root);
    const GrammarPart one = builder.call(rule);
    const GrammarPart more[] = {calls.separator(), one};
    const GrammarPart all[] = {one, builder.repeat(builder.sequence(more), 0, options.calls_max - 1)};
    root = builder.sequence(all);
  }
  TRY_ASSIGN(Grammar grammar, builder.build(root));
  return CallGrammar{.grammar = std::move(grammar),
                     .writes_control_tokens = calls.writes_control_tokens()};
}

}  // namespace

std::span<const std::string_view> call_markers() { return kMarkers; }

Result<CallGrammar> compile_call_grammar(std::span<const DeclaredTool> tools,
                                         const CallGrammarOptions& options) {
  std::vector<std::pair<const DeclaredTool*, CallForm>> chosen;
  std::vector<std::string> warnings;
  for (const DeclaredTool& tool : tools) {
    if (!options.named.empty() && tool.name != options.named) continue;
    const ChosenForm form = choose_form(tool, options);
    if (form.form == CallForm::any_object) {
      warnings.push_back("tool " + tool.name + ": arguments are any JSON object: " + form.reason);
    }
    chosen.emplace_back(&tool, form.form);
  }
  if (chosen.empty()) {
    return make_error(Errc::invalid_argument,
                      options.named.empty() ? "a call is forced, but no tool is declared"
                                            : "no tool is named " + options.named,
                      options.named.empty() ? "tool_choice" : "tool_choice.function.name");
  }
  Result<CallGrammar> grammar = build_calls(chosen, options);
  if (!grammar.ok()) {  // each fits alone, all together do not
    warnings = {"arguments of all tools are any JSON object: " + grammar.error().message};
    for (auto& [tool, form] : chosen) form = CallForm::any_object;
    grammar = build_calls(chosen, options);
  }
  if (grammar.ok()) grammar->warnings = std::move(warnings);
  return grammar;
}

}  // namespace tandem::engine
