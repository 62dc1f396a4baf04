// Values of a template at run time, and the heap that owns them. Everything a render makes lives
// until the render ends, in one TplHeap; values are small and copied freely. All values but
// namespaces are immutable, so containers cannot form cycles, and their nesting is capped, so walking
// them cannot exhaust the stack. One render, one thread.
//
// Budget. The heap counts bytes made and steps done. When a limit is passed it stays failed: makers
// then hand back empty values and the evaluator stops at its next node. Nothing grows past a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/chat_template/chat_template.h"

namespace tandem::engine {

struct TplExpr;
struct TplStmt;
struct TplLoop;
struct TplScope;
struct TplFunction;

// A string: bytes owned elsewhere (heap, template, input) and who wrote them.
struct TplStr {
  std::string_view bytes;
  const char* mask = nullptr;  // one per byte, not 0: the client's; null: uniform
  bool client = false;         // when uniform

  [[nodiscard]] bool marked(size_t i) const { return mask != nullptr ? mask[i] != 0 : client; }
  [[nodiscard]] TplStr sub(size_t pos, size_t count = std::string_view::npos) const {
    return {.bytes = bytes.substr(pos, count),
            .mask = mask != nullptr ? mask + pos : nullptr,
            .client = client};
  }
};

struct TplList;
struct TplDict;
struct TplNamespace;
struct TplMacro;
struct TplMethod;

enum class TplKind : uint8_t {
  undefined, none, boolean, integer, real, string, list, dict, name_space, loop, macro, function,
  method,
};

struct TplValue {
  TplKind kind = TplKind::undefined;
  union {
    bool boolean;
    int64_t integer = 0;
    double real;
    const TplStr* string;  // undefined: the name that was not found, or null
    TplList* list;
    TplDict* dict;
    TplNamespace* name_space;
    TplLoop* loop;
    const TplMacro* macro;
    const TplFunction* function;
    const TplMethod* method;
  };

  [[nodiscard]] bool is(TplKind k) const { return kind == k; }
  [[nodiscard]] bool is_number() const {
    return kind == TplKind::boolean || kind == TplKind::integer || kind == TplKind::real;
  }
  // Python's bool is an int.
  [[nodiscard]] bool is_int() const { return kind == TplKind::boolean || kind == TplKind::integer; }
  [[nodiscard]] int64_t as_int() const { return kind == TplKind::boolean ? boolean : integer; }
  [[nodiscard]] double as_real() const {
    return kind == TplKind::real ? real : static_cast<double>(as_int());
  }
  [[nodiscard]] std::string_view bytes() const { return string->bytes; }

  static TplValue none() {
    TplValue v;
    v.kind = TplKind::none;
    return v;
  }
  static TplValue of(bool b) {
    TplValue v;
    v.kind = TplKind::boolean;
    v.boolean = b;
    return v;
  }
  static TplValue of(int64_t i) {
    TplValue v;
    v.kind = TplKind::integer;
    v.integer = i;
    return v;
  }
  static TplValue of(double d) {
    TplValue v;
    v.kind = TplKind::real;
    v.real = d;
    return v;
  }
  static TplValue of(const TplStr* s) {
    TplValue v;
    v.kind = TplKind::string;
    v.string = s;
    return v;
  }
  static TplValue of(TplList* l) {
    TplValue v;
    v.kind = TplKind::list;
    v.list = l;
    return v;
  }
  static TplValue of(TplDict* d) {
    TplValue v;
    v.kind = TplKind::dict;
    v.dict = d;
    return v;
  }
};

// Where a list comes from decides how it behaves in Python.
enum class TplListKind : uint8_t {
  list,
  tuple,
  range,
  view,       // dict.items() and the like: a length, no index
  generator,  // of map, select, ...: always true, no length, no index, walked once
};

struct TplList {
  TplListKind kind = TplListKind::list;
  uint32_t depth = 1;
  bool walked = false;  // generators
  std::vector<TplValue> items;
};

struct TplDict {
  static constexpr size_t kNoMessage = static_cast<size_t>(-1);
  uint32_t depth = 1;
  size_t message = kNoMessage;  // index in ChatTemplateInput::messages
  std::vector<std::pair<TplValue, TplValue>> items;  // insertion order, keys distinct
};

struct TplNamespace {
  std::vector<std::pair<std::string_view, TplValue>> items;
};

struct TplMacro {
  const TplStmt* definition = nullptr;
  TplScope* scope = nullptr;  // of the definition: a macro does not see its caller's names
};

// A method taken from a value, such as "a,b".split.
struct TplMethod {
  TplValue subject;
  std::string_view name;
};

// Names visible at one place. Values are looked up outwards; set() writes here.
struct TplScope {
  TplScope* parent = nullptr;
  std::vector<std::pair<std::string_view, TplValue>> names;

  [[nodiscard]] const TplValue* find(std::string_view name) const;
  void set(std::string_view name, TplValue value);
};

class TplHeap {
 public:
  explicit TplHeap(const ChatTemplateLimits& limits) : limits_(limits) {}
  TplHeap(const TplHeap&) = delete;
  TplHeap& operator=(const TplHeap&) = delete;

  // False, now and from then on, when a limit is passed.
  bool spend_steps(size_t steps);
  bool spend_bytes(size_t bytes);
  bool spend_iteration();
  void fail(std::string_view which, size_t limit);
  [[nodiscard]] bool ok() const { return !failed_; }
  [[nodiscard]] Error limit_error() const { return make_error(Errc::too_large, message_); }
  [[nodiscard]] const ChatTemplateLimits& limits() const { return limits_; }

  // `bytes` must outlive the render; own() copies.
  TplValue string(TplStr s);
  TplValue own(std::string bytes, bool client = false);
  TplValue own_masked(std::string bytes, std::string mask);
  TplValue undefined(std::string_view name);

  TplList* list(TplListKind kind = TplListKind::list);
  TplDict* dict();
  void push(TplList* list, TplValue item);
  // Replaces an equal key's value. The key must be hashable.
  void put(TplDict* dict, TplValue key, TplValue value);
  TplNamespace* name_space();
  void set(TplNamespace* target, std::string_view name, TplValue value);
  TplValue macro(TplMacro macro);
  TplValue method(TplMethod method);
  TplScope* scope(TplScope* parent);

  // Strings and keys come out marked as the client's. The Json must outlive the render.
  TplValue from_json(const Json& json);

 private:
  bool note_depth(uint32_t& depth, const TplValue& item);

  ChatTemplateLimits limits_;
  size_t steps_ = 0;
  size_t bytes_ = 0;
  size_t iterations_ = 0;
  bool failed_ = false;
  std::string message_;
  std::deque<std::string> texts_;
  std::deque<TplStr> strings_;
  std::deque<TplList> lists_;
  std::deque<TplDict> dicts_;
  std::deque<TplNamespace> name_spaces_;
  std::deque<TplMacro> macros_;
  std::deque<TplMethod> methods_;
  std::deque<TplScope> scopes_;
};

// Builds a string piece by piece with its marks; the mask is made only when both kinds meet.
class TplText {
 public:
  explicit TplText(TplHeap& heap) : heap_(heap) {}

  void append(const TplStr& s);
  void append(std::string_view bytes, bool client);
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::string_view bytes() const { return bytes_; }
  [[nodiscard]] TplStr view() const;
  TplValue finish();

 private:
  bool admit(size_t bytes);
  void unify(bool client);

  TplHeap& heap_;
  std::string bytes_;
  std::string mask_;
  bool client_ = false;
};

// Errors of a template on its input; the evaluator adds the line.
inline Error tpl_error(std::string message) { return make_error(Errc::corrupt, std::move(message)); }

}  // namespace tandem::engine
