// The filters and tests of Jinja2 that chat templates use; tojson is transformers'.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "mantissa/data/chat/letter_case.h"
#include "mantissa/data/chat/template_run.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0::jinja {

namespace {

using Call = const CallArguments&;

Value lower_for_order(Store& store, const Value& value) {
    return value.is(Kind::text) ? store.text(to_lower(value.text())) : value;
}

/// The item at a path such as "function.name"; integers are indexes.
Value at_path(Runner& runner, Value value, const Value& path) {
    if (!path.is(Kind::text)) return runner.item(value, path);
    const std::string all = utf8_of(path.text());
    for (std::size_t at = 0; at <= all.size();) {
        const std::size_t end = std::min(all.find('.', at), all.size());
        const std::string part = all.substr(at, end - at);
        std::int64_t place = 0;
        const auto read = std::from_chars(part.data(), part.data() + part.size(), place);
        const bool is_place = !part.empty() && part[0] != '-' && read.ptr == part.data() + part.size() &&
                              read.ec == std::errc{};
        value = runner.item(value, is_place ? integer(place) : runner.store().text(part));
        at = end + 1;
    }
    return value;
}

Value length(const Value& value) {
    switch (value.kind) {
        case Kind::undefined:
            return integer(0);
        case Kind::text:
            return integer(std::ssize(*value.chars));
        case Kind::dict:
            return integer(std::ssize(value.dict->items));
        case Kind::list:
            if (value.list->form != Form::generator) return integer(std::ssize(value.list->items));
            break;
        default:
            break;
    }
    throw TemplateError(fmt::format("{} has no length", type_name(value)));
}

Value default_of(const Value& value, Call call, Store& store) {
    const BoundArguments bound("default", call, {"default_value", "boolean"});
    if (!value.is(Kind::undefined) && !(bound.flag(1, false) && !truth(value))) return value;
    return bound[0] ? *bound[0] : store.text("");
}

Value items_of_dict(Runner& runner, const Value& value) {
    std::vector<Value> items;
    if (!value.is(Kind::undefined)) {
        if (!value.is(Kind::dict))
            throw TemplateError(fmt::format("items: {} is no mapping", type_name(value)));
        for (const auto& [key, item] : value.dict->items)
            items.push_back(runner.store().list({key, item}, Form::tuple, value.origin));
    }
    return runner.store().list(std::move(items), Form::generator);
}

Value join(Runner& runner, const Value& value, Call call) {
    const BoundArguments bound("join", call, {"d", "attribute"});
    const Chars between = bound[0] ? to_text(*bound[0]) : Chars{};
    Chars out;
    bool first = true;
    for (const Value& item : runner.items_of(value)) {
        if (!first) out.insert(out.end(), between.begin(), between.end());
        first = false;
        const Chars text = to_text(bound[1] ? at_path(runner, item, *bound[1]) : item);
        out.insert(out.end(), text.begin(), text.end());
        runner.store().step(1 + text.size() / 64);
    }
    return runner.store().text(std::move(out));
}

template <class KeyOf>
std::vector<Value> sorted(std::vector<Value> items, bool reverse, KeyOf key_of) {
    std::vector<std::pair<Value, Value>> keyed;
    for (const Value& item : items) keyed.emplace_back(key_of(item), item);
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
        return reverse ? less(b.first, a.first) : less(a.first, b.first);
    });
    for (std::size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
    return items;
}

Value dictsort(Runner& runner, const Value& value, Call call) {
    const BoundArguments bound("dictsort", call, {"case_sensitive", "by", "reverse"});
    if (!value.is(Kind::dict))
        throw TemplateError(fmt::format("dictsort: {} is no mapping", type_name(value)));
    const Value* const by = bound.text(1);
    const bool by_value = by && same_text(by->text(), "value");
    if (by && !by_value && !same_text(by->text(), "key"))
        throw TemplateError("dictsort: sorts by \"key\" or \"value\"");
    const std::vector<Value> items = items_of_dict(runner, value).list->items;
    runner.store().step(items.size() * 8);
    return runner.store().list(sorted(items, bound.flag(2, false), [&](const Value& item) {
        const Value& key = item.list->items[by_value ? 1 : 0];
        return bound.flag(0, false) ? key : lower_for_order(runner.store(), key);
    }));
}

/// sort, unique, min, max.
Value in_order(Runner& runner, std::string_view name, const Value& value, Call call) {
    const bool sorts = name == "sort";
    const BoundArguments bound = sorts
                                     ? BoundArguments(name, call, {"case_sensitive", "attribute", "reverse"})
                                     : BoundArguments(name, call, {"case_sensitive", "attribute"});
    const auto key_of = [&](const Value& item) {
        const Value key = bound[1] && !bound[1]->is(Kind::none) ? at_path(runner, item, *bound[1]) : item;
        return bound.flag(0, false) ? key : lower_for_order(runner.store(), key);
    };
    const std::vector<Value> items = runner.items_of(value);
    runner.store().step(items.size() * 8);
    if (name == "unique") {
        std::vector<Value> keys, taken;
        for (const Value& item : items) {
            const Value key = key_of(item);
            runner.store().step(keys.size() / 4);
            if (std::ranges::any_of(keys, [&](const Value& known) { return equal(known, key); })) continue;
            keys.push_back(key);
            taken.push_back(item);
        }
        return runner.store().list(std::move(taken), Form::generator);
    }
    if (sorts) return runner.store().list(sorted(items, bound.flag(2, false), key_of));
    if (items.empty()) return runner.store().undefined("what an empty list has");
    const auto before = [&](const Value& a, const Value& b) { return less(key_of(a), key_of(b)); };
    if (name == "min") return *std::min_element(items.begin(), items.end(), before);
    std::size_t most = 0;  // the first of equal ones
    for (std::size_t i = 1; i < items.size(); ++i)
        if (before(items[most], items[i])) most = i;
    return items[most];
}

CallArguments behind(Call call, std::size_t first) {
    CallArguments rest;
    if (call.positional.size() > first)
        rest.positional.assign(call.positional.begin() + static_cast<std::ptrdiff_t>(first),
                               call.positional.end());
    rest.named = call.named;
    return rest;
}

std::string name_in(Call call, std::size_t place, std::string_view filter) {
    if (place >= call.positional.size() || !call.positional[place].is(Kind::text))
        throw TemplateError(fmt::format("{}: a name is missing", filter));
    return utf8_of(call.positional[place].text());
}

Value map(Runner& runner, const Value& value, Call call) {
    std::vector<Value> out;
    if (call.positional.empty()) {
        const BoundArguments bound("map", call, {"attribute", "default"});
        const Value path = bound.needed(0);
        for (const Value& item : runner.items_of(value)) {
            const Value found = at_path(runner, item, path);
            out.push_back(found.is(Kind::undefined) && bound[1] ? *bound[1] : found);
        }
    } else {
        const std::string name = name_in(call, 0, "map");
        const CallArguments rest = behind(call, 1);
        for (const Value& item : runner.items_of(value)) out.push_back(runner.filter(name, item, rest));
    }
    return runner.store().list(std::move(out), Form::generator);
}

/// select, reject, selectattr, rejectattr.
Value select(Runner& runner, std::string_view name, const Value& value, Call call) {
    const bool by_attribute = name.ends_with("attr"), keeps = name.starts_with("select");
    const std::size_t place = by_attribute ? 1 : 0;
    std::vector<Value> out;
    if (by_attribute && call.positional.empty())
        throw TemplateError(fmt::format("{}: the attribute is missing", name));
    const bool tests = call.positional.size() > place;
    const std::string test = tests ? name_in(call, place, name) : "";
    const CallArguments rest = behind(call, place + 1);
    for (const Value& item : truth(value) ? runner.items_of(value) : std::vector<Value>{}) {
        const Value looked_at = by_attribute ? at_path(runner, item, call.positional[0]) : item;
        const bool holds = tests ? runner.test(test, looked_at, rest) : truth(looked_at);
        if (holds == keeps) out.push_back(item);
    }
    return runner.store().list(std::move(out), Form::generator);
}

Value title(Store& store, CharSpan text) {
    static constexpr std::u32string_view breaks = U"-({[<";
    Chars out;
    for (std::size_t at = 0; at < text.size();) {
        const auto breaks_words = [&](std::size_t i) {
            return is_white(text[i].code) || breaks.find(text[i].code) != breaks.npos;
        };
        std::size_t end = at;
        while (end < text.size() && breaks_words(end) == breaks_words(at)) ++end;
        const Chars first = to_upper(text.subspan(at, 1)),
                    rest = to_lower(text.subspan(at + 1, end - at - 1));
        out.insert(out.end(), first.begin(), first.end());
        out.insert(out.end(), rest.begin(), rest.end());
        at = end;
    }
    return store.text(std::move(out));
}

Value indent(Runner& runner, const Value& value, Call call) {
    const BoundArguments bound("indent", call, {"width", "first", "blank"});
    Chars space = Chars(4, Char{' ', {}});
    if (bound[0] && bound[0]->is(Kind::text))
        space = *bound[0]->chars;
    else if (bound[0])
        space.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(bound.number(0, 4), 0, 1000)),
                     {' ', {}});
    const Value text = runner.store().text(to_text(value));
    const Value whole = runner.add(text, runner.store().text("\n"));
    const Value lines = runner.call(method_of(runner, whole, "splitlines"), {});
    Chars out;
    for (std::size_t i = 0; i < lines.list->items.size(); ++i) {
        const CharSpan line = lines.list->items[i].text();
        if (i) out.push_back({'\n', {}});
        if (i ? bound.flag(2, false) || !line.empty() : bound.flag(1, false))
            out.insert(out.end(), space.begin(), space.end());
        out.insert(out.end(), line.begin(), line.end());
        runner.store().making(space.size());
    }
    return runner.store().text(std::move(out));
}

std::optional<double> number_in(const Value& value) {
    if (value.is(Kind::real)) return value.real;
    if (value.is_number()) return static_cast<double>(value.integer);
    if (!value.is(Kind::text)) return std::nullopt;
    const std::string text = utf8_of(stripped(value.text(), nullptr, true, true));
    const std::size_t sign = text.starts_with('+') ? 1 : 0;
    double number = 0;
    const auto read = std::from_chars(text.data() + sign, text.data() + text.size(), number);
    if (read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
    return number;
}

Value to_integer(const Value& value, Call call) {
    const BoundArguments bound("int", call, {"default", "base"});
    if (bound.number(1, 10) != 10) throw TemplateError("int: only base 10 is supported");
    if (value.is(Kind::integer) || value.is(Kind::boolean)) return integer(value.integer, value.origin);
    if (value.is(Kind::text)) {
        const std::string text = utf8_of(stripped(value.text(), nullptr, true, true));
        std::int64_t whole = 0;
        const char* const end = text.data() + text.size();
        const auto read = std::from_chars(text.data() + text.starts_with('+'), end, whole);
        if (read.ptr == end && read.ec == std::errc{}) return integer(whole, value.origin);
    }
    const std::optional<double> number = number_in(value);
    const bool is_long = value.is(Kind::long_integer) || (number && std::abs(*number) >= 0x1p63);
    if (is_long && !(number && std::isinf(*number))) throw TemplateError("int: a number over 64 bits");
    if (!number || !std::isfinite(*number)) return bound[0] ? *bound[0] : integer(0);
    return integer(static_cast<std::int64_t>(*number), value.origin);
}

Value rounded(const Value& value, Call call) {
    const BoundArguments bound("round", call, {"precision", "method"});
    const std::int64_t digits = bound.number(0, 0);
    const Value* const method = bound.text(1);
    if (!value.is_number()) throw TemplateError(fmt::format("round: {} is no number", type_name(value)));
    const double scale = std::pow(10.0, static_cast<double>(digits)), number = *number_in(value);
    if (!method || same_text(method->text(), "common")) {
        if (digits == 0) return real(std::nearbyint(number));
        return real(std::stod(fmt::format("{:.{}f}", number, std::clamp<std::int64_t>(digits, 0, 17))));
    }
    const bool up = same_text(method->text(), "ceil");
    return real((up ? std::ceil(number * scale) : std::floor(number * scale)) / scale);
}

Value json(Store& store, const Value& value, Call call) {
    const BoundArguments bound("tojson", call, {"ensure_ascii", "indent", "separators", "sort_keys"});
    Chars out;
    append_json(out, value, json_style(bound.flag(0, false), bound[1], bound[2], bound.flag(3, false)));
    return store.text(std::move(out));
}

}  // namespace

Value Runner::filter(std::string_view name, const Value& value, const CallArguments& call) {
    store_.step();
    if (name == "tojson") return json(store_, value, call);
    if (name == "length" || name == "count") return length(value);
    if (name == "default" || name == "d") return default_of(value, call, store_);
    if (name == "items") return items_of_dict(*this, value);
    if (name == "join") return join(*this, value, call);
    if (name == "dictsort") return dictsort(*this, value, call);
    if (name == "map") return map(*this, value, call);
    if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
        return select(*this, name, value, call);
    if (name == "list") return store_.list(items_of(value), Form::list, value.origin);
    if (name == "sort" || name == "unique" || name == "min" || name == "max")
        return in_order(*this, name, value, call);
    if (name == "int") return to_integer(value, call);
    if (name == "float") {
        const BoundArguments bound("float", call, {"default"});
        const std::optional<double> number = number_in(value);
        return number ? real(*number, value.origin) : bound[0] ? *bound[0] : real(0);
    }
    if (name == "round") return rounded(value, call);
    if (name == "abs") {
        if (value.is(Kind::real)) return real(std::abs(value.real), value.origin);
        if (value.is_number() && value.integer == INT64_MIN)
            throw TemplateError("abs: a number over 64 bits");
        if (value.is_number()) return integer(std::abs(value.integer), value.origin);
        throw TemplateError(fmt::format("abs: {} is no number", type_name(value)));
    }
    if (name == "sum") {
        const BoundArguments bound("sum", call, {"attribute", "start"});
        Value total = bound[1] ? *bound[1] : integer(0);
        for (const Value& item : items_of(value))
            total =
                add(total, bound[0] && !bound[0]->is(Kind::none) ? at_path(*this, item, *bound[0]) : item);
        return total;
    }
    if (name == "first" || name == "last") {
        const std::vector<Value> items = items_of(value);
        if (items.empty()) return store_.undefined("what an empty list has");
        return name == "first" ? items.front() : items.back();
    }
    if (name == "reverse") {
        std::vector<Value> items = items_of(value);
        std::ranges::reverse(items);
        if (!value.is(Kind::text)) return store_.list(std::move(items), Form::generator);
        return store_.text(Chars(value.chars->rbegin(), value.chars->rend()), value.markup);
    }
    if (name == "indent") return indent(*this, value, call);
    if (name == "attr") {
        const BoundArguments bound("attr", call, {"name"});
        return attribute(value, utf8_of(bound.text(0) ? bound.text(0)->text() : CharSpan{}));
    }
    // The other filters work on texts; other values become text.
    const bool is_text = value.is(Kind::text);
    const Value text = is_text ? value : store_.text(to_text(value));
    if (name == "string") return text;
    if (name == "safe") return store_.text(*text.chars, true);
    if (name == "escape" || name == "e" || name == "forceescape")
        return text.markup && name != "forceescape" ? text : store_.text(escaped(text.text()), true);
    if (name == "trim") {
        const BoundArguments bound("trim", call, {"chars"});
        const CharSpan inner = stripped(text.text(), bound.text(0), true, true);
        return store_.text(Chars(inner.begin(), inner.end()), text.markup);
    }
    if (name == "upper") return store_.text(to_upper(text.text()), text.markup);
    if (name == "lower") return store_.text(to_lower(text.text()), text.markup);
    if (name == "capitalize") return store_.text(to_capitalized(text.text()), text.markup);
    if (name == "title") return title(store_, text.text());
    if (name == "replace") {
        const BoundArguments bound("replace", call, {"old", "new", "count"});
        return store_.text(replaced(store_, text.text(), to_text(bound.needed(0)), to_text(bound.needed(1)),
                                    bound.number(2, -1)));
    }
    throw TemplateError(fmt::format("the filter {} is not supported in a chat template", name));
}

bool Runner::test(std::string_view name, const Value& value, const CallArguments& call) {
    store_.step();
    const auto other = [&]() -> const Value& {
        if (call.positional.size() != 1)
            throw TemplateError(fmt::format("the test {} compares with one value", name));
        return call.positional[0];
    };
    const auto whole = [&](const Value& number) {
        if (!number.is(Kind::integer) && !number.is(Kind::boolean))
            throw TemplateError(fmt::format("the test {} is of integers", name));
        return number.integer;
    };
    if (name == "defined") return !value.is(Kind::undefined);
    if (name == "undefined") return value.is(Kind::undefined);
    if (name == "none") return value.is(Kind::none);
    if (name == "string") return value.is(Kind::text);
    if (name == "mapping") return value.is(Kind::dict);
    if (name == "boolean") return value.is(Kind::boolean);
    if (name == "true" || name == "false")
        return value.is(Kind::boolean) && (value.integer != 0) == (name == "true");
    if (name == "number") return value.is_number() || value.is(Kind::long_integer);
    if (name == "integer") return value.is(Kind::integer) || value.is(Kind::long_integer);
    if (name == "float") return value.is(Kind::real);
    if (name == "callable") return value.is(Kind::function) || value.is(Kind::undefined);
    if (name == "iterable")
        return value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::dict) ||
               value.is(Kind::undefined);
    if (name == "sequence")
        return value.is(Kind::text) || value.is(Kind::dict) || value.is(Kind::undefined) ||
               (value.is(Kind::list) && (value.list->form <= Form::tuple || value.list->form == Form::range));
    if (name == "in") return contains(other(), value);
    if (name == "eq" || name == "equalto" || name == "==") return equal(value, other());
    if (name == "ne" || name == "!=") return !equal(value, other());
    if (name == "lt" || name == "lessthan" || name == "<") return less(value, other());
    if (name == "gt" || name == "greaterthan" || name == ">") return less(other(), value);
    if (name == "le" || name == "<=") return !less(other(), value);
    if (name == "ge" || name == ">=") return !less(value, other());
    if (name == "sameas") {
        if (value.is(Kind::none) || value.is(Kind::boolean))
            return value.kind == other().kind && equal(value, other());
        throw TemplateError("the test sameas is of none, true and false");
    }
    if (name == "odd") return whole(value) % 2 != 0;
    if (name == "even") return whole(value) % 2 == 0;
    if (name == "divisibleby") {
        if (whole(other()) == 0) throw TemplateError("a division by zero");
        return whole(value) % whole(other()) == 0;
    }
    if (name == "upper") return all_upper(to_text(value));
    if (name == "lower") return all_lower(to_text(value));
    throw TemplateError(fmt::format("the test {} is not supported in a chat template", name));
}

}  // namespace mantissa::inline v0::jinja
