#include "mantissa/data/chat/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/data/chat/template_run.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

using jinja::Chars;
using jinja::Kind;
using jinja::Node;
using jinja::Store;
using jinja::Value;

struct ChatTemplate::Parts {
    std::string text = {}, source = {};
    Store constants = Store();
    jinja::NodePointer root = {};
    std::map<std::string, std::string> tokens = {};
    std::optional<std::tm> now = {};
};

ChatTemplate::ChatTemplate(std::string text, std::string source) : parts_(std::make_unique<Parts>()) {
    parts_->text = std::move(text);
    parts_->source = std::move(source);
    try {
        parts_->root = jinja::parse_template(parts_->text, parts_->constants);
    } catch (const jinja::TemplateError& error) {
        throw UserError(fmt::format("{}: {}", parts_->source, error.what()));
    }
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

const std::string& ChatTemplate::text() const { return parts_->text; }
const std::string& ChatTemplate::source() const { return parts_->source; }
void ChatTemplate::set_tokens(std::map<std::string, std::string> tokens) {
    parts_->tokens = std::move(tokens);
}
void ChatTemplate::set_time(const std::tm& now) { parts_->now = now; }

namespace {

bool says_generation(const Node& node) {
    if (node.syntax == jinja::Syntax::generation) return true;
    const auto in = [&](const jinja::NodePointer& child) { return child && says_generation(*child); };
    const auto in_any = [&](const jinja::Nodes& nodes) { return std::ranges::any_of(nodes, in); };
    return in_any(node.children) || in_any(node.arguments) || in_any(node.defaults) || in(node.rest) ||
           in(node.named_rest) ||
           std::ranges::any_of(node.named, [&](const auto& argument) { return in(argument.second); });
}

/// The value with one origin throughout; keys belong to the message, too.
Value with_origin(Store& store, const Value& value, ChatOrigin origin) {
    Value out = value;
    out.origin = origin;
    if (value.is(Kind::text) || value.is(Kind::long_integer)) {
        Chars chars = *value.chars;
        for (jinja::Char& c : chars) c.origin = origin;
        out = store.text(std::move(chars));
        out.kind = value.kind;
        out.origin = origin;
    } else if (value.is(Kind::list)) {
        std::vector<Value> items;
        for (const Value& item : value.list->items) items.push_back(with_origin(store, item, origin));
        out = store.list(std::move(items), value.list->form, origin);
    } else if (value.is(Kind::dict)) {
        std::vector<std::pair<Value, Value>> items;
        for (const auto& [key, item] : value.dict->items)
            items.emplace_back(with_origin(store, key, origin), with_origin(store, item, origin));
        out = store.dict(std::move(items), origin);
    }
    return out;
}

ChatOrigin::Part part_of(const Value& key) {
    for (const auto& [name, part] : std::initializer_list<std::pair<std::string_view, ChatOrigin::Part>>{
             {"role", ChatOrigin::Part::role},
             {"content", ChatOrigin::Part::content},
             {"reasoning_content", ChatOrigin::Part::reasoning},
             {"reasoning", ChatOrigin::Part::reasoning},
             {"thinking", ChatOrigin::Part::reasoning},
             {"tool_calls", ChatOrigin::Part::calls}})
        if (jinja::same_text(key.text(), name)) return part;
    return ChatOrigin::Part::other;
}

Value with_origins(Store& store, const Value& messages) {
    std::vector<Value> all;
    for (std::size_t i = 0; i < messages.list->items.size(); ++i) {
        const Value& message = messages.list->items[i];
        const auto place = static_cast<std::uint32_t>(i);
        const ChatOrigin other = ChatOrigin::of(place, ChatOrigin::Part::other);
        if (!message.is(Kind::dict)) {
            all.push_back(with_origin(store, message, other));
            continue;
        }
        std::vector<std::pair<Value, Value>> items;
        for (const auto& [key, value] : message.dict->items)
            items.emplace_back(with_origin(store, key, other),
                               with_origin(store, value, ChatOrigin::of(place, part_of(key))));
        all.push_back(store.dict(std::move(items), other));
    }
    return store.list(std::move(all));
}

RenderedChat rendered(const Chars& chars) {
    RenderedChat chat;
    for (std::size_t i = 0; i < chars.size(); ++i) {
        append_utf8(chat.text, chars[i].code);
        if (i + 1 == chars.size() || !(chars[i + 1].origin == chars[i].origin))
            chat.runs.push_back({chat.text.size(), chars[i].origin});
    }
    return chat;
}

std::tm local_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    return local;
}

}  // namespace

bool ChatTemplate::has_marks() const { return says_generation(*parts_->root); }

RenderedChat ChatTemplate::render(const ChatMessages& chat) const {
    // The limits grow with the chat.
    const std::uint64_t size = chat.messages.size() + chat.tools.size() + chat.documents.size();
    Store store({.steps = 20'000'000 + 100 * size, .characters = 64'000'000 + 100 * size});
    try {
        const auto read = [&](const std::string& json, const char* what) {
            if (json.empty()) return jinja::none_value();
            const Value value = jinja::parse_json(store, json, what, ChatOrigin::data());
            if (!value.is(Kind::list)) throw jinja::TemplateError(fmt::format("{}: no list", what));
            return value;
        };
        std::map<std::string, Value> context;
        for (const auto& [name, text] : parts_->tokens) context[name] = store.text(text);
        for (const auto& [name, json] : chat.variables)
            context[name] = jinja::parse_json(store, json, name, ChatOrigin::data());
        context["messages"] = with_origins(store, read(chat.messages, "messages"));
        context["tools"] = read(chat.tools, "tools");
        context["documents"] = read(chat.documents, "documents");
        context["add_generation_prompt"] = jinja::boolean(chat.generation_prompt);
        jinja::Runner runner(store, context, parts_->now ? *parts_->now : local_time());
        return rendered(runner.run(*parts_->root));
    } catch (const jinja::TemplateError& error) {
        throw UserError(fmt::format("{}: {}", parts_->source, error.what()));
    }
}

}  // namespace mantissa::inline v0
