// The values of a chat template, as in Python, with an origin for each character. A Store owns them until it
// ends, so that a value is a few words without reference counts. Internal to data/chat.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/data/chat/origin.h"

namespace mantissa::inline v0::jinja {

struct Char {
    char32_t code;
    ChatOrigin origin;
};
using Chars = std::vector<Char>;
using CharSpan = std::span<const Char>;

/// An invalid template, or an invalid operation on its values. The line is the template's.
class TemplateError : public UserError {
  public:
    using UserError::UserError;
};

enum class Kind : std::uint8_t {
    undefined,
    none,
    boolean,
    integer,
    long_integer,  ///< outside 64 bits: its digits
    real,
    text,
    list,
    dict,
    space,  ///< namespace(), or a loop: attributes
    function
};

/// Python's kinds of sequences.
enum class Form : std::uint8_t { list, tuple, view, generator, range };

struct Value;
struct ListOf;
struct DictOf;
struct SpaceOf;
struct FunctionOf;

struct Value {
    Kind kind = Kind::undefined;
    bool markup = false;     ///< of a text from `safe`: texts joined to it are escaped
    ChatOrigin origin = {};  ///< of values that are not text, and of an empty text
    union {
        std::int64_t integer;
        double real;
        const Chars* chars;
        const ListOf* list;
        const DictOf* dict;
        SpaceOf* space;
        const FunctionOf* function;
        const std::string* name = nullptr;  // of an undefined value
    };

    bool is(Kind other) const { return kind == other; }
    bool is_number() const { return kind == Kind::integer || kind == Kind::boolean || kind == Kind::real; }
    CharSpan text() const { return *chars; }
};

struct ListOf {
    std::vector<Value> items;
    Form form = Form::list;
};

struct DictOf {
    std::vector<std::pair<Value, Value>> items;
    const Value* find(const Value& key) const;
    const Value* find(std::string_view key) const;
};

struct SpaceOf {
    std::vector<std::pair<std::string, Value>> attributes;
    bool is_loop = false;
    const Value* find(std::string_view name) const;
    void set(std::string_view name, const Value& value);
};

struct CallArguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
};

struct FunctionOf {
    std::string name;
    std::function<Value(const CallArguments&)> call;
};

/// Limits of a template's cost.
struct Limits {
    std::uint64_t steps = 20'000'000;
    std::uint64_t characters = 64'000'000;  ///< made, discarded ones included
};

/// Owns values, and counts their cost.
class Store {
  public:
    explicit Store(const Limits& limits = {}) : limits_(limits) {}
    Store(const Store&) = delete;

    void step(std::uint64_t steps = 1);
    void making(std::uint64_t characters);

    Value text(Chars chars, bool markup = false);
    Value text(std::string_view utf8, ChatOrigin origin = {});
    Value list(std::vector<Value> items, Form form = Form::list, ChatOrigin origin = {});
    Value dict(std::vector<std::pair<Value, Value>> items, ChatOrigin origin = {});
    Value space(bool is_loop = false);
    Value function(std::string name, std::function<Value(const CallArguments&)> call);
    Value undefined(std::string name);
    Value long_integer(std::string_view digits, ChatOrigin origin);

  private:
    template <class T>
    T* keep(T value);

    Limits limits_;
    std::uint64_t steps_ = 0, characters_ = 0;
    std::vector<std::shared_ptr<void>> kept_;
};

Value none_value();
Value boolean(bool value, ChatOrigin origin = {});
Value integer(std::int64_t value, ChatOrigin origin = {});
Value real(double value, ChatOrigin origin = {});

bool truth(const Value& value);
bool equal(const Value& a, const Value& b, int depth = 0);
/// As Python's <. Throws TemplateError if the two have no order.
bool less(const Value& a, const Value& b, int depth = 0);
/// "str", "int", "NoneType".
std::string_view type_name(const Value& value);

/// As Python's str() and repr().
Chars to_text(const Value& value);
void append_repr(Chars& out, const Value& value, int depth = 0);

struct JsonStyle {
    bool ascii = false, sort_keys = false, breaks_lines = false;
    Chars indent = {}, item_separator = {}, key_separator = {};
};
/// As Python's json.dumps.
void append_json(Chars& out, const Value& value, const JsonStyle& style, int depth = 0);
/// The style of json.dumps with these arguments.
JsonStyle json_style(bool ascii, const Value* indent, const Value* separators, bool sort_keys);

Chars chars_of(std::string_view utf8, ChatOrigin origin = {});
std::string utf8_of(CharSpan chars);
bool same_text(CharSpan a, CharSpan b);
bool same_text(CharSpan a, std::string_view ascii);
/// As Python's str.isspace.
bool is_white(char32_t code);

/// A JSON document, all of it from `origin`; keys stay in order; of equal keys the last counts. Throws
/// UserError that begins with `source`.
Value parse_json(Store& store, std::string_view text, const std::string& source, ChatOrigin origin = {});

}  // namespace mantissa::inline v0::jinja
