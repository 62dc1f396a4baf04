// Which family of policies/profile.h a model file looks like: a guess from its chat template, its
// architecture and its name, used where the configuration names no family. The template counts first,
// since it is what a request really meets; the probe (template_probe.h) then replaces what it can.
//
// Pure; any thread. The texts are untrusted.
#pragma once

#include <string_view>

namespace tandem::policies {

struct ModelFileFacts {
  std::string_view architecture;   // general.architecture
  std::string_view name;           // general.name
  std::string_view chat_template;  // empty: the file has none
};

// A name that family_profile() knows; empty when nothing is recognised, always without a template.
std::string_view guess_family(const ModelFileFacts& facts);

}  // namespace tandem::policies
