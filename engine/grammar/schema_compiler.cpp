#include "engine/grammar/schema_compiler.h"

#include <utility>
#include <vector>

#include "engine/grammar/schema_emit.h"

namespace tandem::engine {
namespace {

// What a caller of the compiler reads: the field, whatever the grammar itself has to say.
Result<Grammar> built(GrammarBuilder& builder, GrammarPart root, const std::string& path) {
  Result<Grammar> grammar = builder.build(root);
  if (grammar.ok()) return grammar;
  return make_error(Errc::invalid_argument, path + ": " + grammar.error().message, path);
}

}  // namespace

Result<Grammar> compile_json_schema(const Json& schema, const SchemaOptions& options) {
  const SchemaSurvey survey(schema, options);
  if (!survey.problems().empty()) return survey.problems().error();
  GrammarBuilder builder;
  TextParts parts(builder);
  SchemaShapes shapes(survey);
  SchemaEmitter emitter(parts, shapes, ValueForm::json);
  const GrammarPart root = emitter.value({&schema});
  emitter.finish();
  if (!shapes.problems().empty()) return shapes.problems().error();
  return built(builder, root, options.path);
}

Result<Grammar> compile_json_object() {
  return compile_json_schema(Json::object().set("type", "object"));
}

}  // namespace tandem::engine
