// A forced tool call (tool_choice required, or a named tool) as a grammar: the text of a call in the model's own
// syntax, its name one of the declared ones, its arguments satisfying that tool's schema as the answer parser
// reads them (policies/parse, R12 to R14). With parallel calls one or more calls in a row.
//
// A forced call must work even if a tool's schema holds what schema_compiler.h refuses: that tool then takes any
// JSON object, and a warning says why. A tool whose arguments the syntax cannot carry (Gemma 4 and XML have no
// way to write some unions) gets a JSON call, which the parser reads in every family when a call was forced.
//
// Errors: invalid_argument for no tools or a name that is not declared. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/token_trie.h"
#include "policies/parse/parse.h"
#include "policies/profile.h"

namespace tandem::engine {

// Every marker that a call may be written with, in any family: those that are control tokens of a vocabulary
// belong into its trie.
std::span<const std::string_view> call_markers();

struct CallGrammarOptions {
  policies::ToolSyntax syntax = policies::ToolSyntax::plain;
  std::string named;            // the one tool that may be called; empty: any
  bool parallel_calls = false;  // not in gpt-oss, where a call ends the turn
  int64_t calls_max = 16;
  const TokenTrie* vocabulary = nullptr;  // whose control tokens the markers are; none: markers are text
};

struct CallGrammar {
  Grammar grammar;
  bool writes_control_tokens = false;  // a reader of the answer must see them
  std::vector<std::string> warnings = {};  // one for each tool whose schema is not enforced
};

Result<CallGrammar> compile_call_grammar(std::span<const policies::DeclaredTool> tools,
                                         const CallGrammarOptions& options);

}  // namespace tandem::engine
