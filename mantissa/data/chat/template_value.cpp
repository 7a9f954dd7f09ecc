#include "mantissa/data/chat/template_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "mantissa/data/unicode.h"

namespace mantissa::inline v0::jinja {

namespace {

constexpr int deepest = 200;  // lists in lists

void require_depth(int depth) {
    if (depth > deepest) throw TemplateError("values are nested too deeply");
}

void append(Chars& out, std::string_view ascii, ChatOrigin origin) {
    for (const char c : ascii) out.push_back({static_cast<unsigned char>(c), origin});
}

/// As Python's repr of a float: the shortest digits that read back.
std::string text_of_real(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
    const std::string scientific(buffer, end);
    const std::size_t e = scientific.find('e');
    const int exponent = std::stoi(scientific.substr(e + 1));
    if (exponent < -4 || exponent >= 16) return scientific;
    const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
    std::string text(buffer, fixed);
    if (text.find('.') == std::string::npos) text += ".0";
    return text;
}

std::string digits_of(const Value& value) {
    if (value.is(Kind::real)) return text_of_real(value.real);
    return fmt::format("{}", value.integer);
}

/// Wide enough for a double and for 64 bits: compares them exactly, as Python does.
long double number(const Value& value) {
    return value.is(Kind::real) ? static_cast<long double>(value.real)
                                : static_cast<long double>(value.integer);
}

/// As Python's str.isprintable.
bool is_printable(char32_t code) {
    if (code == ' ') return true;
    static const CategorySet hidden = categories_of("C") | categories_of("Z");
    return !(hidden >> category_of(code) & 1);
}

void append_text_repr(Chars& out, CharSpan text, ChatOrigin origin) {
    const auto has = [&](char32_t code) {
        return std::ranges::any_of(text, [&](const Char& c) { return c.code == code; });
    };
    const char32_t quote = has('\'') && !has('"') ? '"' : '\'';
    out.push_back({quote, origin});
    for (const Char& c : text) {
        const auto put = [&](const std::string& escaped) { append(out, escaped, c.origin); };
        if (c.code == quote || c.code == '\\') {
            out.push_back({'\\', c.origin});
            out.push_back(c);
        } else if (c.code == '\n') {
            put("\\n");
        } else if (c.code == '\r') {
            put("\\r");
        } else if (c.code == '\t') {
            put("\\t");
        } else if (is_printable(c.code)) {
            out.push_back(c);
        } else if (c.code < 0x100) {
            put(fmt::format("\\x{:02x}", static_cast<unsigned>(c.code)));
        } else if (c.code < 0x10000) {
            put(fmt::format("\\u{:04x}", static_cast<unsigned>(c.code)));
        } else {
            put(fmt::format("\\U{:08x}", static_cast<unsigned>(c.code)));
        }
    }
    out.push_back({quote, origin});
}

ChatOrigin origin_of(const Value& value) {
    return value.is(Kind::text) && !value.chars->empty() ? value.chars->front().origin : value.origin;
}

}  // namespace

template <class T>
T* Store::keep(T value) {
    auto kept = std::make_shared<T>(std::move(value));
    T* const pointer = kept.get();
    kept_.push_back(std::move(kept));
    return pointer;
}

void Store::step(std::uint64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.steps)
        throw TemplateError(fmt::format("more than {} steps: it does not end, or not soon", limits_.steps));
}

void Store::making(std::uint64_t characters) {
    characters_ += characters;
    step(1 + characters / 64);
    if (characters_ > limits_.characters)
        throw TemplateError(fmt::format("more than {} characters are made", limits_.characters));
}

Value Store::text(Chars chars, bool markup) {
    making(chars.size());
    Value value;
    value.kind = Kind::text;
    value.markup = markup;
    if (!chars.empty()) value.origin = chars.front().origin;
    value.chars = keep(std::move(chars));
    return value;
}

Value Store::text(std::string_view utf8, ChatOrigin origin) {
    Value value = text(chars_of(utf8, origin));
    value.origin = origin;
    return value;
}

Value Store::list(std::vector<Value> items, Form form, ChatOrigin origin) {
    making(2 * items.size());
    return {.kind = Kind::list, .origin = origin, .list = keep(ListOf{std::move(items), form})};
}

Value Store::dict(std::vector<std::pair<Value, Value>> items, ChatOrigin origin) {
    making(4 * items.size());
    return {.kind = Kind::dict, .origin = origin, .dict = keep(DictOf{std::move(items)})};
}

Value Store::space(bool is_loop) {
    making(8);
    return {.kind = Kind::space, .space = keep(SpaceOf{{}, is_loop})};
}

Value Store::function(std::string name, std::function<Value(const CallArguments&)> call) {
    making(8);
    return {.kind = Kind::function, .function = keep(FunctionOf{std::move(name), std::move(call)})};
}

Value Store::undefined(std::string name) {
    making(2);
    return {.name = keep(std::move(name))};
}

Value Store::long_integer(std::string_view digits, ChatOrigin origin) {
    Value value = text(digits, origin);
    value.kind = Kind::long_integer;
    return value;
}

Value none_value() { return {.kind = Kind::none, .name = nullptr}; }

Value boolean(bool truth, ChatOrigin origin) {
    return {.kind = Kind::boolean, .origin = origin, .integer = truth};
}

Value integer(std::int64_t number, ChatOrigin origin) {
    return {.kind = Kind::integer, .origin = origin, .integer = number};
}

Value real(double number, ChatOrigin origin) {
    return {.kind = Kind::real, .origin = origin, .real = number};
}

const Value* DictOf::find(const Value& key) const {
    for (const auto& [name, value] : items)
        if (equal(name, key)) return &value;
    return nullptr;
}

const Value* DictOf::find(std::string_view key) const {
    const Chars chars = chars_of(key);
    for (const auto& [name, value] : items)
        if (name.is(Kind::text) && same_text(name.text(), chars)) return &value;
    return nullptr;
}

const Value* SpaceOf::find(std::string_view name) const {
    for (const auto& [known, value] : attributes)
        if (known == name) return &value;
    return nullptr;
}

void SpaceOf::set(std::string_view name, const Value& value) {
    for (auto& [known, old] : attributes)
        if (known == name) {
            old = value;
            return;
        }
    attributes.emplace_back(name, value);
}

bool truth(const Value& value) {
    switch (value.kind) {
        case Kind::undefined:
        case Kind::none:
            return false;
        case Kind::boolean:
        case Kind::integer:
            return value.integer != 0;
        case Kind::real:
            return value.real != 0;
        case Kind::text:
            return !value.chars->empty();
        case Kind::list:
            return value.list->form == Form::generator || !value.list->items.empty();
        case Kind::dict:
            return !value.dict->items.empty();
        case Kind::long_integer:
        case Kind::space:
        case Kind::function:
            return true;
    }
    return true;
}

bool same_text(CharSpan a, CharSpan b) { return std::ranges::equal(a, b, {}, &Char::code, &Char::code); }

bool same_text(CharSpan a, std::string_view ascii) {
    return std::ranges::equal(a, ascii, {}, &Char::code,
                              [](char c) { return static_cast<char32_t>(static_cast<unsigned char>(c)); });
}

bool equal(const Value& a, const Value& b, int depth) {
    require_depth(depth);
    if (a.is_number() && b.is_number()) {
        if (a.is(Kind::real) || b.is(Kind::real)) return number(a) == number(b);
        return a.integer == b.integer;
    }
    if (a.kind != b.kind) return false;
    switch (a.kind) {
        case Kind::undefined:
        case Kind::none:
            return true;
        case Kind::text:
        case Kind::long_integer:
            return same_text(a.text(), b.text());
        case Kind::list:
            if (a.list == b.list) return true;
            if (a.list->form != b.list->form || a.list->form > Form::tuple) return false;
            return std::ranges::equal(a.list->items, b.list->items,
                                      [&](const Value& x, const Value& y) { return equal(x, y, depth + 1); });
        case Kind::dict:
            return a.dict->items.size() == b.dict->items.size() &&
                   std::ranges::all_of(a.dict->items, [&](const auto& item) {
                       const Value* const other = b.dict->find(item.first);
                       return other && equal(item.second, *other, depth + 1);
                   });
        case Kind::space:
            return a.space == b.space;
        case Kind::function:
            return a.function == b.function;
        default:
            return false;
    }
}

bool less(const Value& a, const Value& b, int depth) {
    require_depth(depth);
    if (a.is_number() && b.is_number()) {
        if (a.is(Kind::real) || b.is(Kind::real)) return number(a) < number(b);
        return a.integer < b.integer;
    }
    if (a.is(Kind::text) && b.is(Kind::text))
        return std::ranges::lexicographical_compare(a.text(), b.text(), {}, &Char::code, &Char::code);
    if (a.is(Kind::list) && b.is(Kind::list) && a.list->form == b.list->form && a.list->form <= Form::tuple) {
        const std::vector<Value>&x = a.list->items, &y = b.list->items;
        for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
            if (!equal(x[i], y[i])) return less(x[i], y[i], depth + 1);
        return x.size() < y.size();
    }
    throw TemplateError(fmt::format("{} and {} have no order", type_name(a), type_name(b)));
}

std::string_view type_name(const Value& value) {
    switch (value.kind) {
        case Kind::undefined:
            return "undefined";
        case Kind::none:
            return "None";
        case Kind::boolean:
            return "a boolean";
        case Kind::integer:
        case Kind::long_integer:
            return "an integer";
        case Kind::real:
            return "a float";
        case Kind::text:
            return "a string";
        case Kind::list:
            switch (value.list->form) {
                case Form::list:
                    return "a list";
                case Form::tuple:
                    return "a tuple";
                case Form::view:
                    return "a view of a mapping";
                case Form::generator:
                    return "a generator";
                case Form::range:
                    return "a range";
            }
            return "a list";
        case Kind::dict:
            return "a mapping";
        case Kind::space:
            return value.space->is_loop ? "a loop" : "a namespace";
        case Kind::function:
            return "a function";
    }
    return "a value";
}

void append_repr(Chars& out, const Value& value, int depth) {
    require_depth(depth);
    const ChatOrigin origin = origin_of(value);
    const auto put = [&](std::string_view ascii) { append(out, ascii, origin); };
    switch (value.kind) {
        case Kind::undefined:
            return put("Undefined");
        case Kind::none:
            return put("None");
        case Kind::boolean:
            return put(value.integer ? "True" : "False");
        case Kind::integer:
        case Kind::real:
            return put(digits_of(value));
        case Kind::long_integer:
            out.insert(out.end(), value.chars->begin(), value.chars->end());
            return;
        case Kind::text:
            if (value.markup) put("Markup(");
            append_text_repr(out, value.text(), origin);
            if (value.markup) put(")");
            return;
        case Kind::list: {
            const Form form = value.list->form;
            if (form > Form::tuple)
                throw TemplateError(fmt::format("{} cannot be written out", type_name(value)));
            put(form == Form::list ? "[" : "(");
            for (std::size_t i = 0; i < value.list->items.size(); ++i) {
                if (i) put(", ");
                append_repr(out, value.list->items[i], depth + 1);
            }
            put(form == Form::list ? "]" : value.list->items.size() == 1 ? ",)" : ")");
            return;
        }
        case Kind::dict: {
            put("{");
            bool first = true;
            for (const auto& [key, item] : value.dict->items) {
                if (!first) put(", ");
                first = false;
                append_repr(out, key, depth + 1);
                put(": ");
                append_repr(out, item, depth + 1);
            }
            return put("}");
        }
        case Kind::space:
        case Kind::function:
            throw TemplateError(fmt::format("{} cannot be written out", type_name(value)));
    }
}

Chars to_text(const Value& value) {
    if (value.is(Kind::text)) return *value.chars;
    Chars out;
    if (!value.is(Kind::undefined)) append_repr(out, value);
    return out;
}

namespace {

void append_json_text(Chars& out, CharSpan text, ChatOrigin origin, bool ascii) {
    out.push_back({'"', origin});
    for (const Char& c : text) {
        const auto put = [&](const std::string& escaped) { append(out, escaped, c.origin); };
        switch (c.code) {
            case '"':
                put("\\\"");
                continue;
            case '\\':
                put("\\\\");
                continue;
            case '\n':
                put("\\n");
                continue;
            case '\r':
                put("\\r");
                continue;
            case '\t':
                put("\\t");
                continue;
            case '\f':
                put("\\f");
                continue;
            case '\b':
                put("\\b");
                continue;
            default:
                break;
        }
        const auto code = static_cast<unsigned>(c.code);
        if (code >= 0x20 && (code < 0x7F || !ascii)) {
            out.push_back(c);
        } else if (code < 0x10000) {
            put(fmt::format("\\u{:04x}", code));
        } else {
            put(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                            0xDC00 + (code & 0x3FF)));
        }
    }
    out.push_back({'"', origin});
}

void append_line(Chars& out, const JsonStyle& style, int depth, ChatOrigin origin) {
    if (!style.breaks_lines) return;
    out.push_back({'\n', origin});
    for (int i = 0; i < depth; ++i)
        for (const Char& c : style.indent) out.push_back({c.code, origin});
}

/// Appends a comma or another separator between items.
void append_separator(Chars& out, const Chars& separator, ChatOrigin origin) {
    for (const Char& c : separator) out.push_back({c.code, origin});
}

void append_json_key(Chars& out, const Value& key, const JsonStyle& style) {
    if (key.is(Kind::text)) return append_json_text(out, key.text(), origin_of(key), style.ascii);
    if (key.is(Kind::list) || key.is(Kind::dict) || key.is(Kind::undefined))
        throw TemplateError(fmt::format("tojson: {} cannot be a key", type_name(key)));
    Chars text;
    append_json(text, key, style);
    append_json_text(out, text, key.origin, style.ascii);
}

void append_json_dict(Chars& out, const Value& value, const JsonStyle& style, int depth) {
    const ChatOrigin origin = value.origin;
    std::vector<std::pair<Value, Value>> items = value.dict->items;
    if (style.sort_keys)
        std::ranges::stable_sort(items, [](const auto& a, const auto& b) { return less(a.first, b.first); });
    append(out, "{", origin);
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (i) append_separator(out, style.item_separator, origin);
        append_line(out, style, depth + 1, origin);
        append_json_key(out, items[i].first, style);
        append_separator(out, style.key_separator, origin);
        append_json(out, items[i].second, style, depth + 1);
    }
    if (!items.empty()) append_line(out, style, depth, origin);
    append(out, "}", origin);
}

}  // namespace

void append_json(Chars& out, const Value& value, const JsonStyle& style, int depth) {
    require_depth(depth);
    const ChatOrigin origin = origin_of(value);
    const auto put = [&](std::string_view ascii) { append(out, ascii, origin); };
    switch (value.kind) {
        case Kind::none:
            return put("null");
        case Kind::boolean:
            return put(value.integer ? "true" : "false");
        case Kind::integer:
            return put(digits_of(value));
        case Kind::real:
            if (std::isnan(value.real)) return put("NaN");
            if (std::isinf(value.real)) return put(value.real < 0 ? "-Infinity" : "Infinity");
            return put(digits_of(value));
        case Kind::long_integer:
            out.insert(out.end(), value.chars->begin(), value.chars->end());
            return;
        case Kind::text:
            return append_json_text(out, value.text(), origin, style.ascii);
        case Kind::list: {
            if (value.list->form > Form::tuple) break;
            put("[");
            const std::vector<Value>& items = value.list->items;
            for (std::size_t i = 0; i < items.size(); ++i) {
                if (i) append_separator(out, style.item_separator, origin);
                append_line(out, style, depth + 1, origin);
                append_json(out, items[i], style, depth + 1);
            }
            if (!items.empty()) append_line(out, style, depth, origin);
            return put("]");
        }
        case Kind::dict:
            return append_json_dict(out, value, style, depth);
        default:
            break;
    }
    throw TemplateError(fmt::format("tojson: {} is not a value of JSON", type_name(value)));
}

JsonStyle json_style(bool ascii, const Value* indent, const Value* separators, bool sort_keys) {
    JsonStyle style{.ascii = ascii, .sort_keys = sort_keys};
    if (indent && !indent->is(Kind::none)) {
        style.breaks_lines = true;
        if (indent->is(Kind::text))
            style.indent = *indent->chars;
        else if (indent->is(Kind::integer) || indent->is(Kind::boolean))
            style.indent.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(indent->integer, 0, 1000)),
                                {' ', {}});
        else
            throw TemplateError(fmt::format("tojson: indent is {}", type_name(*indent)));
    }
    style.item_separator = chars_of(style.breaks_lines ? "," : ", ");
    style.key_separator = chars_of(": ");
    if (separators && !separators->is(Kind::none)) {
        if (!separators->is(Kind::list) || separators->list->items.size() != 2 ||
            !separators->list->items[0].is(Kind::text) || !separators->list->items[1].is(Kind::text))
            throw TemplateError("tojson: separators are not two strings");
        style.item_separator = *separators->list->items[0].chars;
        style.key_separator = *separators->list->items[1].chars;
    }
    return style;
}

Chars chars_of(std::string_view utf8, ChatOrigin origin) {
    Chars chars;
    chars.reserve(utf8.size());
    for (std::size_t at = 0; at < utf8.size();) {
        const Utf8Step step = decode_utf8(utf8, at);
        chars.push_back({step.code_point == Utf8Step::invalid ? U'\uFFFD' : step.code_point, origin});
        at += step.length;
    }
    return chars;
}

std::string utf8_of(CharSpan chars) {
    std::string text;
    text.reserve(chars.size());
    for (const Char& c : chars) append_utf8(text, c.code);
    return text;
}

bool is_white(char32_t code) {
    return (code >= 0x1C && code <= 0x1F) || character_class(code) == CharacterClass::space;
}

}  // namespace mantissa::inline v0::jinja
