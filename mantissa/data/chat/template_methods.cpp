// The methods of Python's str, dict and list that templates call. Methods that change a value are missing, as
// in Jinja2's immutable sandbox; other methods are known by name, for errors.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "mantissa/data/chat/letter_case.h"
#include "mantissa/data/chat/template_run.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0::jinja {

Chars escaped(CharSpan text) {
    Chars out;
    for (const Char& c : text) {
        const std::string_view with = c.code == '&'    ? "&amp;"
                                      : c.code == '<'  ? "&lt;"
                                      : c.code == '>'  ? "&gt;"
                                      : c.code == '"'  ? "&#34;"
                                      : c.code == '\'' ? "&#39;"
                                                       : "";
        if (with.empty()) out.push_back(c);
        for (const char letter : with) out.push_back({static_cast<unsigned char>(letter), c.origin});
    }
    return out;
}

CharSpan stripped(CharSpan text, const Value* characters, bool left, bool right) {
    const auto goes = [&](const Char& c) {
        if (!characters) return is_white(c.code);
        return std::ranges::any_of(characters->text(), [&](const Char& one) { return one.code == c.code; });
    };
    while (left && !text.empty() && goes(text.front())) text = text.subspan(1);
    while (right && !text.empty() && goes(text.back())) text = text.first(text.size() - 1);
    return text;
}

namespace {

constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

std::size_t find(CharSpan text, CharSpan part, std::size_t from) {
    if (from > text.size()) return nowhere;
    if (part.empty()) return from;
    const CharSpan rest = text.subspan(from);
    const auto found = std::ranges::search(rest, part, {}, &Char::code, &Char::code);
    return found.empty() ? nowhere : from + static_cast<std::size_t>(found.begin() - rest.begin());
}

std::size_t find_last(CharSpan text, CharSpan part) {
    if (part.size() > text.size()) return nowhere;
    for (std::size_t at = text.size() - part.size() + 1; at-- > 0;)
        if (same_text(text.subspan(at, part.size()), part)) return at;
    return nowhere;
}

}  // namespace

Chars replaced(Store& store, CharSpan text, CharSpan old, CharSpan with, std::int64_t count) {
    Chars out;
    std::size_t done = 0;
    store.step(text.size() / 16);
    while (count != 0) {
        const std::size_t at = find(text, old, old.empty() && !out.empty() ? done + 1 : done);
        if (at == nowhere) break;
        store.making(with.size());
        out.insert(out.end(), text.begin() + static_cast<std::ptrdiff_t>(done),
                   text.begin() + static_cast<std::ptrdiff_t>(at));
        out.insert(out.end(), with.begin(), with.end());
        done = at + old.size();
        --count;
        if (old.empty() && done == text.size()) break;
        if (old.empty() && with.empty()) break;
    }
    out.insert(out.end(), text.begin() + static_cast<std::ptrdiff_t>(done), text.end());
    return out;
}

namespace {

using Names = std::span<const std::string_view>;

bool is_one_of(std::string_view name, Names names) { return std::ranges::find(names, name) != names.end(); }

constexpr std::string_view other_text_methods[] = {
    "casefold",   "center",   "encode",    "expandtabs",   "format",    "format_map",
    "isalnum",    "isascii",  "isdecimal", "isidentifier", "isnumeric", "isprintable",
    "istitle",    "ljust",    "maketrans", "partition",    "rindex",    "rjust",
    "rpartition", "swapcase", "translate", "zfill"};
constexpr std::string_view other_list_methods[] = {"copy"};
constexpr std::string_view other_dict_methods[] = {"copy", "fromkeys"};

/// A text made from another; if it is empty, it keeps the other's origin.
class TextMethods {
  public:
    TextMethods(Runner& runner, const Value& self) : runner_(runner), store_(runner.store()), self_(self) {}

    /// Null if there is none.
    std::function<Value(const CallArguments&)> find_method(std::string_view name) {
        using Call = const CallArguments&;
        if (name == "strip" || name == "lstrip" || name == "rstrip")
            return
                [=, this, all = *this, left = name != "rstrip", right = name != "lstrip"](Call call) mutable {
                    const BoundArguments bound("strip", call, {"chars"});
                    return all.part(stripped(all.self_.text(), bound.text(0), left, right));
                };
        if (name == "split" || name == "rsplit")
            return
                [all = *this, last = name == "rsplit"](Call call) mutable { return all.split(call, last); };
        if (name == "startswith" || name == "endswith")
            return
                [all = *this, end = name == "endswith"](Call call) mutable { return all.borders(call, end); };
        if (name == "find" || name == "rfind" || name == "index" || name == "count")
            return
                [all = *this, name = std::string(name)](Call call) mutable { return all.search(call, name); };
        if (name == "upper" || name == "lower" || name == "capitalize" || name == "title")
            return [all = *this, name = std::string(name)](Call call) mutable {
                BoundArguments(name, call, {});
                return all.cased(name);
            };
        if (name == "replace") return [all = *this](Call call) mutable { return all.replace(call); };
        if (name == "splitlines") return [all = *this](Call call) mutable { return all.split_lines(call); };
        if (name == "join") return [all = *this](Call call) mutable { return all.join(call); };
        if (name == "removeprefix" || name == "removesuffix")
            return [all = *this, end = name == "removesuffix"](Call call) mutable {
                return all.remove(call, end);
            };
        if (name == "isdigit" || name == "isalpha" || name == "isspace" || name == "isupper" ||
            name == "islower")
            return [all = *this, name = std::string(name)](Call call) mutable {
                BoundArguments(name, call, {});
                return boolean(all.is(name));
            };
        return nullptr;
    }

  private:
    Value part(CharSpan text) {
        Value value = store_.text(Chars(text.begin(), text.end()), self_.markup);
        if (text.empty()) value.origin = self_.origin;
        return value;
    }

    Value split(const CallArguments& call, bool last) {
        const BoundArguments bound("split", call, {"sep", "maxsplit"});
        const Value* const separator = bound.text(0);
        if (separator && separator->chars->empty()) throw TemplateError("split: the separator is empty");
        std::int64_t splits = bound.number(1, -1);
        if (last && splits >= 0) throw TemplateError("rsplit with a count is not supported");
        const CharSpan text = self_.text();
        store_.step(text.size() / 16);
        std::vector<Value> parts;
        std::size_t at = 0;
        if (separator) {
            for (; splits != 0; --splits) {
                const std::size_t end = jinja::find(text, separator->text(), at);
                if (end == nowhere) break;
                parts.push_back(part(text.subspan(at, end - at)));
                at = end + separator->chars->size();
            }
            parts.push_back(part(text.subspan(at)));
            return store_.list(std::move(parts), Form::list);
        }
        while (true) {
            while (at < text.size() && is_white(text[at].code)) ++at;
            if (at == text.size()) break;
            std::size_t end = at;
            while (end < text.size() && !is_white(text[end].code)) ++end;
            if (splits-- == 0) {
                parts.push_back(part(stripped(text.subspan(at), nullptr, false, true)));
                break;
            }
            parts.push_back(part(text.subspan(at, end - at)));
            at = end;
        }
        return store_.list(std::move(parts), Form::list);
    }

    Value split_lines(const CallArguments& call) {
        const BoundArguments bound("splitlines", call, {"keepends"});
        const CharSpan text = self_.text();
        std::vector<Value> lines;
        static constexpr std::u32string_view breaks = U"\n\r\v\f\x1C\x1D\x1E\u0085\u2028\u2029";
        for (std::size_t at = 0; at < text.size();) {
            std::size_t end = at;
            while (end < text.size() && breaks.find(text[end].code) == breaks.npos) ++end;
            std::size_t next = std::min(end + 1, text.size());
            if (next < text.size() && text[end].code == '\r' && text[next].code == '\n') ++next;
            lines.push_back(part(text.subspan(at, (bound.flag(0, false) ? next : end) - at)));
            at = next;
        }
        return store_.list(std::move(lines), Form::list);
    }

    /// The text between two bounds of a method, and the length before it; none: the first bound is beyond the
    /// end.
    std::pair<std::optional<CharSpan>, std::size_t> within(const BoundArguments& bound) {
        const auto size = static_cast<std::int64_t>(self_.chars->size());
        const auto place = [&](std::int64_t at) {
            return std::max<std::int64_t>(0, at < 0 ? at + size : at);
        };
        const std::int64_t begin = place(bound.number(1, 0)),
                           end = std::min(size, place(bound.number(2, size)));
        if (begin > size || begin > end) return {std::nullopt, 0};
        return {self_.text().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
                static_cast<std::size_t>(begin)};
    }

    Value borders(const CallArguments& call, bool at_end) {
        const std::string_view name = at_end ? "endswith" : "startswith";
        const BoundArguments bound(name, call, {"prefix", "start", "end"});
        const auto [text, before] = within(bound);
        const auto has = [&](const Value& part) {
            if (!part.is(Kind::text))
                throw TemplateError(fmt::format("{}: {} is no string", name, type_name(part)));
            if (!text || part.chars->size() > text->size()) return false;
            return same_text(at_end ? text->last(part.chars->size()) : text->first(part.chars->size()),
                             part.text());
        };
        const Value& wanted = bound.needed(0);
        if (wanted.is(Kind::list) && wanted.list->form == Form::tuple)
            return boolean(std::ranges::any_of(wanted.list->items, has));
        return boolean(has(wanted));
    }

    Value search(const CallArguments& call, const std::string& name) {
        const BoundArguments bound(name, call, {"sub", "start", "end"});
        bound.needed(0);
        const CharSpan part = bound.text(0)->text();
        const auto [text, before] = within(bound);
        if (name == "count") {
            std::int64_t count = 0;
            for (std::size_t at = 0; text && (at = jinja::find(*text, part, at)) != nowhere;
                 at += std::max<std::size_t>(1, part.size()))
                ++count;
            return integer(count);
        }
        const std::size_t at = !text             ? nowhere
                               : name == "rfind" ? find_last(*text, part)
                                                 : jinja::find(*text, part, 0);
        if (at == nowhere && name == "index") throw TemplateError("index: the string is not found");
        return integer(at == nowhere ? -1 : static_cast<std::int64_t>(at + before));
    }

    Value cased(const std::string& name) {
        const CharSpan text = self_.text();
        if (name == "upper") return store_.text(to_upper(text), self_.markup);
        if (name == "lower") return store_.text(to_lower(text), self_.markup);
        if (name == "capitalize") return store_.text(to_capitalized(text), self_.markup);
        static const CategorySet cased = categories_of("Lu") | categories_of("Ll") | categories_of("Lt");
        Chars out;
        for (std::size_t at = 0; at < text.size();) {
            std::size_t end = at;
            const auto is_letter = [&](std::size_t i) { return cased >> category_of(text[i].code) & 1; };
            while (end < text.size() && is_letter(end)) ++end;
            const Chars word = end == at ? Chars{text[at]} : to_capitalized(text.subspan(at, end - at));
            out.insert(out.end(), word.begin(), word.end());
            at = std::max(end, at + 1);
        }
        return store_.text(std::move(out), self_.markup);
    }

    Value replace(const CallArguments& call) {
        const BoundArguments bound("replace", call, {"old", "new", "count"});
        bound.needed(0), bound.needed(1);
        const Value &old = *bound.text(0), &with = *bound.text(1);
        const Chars letters = self_.markup && !with.markup ? escaped(with.text()) : *with.chars;
        return store_.text(replaced(store_, self_.text(), old.text(), letters, bound.number(2, -1)),
                           self_.markup);
    }

    Value join(const CallArguments& call) {
        const BoundArguments bound("join", call, {"iterable"});
        Chars out;
        bool first = true;
        for (const Value& item : runner_.items_of(bound.needed(0))) {
            if (!item.is(Kind::text))
                throw TemplateError(fmt::format("join: {} is no string", type_name(item)));
            if (!first) out.insert(out.end(), self_.chars->begin(), self_.chars->end());
            first = false;
            out.insert(out.end(), item.chars->begin(), item.chars->end());
        }
        return store_.text(std::move(out), self_.markup);
    }

    Value remove(const CallArguments& call, bool at_end) {
        const BoundArguments bound("removeprefix", call, {"part"});
        bound.needed(0);
        const CharSpan text = self_.text(), wanted = bound.text(0)->text();
        if (wanted.size() > text.size()) return self_;
        if (at_end && same_text(text.last(wanted.size()), wanted))
            return part(text.first(text.size() - wanted.size()));
        if (!at_end && same_text(text.first(wanted.size()), wanted)) return part(text.subspan(wanted.size()));
        return self_;
    }

    bool is(const std::string& name) {
        const CharSpan text = self_.text();
        if (name == "isupper") return all_upper(text);
        if (name == "islower") return all_lower(text);
        static const CategorySet letters = categories_of("L"), digits = categories_of("Nd");
        return !text.empty() && std::ranges::all_of(text, [&](const Char& c) {
            if (name == "isspace") return is_white(c.code);
            return ((name == "isalpha" ? letters : digits) >> category_of(c.code) & 1) != 0;
        });
    }

    Runner& runner_;
    Store& store_;
    Value self_;
};

std::function<Value(const CallArguments&)> method_of_dict(Store& store, const Value& self,
                                                          std::string_view name) {
    const DictOf* const dict = self.dict;
    if (name == "get")
        return [dict](const CallArguments& call) {
            const BoundArguments bound("get", call, {"key", "default"});
            const Value* const found = dict->find(bound.needed(0));
            return found ? *found : bound[1] ? *bound[1] : none_value();
        };
    if (name == "items" || name == "keys" || name == "values")
        return [&store, dict, origin = self.origin, name = std::string(name)](const CallArguments& call) {
            BoundArguments(name, call, {});
            std::vector<Value> all;
            for (const auto& [key, value] : dict->items)
                all.push_back(name == "items"  ? store.list({key, value}, Form::tuple, origin)
                              : name == "keys" ? key
                                               : value);
            return store.list(std::move(all), Form::view, origin);
        };
    return nullptr;
}

std::function<Value(const CallArguments&)> method_of_list(const Value& self, std::string_view name) {
    const ListOf* const list = self.list;
    if (name != "index" && name != "count") return nullptr;
    return [list, name = std::string(name)](const CallArguments& call) {
        const BoundArguments bound(name, call, {"value"});
        const Value& wanted = bound.needed(0);
        const auto is_it = [&](const Value& item) { return equal(item, wanted); };
        if (name == "count") return integer(std::ranges::count_if(list->items, is_it));
        const auto found = std::ranges::find_if(list->items, is_it);
        if (found == list->items.end()) throw TemplateError("index: the value is not found");
        return integer(found - list->items.begin());
    };
}

}  // namespace

Value method_of(Runner& runner, const Value& of, std::string_view name) {
    std::function<Value(const CallArguments&)> method;
    Names others;
    if (of.is(Kind::text)) {
        method = TextMethods(runner, of).find_method(name);
        others = other_text_methods;
    } else if (of.is(Kind::dict)) {
        method = method_of_dict(runner.store(), of, name);
        others = other_dict_methods;
    } else if (of.is(Kind::list) && of.list->form <= Form::tuple) {
        method = method_of_list(of, name);
        if (of.list->form == Form::list) others = other_list_methods;
    }
    if (!method && is_one_of(name, others))
        method = [name = std::string(name)](const CallArguments&) -> Value {
            throw TemplateError(fmt::format("the method {} is not supported in a chat template", name));
        };
    return method ? runner.store().function(std::string(name), std::move(method)) : Value{};
}

}  // namespace mantissa::inline v0::jinja
