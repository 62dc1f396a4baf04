// Numbers as texts: integers and decimals within bounds, at most 15 digits, so that a text and the double
// that it is read as never lie on different sides of a bound. Inside of engine/grammar/schema* only.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema_shapes.h"
#include "engine/grammar/schema_text.h"

namespace tandem::engine {

// `fractions`: numbers with a point, and without bounds with an exponent, are allowed. Errors
// (invalid_argument, without a path): a bound past 10^15 that leaves nothing, a multipleOf that texts cannot
// be held to.
Result<GrammarPart> number_part(TextParts& parts, const NumberFacts& facts, bool fractions);

}  // namespace tandem::engine
