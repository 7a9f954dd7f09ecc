// Runs a chat template as Jinja2's sandbox does; each output character has its origin. Internal to data/chat.
#pragma once

#include <ctime>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/data/chat/template_syntax.h"

namespace mantissa::inline v0::jinja {

/// The arguments of a call by the names of its parameters.
class BoundArguments {
  public:
    /// Throws TemplateError for too many arguments, or an argument of another name.
    BoundArguments(std::string_view function, const CallArguments& arguments,
                   std::initializer_list<std::string_view> names);

    /// Null if not given.
    const Value* operator[](std::size_t parameter) const { return values_[parameter]; }
    const Value& needed(std::size_t parameter) const;
    bool flag(std::size_t parameter, bool otherwise) const {
        return values_[parameter] ? truth(*values_[parameter]) : otherwise;
    }
    std::int64_t number(std::size_t parameter, std::int64_t otherwise) const;
    /// Null if not given or none.
    const Value* text(std::size_t parameter) const;

  private:
    std::string_view function_;
    std::vector<std::string_view> names_;
    std::vector<const Value*> values_;
};

class Runner {
  public:
    Runner(Store& store, const std::map<std::string, Value>& context, const std::tm& now);

    /// The template's whole output. Throws TemplateError, "line N: ...".
    Chars run(const Node& root);

    Store& store() { return store_; }
    Value attribute(const Value& of, std::string_view name);
    Value item(const Value& of, const Value& key);
    Value call(const Value& function, const CallArguments& arguments);
    Value filter(std::string_view name, const Value& value, const CallArguments& arguments);
    bool test(std::string_view name, const Value& value, const CallArguments& arguments);
    /// The items of a loop over the value.
    std::vector<Value> items_of(const Value& value);
    bool contains(const Value& all, const Value& one);
    Value add(const Value& a, const Value& b);

  private:
    struct Scope {
        Scope* outer;
        std::vector<std::pair<const std::string*, Value>> names = {};
        bool loop = false;
    };
    enum class Flow : std::uint8_t { on, broke, continued };
    struct Nested;

    Value evaluate(const Node& node);
    Value slice(const Node& node);
    Value arithmetic(const std::string& sign, const Value& a, const Value& b);
    Value compare(const Node& node);
    Value collect(const Node& node);
    CallArguments arguments_of(const Node& node);
    Value look_up(const std::string& name);
    Value global(const std::string& name);
    Value make_range(const CallArguments& arguments);

    Flow execute(const Node& node);
    Flow loop(const Node& node);
    void write(const Value& value);
    void set(const Target& target, const Value& value);
    /// The name must outlive this.
    void set(const std::string& name, const Value& value);
    Value captured(const Node& body);
    Value with_filters(const Node& filters, const Value& value);
    Value macro(const Node& node, const Node& body, std::string name);
    Value call_macro(const Node& node, const Node& body, Scope* scope, const std::string& name,
                     const CallArguments& arguments);
    Scope* open(Scope* outer, bool is_loop = false);

    Store& store_;
    const std::map<std::string, Value>& context_;
    std::map<std::string, Value> globals_;
    std::tm now_;
    std::deque<Scope> scopes_;
    Scope* scope_ = nullptr;
    Chars* out_ = nullptr;
    int line_ = 0, nested_ = 0, generation_ = 0;
};

/// A method of a text, list or mapping; undefined: there is none of this name.
Value method_of(Runner& runner, const Value& of, std::string_view name);

/// "&" becomes "&amp;", and so on.
Chars escaped(CharSpan text);
CharSpan stripped(CharSpan text, const Value* characters, bool left, bool right);
Chars replaced(Store& store, CharSpan text, CharSpan old, CharSpan with, std::int64_t count);

}  // namespace mantissa::inline v0::jinja
