// The arguments of a call in the XML form: <parameter=name>, a line, </parameter> for each member.
// Inside of engine/grammar/call_grammar* only.
#pragma once

#include <optional>

#include "engine/grammar/schema_emit.h"

namespace tandem::engine {

// Nothing where the form cannot carry the arguments. The emitter is one for JSON.
std::optional<GrammarPart> xml_arguments(SchemaEmitter& emitter, const Json& parameters);

// What may stand between the brackets of a tag.
bool is_xml_name(const std::string& name);

}  // namespace tandem::engine
