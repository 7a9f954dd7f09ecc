#include "mantissa/data/chat/template_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace mantissa::inline v0::jinja {

namespace {

constexpr int deepest_run = 600;  // nested calls of evaluate
constexpr std::int64_t longest_range = 100'000;

std::int64_t checked(bool overflows, std::int64_t value) {
    if (overflows) throw TemplateError("a number over 64 bits");
    return value;
}

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
    if (b == 0) throw TemplateError("a division by zero");
    if (b == -1) return checked(a == INT64_MIN, -a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

std::int64_t raised(std::int64_t base, std::int64_t exponent) {
    std::int64_t result = 1;
    for (; exponent > 0; --exponent) {
        if (base == 0 || base == 1) return base;
        const bool overflows = __builtin_mul_overflow(result, base, &result);
        checked(overflows, 0);
    }
    return result;
}

double real_of(const Value& value) {
    return value.is(Kind::real) ? value.real : static_cast<double>(value.integer);
}

}  // namespace

BoundArguments::BoundArguments(std::string_view function, const CallArguments& arguments,
                               std::initializer_list<std::string_view> names)
    : function_(function), names_(names), values_(names.size()) {
    if (arguments.positional.size() > names_.size())
        throw TemplateError(fmt::format("{}: too many arguments", function));
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
    for (const auto& [name, value] : arguments.named) {
        const auto place = std::ranges::find(names_, name);
        if (place == names_.end())
            throw TemplateError(fmt::format("{}: no argument is named \"{}\"", function, name));
        values_[static_cast<std::size_t>(place - names_.begin())] = &value;
    }
}

const Value& BoundArguments::needed(std::size_t parameter) const {
    if (!values_[parameter])
        throw TemplateError(fmt::format("{}: the argument \"{}\" is missing", function_, names_[parameter]));
    return *values_[parameter];
}

std::int64_t BoundArguments::number(std::size_t parameter, std::int64_t otherwise) const {
    const Value* const value = values_[parameter];
    if (!value || value->is(Kind::none)) return otherwise;
    if (!value->is(Kind::integer) && !value->is(Kind::boolean))
        throw TemplateError(
            fmt::format("{}: \"{}\" is {}, no integer", function_, names_[parameter], type_name(*value)));
    return value->integer;
}

const Value* BoundArguments::text(std::size_t parameter) const {
    const Value* const value = values_[parameter];
    if (!value || value->is(Kind::none)) return nullptr;
    if (!value->is(Kind::text))
        throw TemplateError(
            fmt::format("{}: \"{}\" is {}, no string", function_, names_[parameter], type_name(*value)));
    return value;
}

struct Runner::Nested {
    explicit Nested(Runner& runner) : runner_(runner) {
        if (++runner_.nested_ > deepest_run) throw TemplateError("calls are nested too deeply");
    }
    ~Nested() { --runner_.nested_; }
    Runner& runner_;
};

Runner::Runner(Store& store, const std::map<std::string, Value>& context, const std::tm& now)
    : store_(store), context_(context), now_(now) {}

Runner::Scope* Runner::open(Scope* outer, bool is_loop) {
    store_.making(8);
    return &scopes_.emplace_back(Scope{.outer = outer, .loop = is_loop});
}

Chars Runner::run(const Node& root) {
    Chars out;
    out_ = &out;
    scope_ = open(nullptr);
    try {
        execute(root);
    } catch (const TemplateError& error) {
        throw TemplateError(fmt::format("line {}: {}", line_, error.what()));
    }
    return out;
}

void Runner::write(const Value& value) {
    store_.making(value.is(Kind::text) ? value.chars->size() : 4);
    Chars own;
    if (!value.is(Kind::text)) own = to_text(value);
    for (const Char& c : value.is(Kind::text) ? value.text() : CharSpan(own))
        out_->push_back({c.code, generation_ ? c.origin.marked() : c.origin});
}

void Runner::set(const Target& target, const Value& value) {
    if (!target.several.empty()) {
        const std::vector<Value> items = items_of(value);
        if (items.size() != target.several.size())
            throw TemplateError(fmt::format("{} values for {} names", items.size(), target.several.size()));
        for (std::size_t i = 0; i < items.size(); ++i) set(target.several[i], items[i]);
        return;
    }
    if (!target.attribute.empty()) {
        const Value space = look_up(target.name);
        if (!space.is(Kind::space) || space.space->is_loop)
            throw TemplateError(fmt::format("{} is {}, no namespace", target.name, type_name(space)));
        if (target.attribute.starts_with('_'))
            throw TemplateError(fmt::format("{} cannot be set: it begins with _", target.attribute));
        space.space->set(target.attribute, value);
        return;
    }
    set(target.name, value);
}

void Runner::set(const std::string& name, const Value& value) {
    for (auto& [known, old] : scope_->names)
        if (*known == name) {
            old = value;
            return;
        }
    scope_->names.emplace_back(&name, value);
}

Value Runner::look_up(const std::string& name) {
    for (const Scope* scope = scope_; scope; scope = scope->outer)
        for (const auto& [known, value] : scope->names)
            if (known == &name || *known == name) return value;
    if (const auto found = context_.find(name); found != context_.end()) return found->second;
    return global(name);
}

Value Runner::captured(const Node& body) {
    Chars text;
    Chars* const outer = std::exchange(out_, &text);
    struct Restore {
        Chars** out;
        Chars* outer;
        ~Restore() { *out = outer; }
    } restore{&out_, outer};
    execute(body);
    return store_.text(std::move(text));
}

Value Runner::with_filters(const Node& filters, const Value& value) {
    const Value inner = filters.children[0] ? with_filters(*filters.children[0], value) : value;
    return filter(filters.name, inner, arguments_of(filters));
}

Value Runner::macro(const Node& node, const Node& body, std::string name) {
    Scope* const scope = scope_;
    return store_.function(name, [this, &node, &body, scope, name](const CallArguments& arguments) {
        return call_macro(node, body, scope, name, arguments);
    });
}

Value Runner::call_macro(const Node& node, const Node& body, Scope* scope, const std::string& name,
                         const CallArguments& arguments) {
    const Nested nested(*this);
    static const std::string varargs = "varargs", kwargs = "kwargs", caller = "caller";
    Scope* const inside = open(scope);
    Scope* const outside = std::exchange(scope_, inside);
    struct Restore {
        Scope** scope;
        Scope* outside;
        ~Restore() { *scope = outside; }
    } restore{&scope_, outside};
    const std::size_t given = arguments.positional.size(), known = node.names.size();
    std::vector<const Value*> values(known);
    for (std::size_t i = 0; i < std::min(given, known); ++i) values[i] = &arguments.positional[i];
    std::vector<std::pair<Value, Value>> others;
    for (const auto& [key, value] : arguments.named) {
        const auto place = std::ranges::find(node.names, key);
        if (key == caller && place == node.names.end()) {
            inside->names.emplace_back(&caller, value);
        } else if (place == node.names.end()) {
            others.emplace_back(store_.text(key), value);
        } else {
            const Value*& into = values[static_cast<std::size_t>(place - node.names.begin())];
            if (into) throw TemplateError(fmt::format("{}: \"{}\" is given twice", name, key));
            into = &value;
        }
    }
    for (std::size_t i = 0; i < known; ++i) {
        const std::size_t first_default = known - node.defaults.size();
        inside->names.emplace_back(&node.names[i], values[i] ? *values[i]
                                                   : i >= first_default
                                                       ? evaluate(*node.defaults[i - first_default])
                                                       : store_.undefined(node.names[i]));
    }
    std::vector<Value> rest;
    if (given > known)
        rest.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(known),
                    arguments.positional.end());
    inside->names.emplace_back(&varargs, store_.list(std::move(rest), Form::tuple));
    inside->names.emplace_back(&kwargs, store_.dict(std::move(others)));
    return captured(body);
}

Runner::Flow Runner::execute(const Node& node) {
    const Nested nested(*this);
    store_.step();
    line_ = node.line;
    switch (node.syntax) {
        case Syntax::data:
            write(node.constant);
            return Flow::on;
        case Syntax::output:
            write(evaluate(*node.children[0]));
            return Flow::on;
        case Syntax::block:
            for (const NodePointer& child : node.children)
                if (const Flow flow = execute(*child); flow != Flow::on) return flow;
            return Flow::on;
        case Syntax::branch:
            for (std::size_t i = 0; i + 1 < node.children.size(); i += 2)
                if (truth(evaluate(*node.children[i]))) return execute(*node.children[i + 1]);
            return node.children.size() % 2 ? execute(*node.children.back()) : Flow::on;
        case Syntax::loop:
            return loop(node);
        case Syntax::assignment:
            set(node.target, evaluate(*node.children[0]));
            return Flow::on;
        case Syntax::assigned_block: {
            Value value = captured(*node.children[0]);
            if (node.children[1]) value = with_filters(*node.children[1], value);
            set(node.target, value);
            return Flow::on;
        }
        case Syntax::macro:
            set(node.name, macro(node, *node.children[0], node.name));
            return Flow::on;
        case Syntax::call_block: {
            const Node& called = *node.children[0];
            CallArguments arguments = arguments_of(called);
            arguments.named.emplace_back("caller", macro(node, *node.children[1], "caller"));
            write(call(evaluate(*called.children[0]), arguments));
            return Flow::on;
        }
        case Syntax::filter_block:
            write(with_filters(*node.children[0], captured(*node.children[1])));
            return Flow::on;
        case Syntax::generation: {
            ++generation_;
            const Flow flow = execute(*node.children[0]);
            --generation_;
            return flow;
        }
        case Syntax::with: {
            std::vector<Value> values;
            for (std::size_t i = 0; i + 1 < node.children.size(); ++i)
                values.push_back(evaluate(*node.children[i]));
            Scope* const outer = std::exchange(scope_, open(scope_));
            for (std::size_t i = 0; i < values.size(); ++i) set(node.target.several[i], values[i]);
            const Flow flow = execute(*node.children.back());
            scope_ = outer;
            return flow;
        }
        case Syntax::break_loop:
            return Flow::broke;
        case Syntax::continue_loop:
            return Flow::continued;
        default:
            throw InternalError("an expression stands where a statement should");
    }
}

Runner::Flow Runner::loop(const Node& node) {
    static const std::string name = "loop";
    Scope* const outer = scope_;
    std::vector<Value> items = items_of(evaluate(*node.children[0]));
    if (node.children[1]) {
        std::vector<Value> taken;
        for (const Value& item : items) {
            scope_ = open(outer);
            set(node.target, item);
            if (truth(evaluate(*node.children[1]))) taken.push_back(item);
        }
        items = std::move(taken);
    }
    const auto count = static_cast<std::int64_t>(items.size());
    auto changed_from = std::make_shared<std::vector<Value>>();
    auto ever = std::make_shared<bool>(false);
    bool ran_through = false;
    for (std::int64_t i = 0; i < count; ++i) {
        store_.step();
        scope_ = open(outer, true);
        const Value about = store_.space(true);
        const auto at = static_cast<std::size_t>(i);
        about.space->attributes = {
            {"index", integer(i + 1)},        {"index0", integer(i)},
            {"revindex", integer(count - i)}, {"revindex0", integer(count - i - 1)},
            {"first", boolean(i == 0)},       {"last", boolean(i + 1 == count)},
            {"length", integer(count)},       {"depth", integer(1)},
            {"depth0", integer(0)},
        };
        if (i > 0) about.space->set("previtem", items[at - 1]);
        if (i + 1 < count) about.space->set("nextitem", items[at + 1]);
        about.space->set("cycle", store_.function("cycle", [i](const CallArguments& arguments) {
            if (arguments.positional.empty()) throw TemplateError("cycle: no items");
            return arguments.positional[static_cast<std::size_t>(i) % arguments.positional.size()];
        }));
        about.space->set("changed", store_.function("changed", [=](const CallArguments& arguments) {
            const bool same =
                *ever && std::ranges::equal(*changed_from, arguments.positional,
                                            [](const Value& a, const Value& b) { return equal(a, b); });
            *changed_from = arguments.positional;
            *ever = true;
            return boolean(!same);
        }));
        scope_->names.emplace_back(&name, about);
        set(node.target, items[at]);
        const Flow flow = execute(*node.children[2]);
        if (flow == Flow::broke) break;
        if (flow == Flow::on) ran_through = true;
    }
    Flow flow = Flow::on;
    if (!ran_through && node.children[3]) {  // as in Jinja2: also if every item continued
        scope_ = open(outer);
        flow = execute(*node.children[3]);
    }
    scope_ = outer;
    return flow;
}

CallArguments Runner::arguments_of(const Node& node) {
    CallArguments arguments;
    for (const NodePointer& argument : node.arguments) arguments.positional.push_back(evaluate(*argument));
    if (node.rest)
        for (const Value& value : items_of(evaluate(*node.rest))) arguments.positional.push_back(value);
    for (const auto& [name, argument] : node.named) arguments.named.emplace_back(name, evaluate(*argument));
    if (node.named_rest) {
        const Value rest = evaluate(*node.named_rest);
        if (!rest.is(Kind::dict)) throw TemplateError("what follows ** is no mapping");
        for (const auto& [key, value] : rest.dict->items)
            arguments.named.emplace_back(utf8_of(to_text(key)), value);
    }
    return arguments;
}

Value Runner::evaluate(const Node& node) {
    const Nested nested(*this);
    store_.step();
    line_ = node.line;
    const auto child = [&](std::size_t i) { return evaluate(*node.children[i]); };
    switch (node.syntax) {
        case Syntax::constant:
            return node.constant;
        case Syntax::name:
            return look_up(node.name);
        case Syntax::attribute:
            return attribute(child(0), node.name);
        case Syntax::item: {
            const Value of = child(0);
            return item(of, child(1));
        }
        case Syntax::slice:
            return slice(node);
        case Syntax::call: {
            const Value function = child(0);
            const CallArguments arguments = arguments_of(node);
            line_ = node.line;
            return call(function, arguments);
        }
        case Syntax::filter: {
            const Value value = child(0);
            return filter(node.name, value, arguments_of(node));
        }
        case Syntax::test: {
            const Value value = child(0);
            return boolean(test(node.name, value, arguments_of(node)));
        }
        case Syntax::negative:
        case Syntax::positive: {
            const Value value = child(0);
            const bool negates = node.syntax == Syntax::negative;
            if (value.is(Kind::real)) return real(negates ? -value.real : value.real, value.origin);
            if (!value.is_number()) throw TemplateError(fmt::format("{} has no sign", type_name(value)));
            return integer(negates ? checked(value.integer == INT64_MIN, -value.integer) : value.integer,
                           value.origin);
        }
        case Syntax::negation:
            return boolean(!truth(child(0)));
        case Syntax::both: {
            const Value left = child(0);
            return truth(left) ? child(1) : left;
        }
        case Syntax::either: {
            const Value left = child(0);
            return truth(left) ? left : child(1);
        }
        case Syntax::arithmetic: {
            const Value left = child(0), right = child(1);
            return node.name == "+" ? add(left, right) : arithmetic(node.name, left, right);
        }
        case Syntax::concatenation: {
            Chars text;
            for (std::size_t i = 0; i < node.children.size(); ++i) {
                const Chars part = to_text(child(i));
                text.insert(text.end(), part.begin(), part.end());
            }
            return store_.text(std::move(text));
        }
        case Syntax::comparison:
            return compare(node);
        case Syntax::conditional:
            if (truth(child(0))) return child(1);
            return node.children[2] ? child(2) : store_.undefined("a condition without else");
        default:
            return collect(node);
    }
}

Value Runner::collect(const Node& node) {
    if (node.syntax == Syntax::dict) {
        std::vector<std::pair<Value, Value>> items;
        for (std::size_t i = 0; i + 1 < node.children.size(); i += 2) {
            const Value key = evaluate(*node.children[i]);
            const Value value = evaluate(*node.children[i + 1]);
            const auto same =
                std::ranges::find_if(items, [&](const auto& item) { return equal(item.first, key); });
            if (same == items.end())
                items.emplace_back(key, value);
            else
                same->second = value;
        }
        return store_.dict(std::move(items));
    }
    if (node.syntax != Syntax::list && node.syntax != Syntax::tuple)
        throw InternalError("a statement stands where an expression should");
    std::vector<Value> items;
    for (const NodePointer& child : node.children) items.push_back(evaluate(*child));
    return store_.list(std::move(items), node.syntax == Syntax::list ? Form::list : Form::tuple);
}

Value Runner::compare(const Node& node) {
    Value left = evaluate(*node.children[0]);
    for (std::size_t i = 0; i < node.names.size(); ++i) {
        const std::string& sign = node.names[i];
        const Value right = evaluate(*node.children[i + 1]);
        bool holds = false;
        if (sign == "==" || sign == "!=")
            holds = equal(left, right) == (sign == "==");
        else if (sign == "in" || sign == "notin")
            holds = contains(right, left) == (sign == "in");
        else if (sign == "<" || sign == ">=")
            holds = less(left, right) == (sign == "<");
        else
            holds = less(right, left) == (sign == ">");
        if (!holds) return boolean(false);
        left = right;
    }
    return boolean(true);
}

bool Runner::contains(const Value& all, const Value& one) {
    store_.step(4);
    switch (all.kind) {
        case Kind::undefined:
            return false;
        case Kind::text: {
            if (!one.is(Kind::text))
                throw TemplateError(fmt::format("{} cannot be in a string", type_name(one)));
            store_.step(all.chars->size() / 16);
            return !std::ranges::search(all.text(), one.text(), {}, &Char::code, &Char::code).empty() ||
                   one.chars->empty();
        }
        case Kind::list:
            store_.step(all.list->items.size() / 4);
            return std::ranges::any_of(all.list->items, [&](const Value& item) { return equal(item, one); });
        case Kind::dict:
            return all.dict->find(one) != nullptr;
        default:
            throw TemplateError(fmt::format("nothing is in {}", type_name(all)));
    }
}

Value Runner::add(const Value& a, const Value& b) {
    if (a.is(Kind::text) && b.is(Kind::text)) {
        Chars text = a.markup || !b.markup ? *a.chars : escaped(a.text());
        const Chars behind = b.markup || !a.markup ? *b.chars : escaped(b.text());
        text.insert(text.end(), behind.begin(), behind.end());
        return store_.text(std::move(text), a.markup || b.markup);
    }
    if (a.is(Kind::list) && b.is(Kind::list) && a.list->form == b.list->form && a.list->form <= Form::tuple) {
        std::vector<Value> items = a.list->items;
        items.insert(items.end(), b.list->items.begin(), b.list->items.end());
        return store_.list(std::move(items), a.list->form);
    }
    return arithmetic("+", a, b);
}

Value Runner::arithmetic(const std::string& sign, const Value& a, const Value& b) {
    const auto repeats = [](const Value& value) {
        return value.is(Kind::integer) || value.is(Kind::boolean);
    };
    if (sign == "*" && (repeats(a) || repeats(b)) && !(a.is_number() && b.is_number())) {
        const Value& of = repeats(a) ? b : a;
        const std::int64_t times = std::max<std::int64_t>(0, (repeats(a) ? a : b).integer);
        if (of.is(Kind::text)) {
            const std::uint64_t size = of.chars->size();
            if (size && static_cast<std::uint64_t>(times) > 1'000'000'000 / size)
                throw TemplateError("a string over 1,000,000,000 characters");
            store_.making(size * static_cast<std::uint64_t>(times));
            Chars text;
            for (std::int64_t i = 0; i < times && size; ++i)
                text.insert(text.end(), of.chars->begin(), of.chars->end());
            return store_.text(std::move(text), of.markup);
        }
        if (of.is(Kind::list) && of.list->form <= Form::tuple) {
            std::vector<Value> items;
            for (std::int64_t i = 0; i < times && !of.list->items.empty(); ++i) {
                store_.making(of.list->items.size());
                items.insert(items.end(), of.list->items.begin(), of.list->items.end());
            }
            return store_.list(std::move(items), of.list->form);
        }
    }
    if ((a.is_number() || a.is(Kind::long_integer)) && (b.is_number() || b.is(Kind::long_integer)))
        checked(a.is(Kind::long_integer) || b.is(Kind::long_integer), 0);
    if (!a.is_number() || !b.is_number())
        throw TemplateError(
            a.is(Kind::undefined) && a.name ? fmt::format("{} is undefined", *a.name)
            : b.is(Kind::undefined) && b.name
                ? fmt::format("{} is undefined", *b.name)
                : fmt::format("{} {} {} has no meaning here", type_name(a), sign, type_name(b)));
    const bool in_reals = a.is(Kind::real) || b.is(Kind::real);
    const double x = real_of(a), y = real_of(b);
    if (sign == "/") {
        if (y == 0) throw TemplateError("a division by zero");
        return real(x / y);
    }
    if (sign == "**" && (in_reals || b.integer < 0)) return real(std::pow(x, y));
    if (in_reals) {
        if (sign == "+") return real(x + y);
        if (sign == "-") return real(x - y);
        if (sign == "*") return real(x * y);
        if (y == 0) throw TemplateError("a division by zero");
        if (sign == "//") return real(std::floor(x / y));
        const double rest = std::fmod(x, y);
        return real(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
    }
    std::int64_t result = 0;
    bool overflows = false;
    if (sign == "+") overflows = __builtin_add_overflow(a.integer, b.integer, &result);
    if (sign == "-") overflows = __builtin_sub_overflow(a.integer, b.integer, &result);
    if (sign == "*") overflows = __builtin_mul_overflow(a.integer, b.integer, &result);
    if (sign == "+" || sign == "-" || sign == "*") return integer(checked(overflows, result));
    if (sign == "**") return integer(raised(a.integer, b.integer));
    const std::int64_t quotient = floor_divided(a.integer, b.integer);
    return integer(sign == "//" ? quotient : a.integer - quotient * b.integer);
}

Value Runner::slice(const Node& node) {
    const Value of = evaluate(*node.children[0]);
    std::int64_t bound[3] = {};
    bool given[3] = {};
    for (std::size_t i = 0; i < 3; ++i) {
        if (!node.children[i + 1]) continue;
        const Value value = evaluate(*node.children[i + 1]);
        if (value.is(Kind::none)) continue;
        if (!value.is(Kind::integer) && !value.is(Kind::boolean))
            throw TemplateError(fmt::format("{} bounds no slice", type_name(value)));
        bound[i] = value.integer;
        given[i] = true;
    }
    if (of.is(Kind::undefined))
        throw TemplateError(fmt::format("{} is undefined", of.name ? *of.name : "a value"));
    const bool is_text = of.is(Kind::text);
    if (!is_text && !(of.is(Kind::list) && (of.list->form <= Form::tuple || of.list->form == Form::range)))
        return store_.undefined(fmt::format("a slice of {}", type_name(of)));
    const auto size = static_cast<std::int64_t>(is_text ? of.chars->size() : of.list->items.size());
    const std::int64_t step = given[2] ? bound[2] : 1;
    if (step == 0) throw TemplateError("a slice of step 0");
    const auto place = [&](std::int64_t at) {
        if (at < 0) at += size;
        return step > 0 ? std::clamp<std::int64_t>(at, 0, size) : std::clamp<std::int64_t>(at, -1, size - 1);
    };
    const std::int64_t begin = given[0] ? place(bound[0]) : step > 0 ? 0 : size - 1;
    const std::int64_t end = given[1] ? place(bound[1]) : step > 0 ? size : -1;
    std::vector<std::size_t> taken;
    for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
        taken.push_back(static_cast<std::size_t>(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    store_.making(taken.size());
    if (is_text) {
        Chars text;
        for (const std::size_t i : taken) text.push_back(of.text()[i]);
        Value part = store_.text(std::move(text), of.markup);
        if (part.chars->empty()) part.origin = of.origin;
        return part;
    }
    std::vector<Value> items;
    for (const std::size_t i : taken) items.push_back(of.list->items[i]);
    return store_.list(std::move(items), of.list->form, of.origin);
}

Value Runner::attribute(const Value& of, std::string_view name) {
    if (of.is(Kind::undefined))
        throw TemplateError(
            fmt::format("{} is undefined, and has no {}", of.name ? *of.name : "a value", name));
    if (of.is(Kind::space)) {
        if (const Value* const found = of.space->find(name)) return *found;
    } else if (const Value method = method_of(*this, of, name); !method.is(Kind::undefined)) {
        return method;
    } else if (of.is(Kind::dict)) {
        if (const Value* const found = of.dict->find(name)) return *found;
    }
    return store_.undefined(std::string(name));
}

Value Runner::item(const Value& of, const Value& key) {
    if (of.is(Kind::undefined))
        throw TemplateError(fmt::format("{} is undefined, and has no items", of.name ? *of.name : "a value"));
    if (of.is(Kind::dict)) {
        if (const Value* const found = of.dict->find(key)) return *found;
    } else if ((of.is(Kind::text) ||
                (of.is(Kind::list) && (of.list->form <= Form::tuple || of.list->form == Form::range))) &&
               (key.is(Kind::integer) || key.is(Kind::boolean))) {
        const auto size =
            static_cast<std::int64_t>(of.is(Kind::text) ? of.chars->size() : of.list->items.size());
        const std::int64_t at = key.integer < 0 ? key.integer + size : key.integer;
        if (at >= 0 && at < size) {
            const auto place = static_cast<std::size_t>(at);
            return of.is(Kind::list) ? of.list->items[place]
                                     : store_.text(Chars{of.text()[place]}, of.markup);
        }
    }
    if (key.is(Kind::text)) {
        const std::string name = utf8_of(key.text());
        if (of.is(Kind::space)) {
            if (const Value* const found = of.space->find(name)) return *found;
        } else if (const Value method = method_of(*this, of, name); !method.is(Kind::undefined)) {
            return method;
        }
        return store_.undefined(name);
    }
    return store_.undefined("an item");
}

Value Runner::call(const Value& function, const CallArguments& arguments) {
    if (function.is(Kind::undefined))
        throw TemplateError(
            fmt::format("{} is undefined, and cannot be called", function.name ? *function.name : "a value"));
    if (!function.is(Kind::function))
        throw TemplateError(fmt::format("{} cannot be called", type_name(function)));
    return function.function->call(arguments);
}

std::vector<Value> Runner::items_of(const Value& value) {
    std::vector<Value> items;
    switch (value.kind) {
        case Kind::undefined:
            break;
        case Kind::text:
            for (const Char& c : value.text()) items.push_back(store_.text(Chars{c}));
            break;
        case Kind::list:
            items = value.list->items;
            break;
        case Kind::dict:
            for (const auto& [key, item] : value.dict->items) items.push_back(key);
            break;
        default:
            throw TemplateError(fmt::format("{} cannot be gone through", type_name(value)));
    }
    store_.making(2 * items.size());
    return items;
}

Value Runner::make_range(const CallArguments& arguments) {
    const BoundArguments bound("range", arguments, {"a", "b", "c"});
    bound.needed(0);
    const std::int64_t begin = bound[1] ? bound.number(0, 0) : 0,
                       end = bound[1] ? bound.number(1, 0) : bound.number(0, 0), step = bound.number(2, 1);
    if (step == 0) throw TemplateError("range: a step of 0");
    std::vector<Value> items;
    for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
        items.push_back(integer(i));
        if (static_cast<std::int64_t>(items.size()) > longest_range)
            throw TemplateError(fmt::format("range: more than {} numbers", longest_range));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return store_.list(std::move(items), Form::range);
}

Value Runner::global(const std::string& name) {
    if (const auto found = globals_.find(name); found != globals_.end()) return found->second;
    std::function<Value(const CallArguments&)> call;
    if (name == "range") {
        call = [this](const CallArguments& arguments) { return make_range(arguments); };
    } else if (name == "namespace" || name == "dict") {
        const bool is_space = name == "namespace";
        call = [this, is_space](const CallArguments& arguments) {
            std::vector<std::pair<Value, Value>> items;
            for (const Value& from : arguments.positional) {
                if (!from.is(Kind::dict))
                    throw TemplateError(fmt::format("{} is no mapping", type_name(from)));
                items.insert(items.end(), from.dict->items.begin(), from.dict->items.end());
            }
            for (const auto& [key, value] : arguments.named) items.emplace_back(store_.text(key), value);
            if (!is_space) return store_.dict(std::move(items));
            const Value space = store_.space();
            for (const auto& [key, value] : items) {
                const std::string attribute = utf8_of(to_text(key));
                if (attribute.starts_with('_'))
                    throw TemplateError(fmt::format("{} cannot be set: it begins with _", attribute));
                space.space->set(attribute, value);
            }
            return space;
        };
    } else if (name == "raise_exception") {
        call = [](const CallArguments& arguments) -> Value {
            const BoundArguments bound("raise_exception", arguments, {"message"});
            throw TemplateError(
                fmt::format("the template refuses it: {}", utf8_of(to_text(bound.needed(0)))));
        };
    } else if (name == "strftime_now") {
        call = [this](const CallArguments& arguments) {
            const BoundArguments bound("strftime_now", arguments, {"format"});
            bound.needed(0);
            const std::string format = utf8_of(bound.text(0)->text());
            if (format.empty() || format.size() > 1000) return store_.text("");
            std::string text(format.size() * 64 + 64, '\0');
            text.resize(std::strftime(text.data(), text.size(), format.c_str(), &now_));
            return store_.text(text);
        };
    } else {
        return store_.undefined(name);
    }
    return globals_[name] = store_.function(name, std::move(call));
}

}  // namespace mantissa::inline v0::jinja
