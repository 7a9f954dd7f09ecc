#include "mantissa/data/chat/template_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

namespace mantissa::inline v0::jinja {

namespace {

constexpr int deepest_tree = 300;

class Parser {
  public:
    Parser(std::vector<Token> tokens, Store& store) : tokens_(std::move(tokens)), store_(store) {}

    NodePointer all() {
        NodePointer block = body({});
        if (now().word != Word::end) fail("the template does not end here");
        return block;
    }

  private:
    using Names = std::initializer_list<std::u32string_view>;

    const Token& now() const { return tokens_[at_]; }
    const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    const Token& take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
    bool skip(std::u32string_view sign) { return now().is(sign) && (take(), true); }
    bool skip_name(std::u32string_view name) { return now().is_name(name) && (take(), true); }

    [[noreturn]] void fail(const std::string& what) const {
        throw TemplateError(fmt::format("line {}: {}", now().line, what));
    }
    static std::string text_of(const Token& token) {
        switch (token.word) {
            case Word::end:
                return "the end of the template";
            case Word::block_end:
                return "%}";
            case Word::output_end:
                return "}}";
            case Word::data:
                return "text";
            default:
                return fmt::format("\"{}\"", utf8(token.text));
        }
    }
    void expect(std::u32string_view sign) {
        if (!skip(sign)) fail(fmt::format("expected {}, got {}", utf8(sign), text_of(now())));
    }
    void expect_name(std::u32string_view name) {
        if (!skip_name(name)) fail(fmt::format("expected {}, got {}", utf8(name), text_of(now())));
    }
    void expect(Word word, std::string_view what) {
        if (now().word != word) fail(fmt::format("expected {}, got {}", what, text_of(now())));
        take();
    }
    std::string name() {
        if (now().word != Word::name) fail(fmt::format("expected a name, got {}", text_of(now())));
        return utf8(take().text);
    }

    NodePointer make(Syntax syntax, Nodes children = {}, std::string name = {}) {
        auto node = std::make_unique<Node>(Node{.syntax = syntax, .line = now().line});
        node->name = std::move(name);
        node->children = std::move(children);
        for (const NodePointer& child : node->children) deepen(*node, child);
        return node;
    }
    void deepen(Node& node, const NodePointer& child) const {
        if (child) node.depth = std::max(node.depth, child->depth + 1);
        if (node.depth > deepest_tree) fail("nested too deeply");
    }
    template <class... Child>
    static Nodes nodes(Child... child) {
        Nodes all;
        (all.push_back(std::move(child)), ...);
        return all;
    }

    // Statements.

    /// Statements up to a tag of these names, or to the end; stops after the tag's {%.
    NodePointer body(Names ends) {
        const Nested nested(*this);
        NodePointer block = make(Syntax::block);
        const auto add = [&](NodePointer node) {
            deepen(*block, node);
            block->children.push_back(std::move(node));
        };
        while (now().word != Word::end) {
            if (now().word == Word::data) {
                NodePointer data = make(Syntax::data);
                data->constant = store_.text(utf8(take().text));
                add(std::move(data));
            } else if (now().word == Word::output_begin) {
                take();
                NodePointer written = tuple(true);
                expect(Word::output_end, "}}");
                add(make(Syntax::output, nodes(std::move(written))));
            } else {
                take();
                for (const std::u32string_view end : ends)
                    if (now().is_name(end)) return block;
                add(statement());
                expect(Word::block_end, "%}");
            }
        }
        if (ends.size()) fail(fmt::format("expected {{% {} %}}", utf8(*(ends.end() - 1))));
        return block;
    }
    /// The body of a tag after its head.
    NodePointer statements(Names ends) {
        skip(U":");
        expect(Word::block_end, "%}");
        return body(ends);
    }

    NodePointer statement() {
        const std::string tag = name();
        if (tag == "if") return branch();
        if (tag == "for") return loop();
        if (tag == "set") return set();
        if (tag == "macro") return macro();
        if (tag == "call") return call_block();
        if (tag == "filter") return filter_block();
        if (tag == "with") return with();
        if (tag == "break") return make(Syntax::break_loop);
        if (tag == "continue") return make(Syntax::continue_loop);
        if (tag == "generation") {
            NodePointer inner = statements({U"endgeneration"});
            take();
            return make(Syntax::generation, nodes(std::move(inner)));
        }
        --at_;
        fail(fmt::format("{{% {} %}} is not supported in a chat template", tag));
    }

    NodePointer branch() {
        NodePointer node = make(Syntax::branch);
        const auto add = [&](NodePointer child) {
            deepen(*node, child);
            node->children.push_back(std::move(child));
        };
        while (true) {
            add(tuple(false));
            add(statements({U"elif", U"else", U"endif"}));
            if (skip_name(U"elif")) continue;
            if (skip_name(U"else")) {
                add(statements({U"endif"}));
            }
            expect_name(U"endif");
            return node;
        }
    }

    NodePointer loop() {
        Target into = target(false);
        expect_name(U"in");
        NodePointer through = tuple(false), condition, otherwise;
        if (skip_name(U"if")) condition = expression();
        if (now().is_name(U"recursive")) fail("recursive loops are not supported");
        NodePointer inner = statements({U"endfor", U"else"});
        if (skip_name(U"else")) otherwise = statements({U"endfor"});
        expect_name(U"endfor");
        NodePointer node = make(Syntax::loop, nodes(std::move(through), std::move(condition),
                                                    std::move(inner), std::move(otherwise)));
        node->target = std::move(into);
        return node;
    }

    Target single_target(bool attributes) {
        if (skip(U"(")) {
            Target inner = target(attributes);
            expect(U")");
            return inner;
        }
        Target one{.name = name()};
        if (attributes && skip(U".")) one.attribute = name();
        return one;
    }
    Target target(bool attributes) {
        Target first = single_target(attributes);
        if (!now().is(U",")) return first;
        Target all;
        all.several.push_back(std::move(first));
        while (skip(U",")) {
            if (now().word != Word::name && !now().is(U"(")) break;
            if (now().is_name(U"in")) break;
            all.several.push_back(single_target(attributes));
        }
        return all;
    }

    NodePointer set() {
        Target into = target(true);
        NodePointer node;
        if (skip(U"=")) {
            node = make(Syntax::assignment, nodes(tuple(true)));
        } else {
            NodePointer filters = now().is(U"|") ? filter(nullptr) : nullptr;
            NodePointer inner = statements({U"endset"});
            take();
            node = make(Syntax::assigned_block, nodes(std::move(inner), std::move(filters)));
        }
        node->target = std::move(into);
        return node;
    }

    void parameters(Node& node) {
        expect(U"(");
        while (!now().is(U")")) {
            if (!node.names.empty()) expect(U",");
            if (now().is(U")")) break;
            node.names.push_back(name());
            if (skip(U"="))
                node.defaults.push_back(expression());
            else if (!node.defaults.empty())
                fail("a parameter without a default stands behind one with a default");
        }
        expect(U")");
    }

    NodePointer macro() {
        NodePointer node = make(Syntax::macro, {}, name());
        parameters(*node);
        node->children.push_back(statements({U"endmacro"}));
        deepen(*node, node->children[0]);
        take();
        return node;
    }

    NodePointer call_block() {
        NodePointer node = make(Syntax::call_block);
        if (now().is(U"(")) parameters(*node);
        NodePointer called = expression();
        if (called->syntax != Syntax::call) fail("{% call %} needs a call");
        node->children.push_back(std::move(called));
        node->children.push_back(statements({U"endcall"}));
        for (const NodePointer& child : node->children) deepen(*node, child);
        take();
        return node;
    }

    NodePointer filter_block() {
        NodePointer filters = one_filter(nullptr);
        if (now().is(U"|")) filters = filter(std::move(filters));
        NodePointer inner = statements({U"endfilter"});
        take();
        return make(Syntax::filter_block, nodes(std::move(filters), std::move(inner)));
    }

    NodePointer with() {
        NodePointer node = make(Syntax::with);
        while (now().word != Word::block_end && now().word != Word::end) {
            if (!node->children.empty()) expect(U",");
            node->target.several.push_back(target(false));
            expect(U"=");
            node->children.push_back(expression());
        }
        node->children.push_back(statements({U"endwith"}));
        for (const NodePointer& child : node->children) deepen(*node, child);
        take();
        return node;
    }

    // Expressions.

    bool ends_tuple() const {
        return now().word == Word::output_end || now().word == Word::block_end || now().is(U")") ||
               now().is_name(U"recursive");
    }
    /// An expression, or several separated by commas.
    NodePointer tuple(bool conditionals, bool in_brackets = false) {
        Nodes items;
        bool has_comma = false;
        while (!ends_tuple()) {
            items.push_back(conditionals ? expression() : either());
            if (!skip(U",")) break;
            has_comma = true;
        }
        if (!has_comma && items.size() == 1) return std::move(items[0]);
        if (items.empty() && !in_brackets) fail(fmt::format("expected a value, got {}", text_of(now())));
        return make(Syntax::tuple, std::move(items));
    }

    NodePointer expression() {
        const Nested nested(*this);
        NodePointer value = either();
        while (skip_name(U"if")) {
            NodePointer condition = either(), otherwise;
            if (skip_name(U"else")) otherwise = expression();
            value = make(Syntax::conditional,
                         nodes(std::move(condition), std::move(value), std::move(otherwise)));
        }
        return value;
    }
    NodePointer either() {
        NodePointer left = both();
        while (skip_name(U"or")) left = make(Syntax::either, nodes(std::move(left), both()));
        return left;
    }
    NodePointer both() {
        NodePointer left = negation();
        while (skip_name(U"and")) left = make(Syntax::both, nodes(std::move(left), negation()));
        return left;
    }
    NodePointer negation() {
        const Nested nested(*this);
        if (skip_name(U"not")) return make(Syntax::negation, nodes(negation()));
        return comparison();
    }
    NodePointer comparison() {
        static constexpr std::u32string_view signs[] = {U"==", U"!=", U"<", U"<=", U">", U">="};
        Nodes all = nodes(sum());
        std::vector<std::string> names;
        while (true) {
            if (now().word == Word::sign && std::ranges::find(signs, now().text) != std::end(signs)) {
                names.push_back(utf8(take().text));
            } else if (skip_name(U"in")) {
                names.push_back("in");
            } else if (now().is_name(U"not") && next().is_name(U"in")) {
                take(), take();
                names.push_back("notin");
            } else {
                break;
            }
            all.push_back(sum());
        }
        if (names.empty()) return std::move(all[0]);
        NodePointer node = make(Syntax::comparison, std::move(all));
        node->names = std::move(names);
        return node;
    }
    NodePointer sum() {
        NodePointer left = concatenation();
        while (now().is(U"+") || now().is(U"-")) {
            std::string sign = utf8(take().text);
            left = make(Syntax::arithmetic, nodes(std::move(left), concatenation()), std::move(sign));
        }
        return left;
    }
    NodePointer concatenation() {
        Nodes parts = nodes(product());
        while (skip(U"~")) parts.push_back(product());
        if (parts.size() == 1) return std::move(parts[0]);
        return make(Syntax::concatenation, std::move(parts));
    }
    NodePointer product() {
        NodePointer left = power();
        while (now().is(U"*") || now().is(U"/") || now().is(U"//") || now().is(U"%")) {
            std::string sign = utf8(take().text);
            left = make(Syntax::arithmetic, nodes(std::move(left), power()), std::move(sign));
        }
        return left;
    }
    NodePointer power() {
        NodePointer left = unary(true);
        while (skip(U"**")) left = make(Syntax::arithmetic, nodes(std::move(left), unary(true)), "**");
        return left;
    }
    NodePointer unary(bool filters) {
        const Nested nested(*this);
        NodePointer node;
        if (skip(U"-"))
            node = make(Syntax::negative, nodes(unary(false)));
        else if (skip(U"+"))
            node = make(Syntax::positive, nodes(unary(false)));
        else
            node = primary();
        node = postfix(std::move(node));
        while (filters) {
            if (now().is(U"|"))
                node = filter(std::move(node));
            else if (now().is_name(U"is"))
                node = test(std::move(node));
            else if (now().is(U"("))
                node = call(std::move(node));
            else
                break;
        }
        return node;
    }

    NodePointer constant(Value value) {
        NodePointer node = make(Syntax::constant);
        node->constant = value;
        return node;
    }
    NodePointer number() {
        const Token& token = take();
        const std::string digits = utf8(token.text);
        if (token.word == Word::real) return constant(real(std::strtod(digits.c_str(), nullptr)));
        std::int64_t value = 0;
        const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (read.ec != std::errc{}) fail(fmt::format("{} does not fit 64 bits", digits));
        return constant(integer(value));
    }
    NodePointer primary() {
        const Nested nested(*this);
        switch (now().word) {
            case Word::name: {
                const std::string word = name();
                if (word == "true" || word == "True") return constant(boolean(true));
                if (word == "false" || word == "False") return constant(boolean(false));
                if (word == "none" || word == "None") return constant(none_value());
                return make(Syntax::name, {}, word);
            }
            case Word::text: {
                std::u32string text;
                while (now().word == Word::text) text += take().text;
                return constant(store_.text(utf8(text)));
            }
            case Word::integer:
            case Word::real:
                return number();
            default:
                break;
        }
        if (skip(U"(")) {
            NodePointer inner = tuple(true, true);
            expect(U")");
            return inner;
        }
        if (now().is(U"[") || now().is(U"{")) return items(now().is(U"{"));
        fail(fmt::format("unexpected {}", text_of(now())));
    }
    NodePointer items(bool is_dict) {
        take();
        const std::u32string_view end = is_dict ? U"}" : U"]";
        Nodes all;
        while (!now().is(end)) {
            if (!all.empty()) expect(U",");
            if (now().is(end)) break;
            all.push_back(expression());
            if (!is_dict) continue;
            expect(U":");
            all.push_back(expression());
        }
        expect(end);
        return make(is_dict ? Syntax::dict : Syntax::list, std::move(all));
    }

    NodePointer postfix(NodePointer node) {
        while (true) {
            if (skip(U".")) {
                if (now().word == Word::integer)
                    node = make(Syntax::item, nodes(std::move(node), number()));
                else
                    node = make(Syntax::attribute, nodes(std::move(node)), name());
            } else if (skip(U"[")) {
                node = subscript(std::move(node));
                expect(U"]");
            } else if (now().is(U"(")) {
                node = call(std::move(node));
            } else {
                return node;
            }
        }
    }
    NodePointer subscript(NodePointer of) {
        NodePointer part[3];
        if (!now().is(U":")) part[0] = expression();
        if (!now().is(U":")) return make(Syntax::item, nodes(std::move(of), std::move(part[0])));
        for (int i = 1; i < 3 && skip(U":"); ++i)
            if (!now().is(U":") && !now().is(U"]")) part[i] = expression();
        return make(Syntax::slice,
                    nodes(std::move(of), std::move(part[0]), std::move(part[1]), std::move(part[2])));
    }

    void arguments(Node& node) {
        expect(U"(");
        bool first = true;
        while (!now().is(U")")) {
            if (!first) expect(U",");
            first = false;
            if (now().is(U")")) break;
            NodePointer* into = nullptr;
            if (skip(U"**")) {
                into = &node.named_rest;
            } else if (skip(U"*")) {
                into = &node.rest;
            } else if (now().word == Word::name && next().is(U"=")) {
                std::string key = name();
                take();
                into = &node.named.emplace_back(std::move(key), nullptr).second;
            } else {
                if (!node.named.empty() || node.rest) fail("an argument stands behind a named one");
                into = &node.arguments.emplace_back();
            }
            *into = expression();
            deepen(node, *into);
        }
        expect(U")");
    }
    NodePointer call(NodePointer function) {
        NodePointer node = make(Syntax::call, nodes(std::move(function)));
        arguments(*node);
        return node;
    }
    std::string dotted_name() {
        std::string full = name();
        while (skip(U".")) full += "." + name();
        return full;
    }
    NodePointer one_filter(NodePointer of) {
        NodePointer node = make(Syntax::filter, nodes(std::move(of)), dotted_name());
        if (now().is(U"(")) arguments(*node);
        return node;
    }
    NodePointer filter(NodePointer of) {
        while (skip(U"|")) of = one_filter(std::move(of));
        return of;
    }
    NodePointer test(NodePointer of) {
        take();
        const bool negated = skip_name(U"not");
        NodePointer node = make(Syntax::test, nodes(std::move(of)), dotted_name());
        const Token& token = now();
        if (token.is(U"(")) {
            arguments(*node);
        } else if ((token.word == Word::name && !token.is_name(U"else") && !token.is_name(U"or") &&
                    !token.is_name(U"and")) ||
                   token.word == Word::text || token.word == Word::integer || token.word == Word::real ||
                   token.is(U"[") || token.is(U"{")) {
            if (token.is_name(U"is")) fail("tests cannot follow one another; write \"and\"");
            node->arguments.push_back(postfix(primary()));
            deepen(*node, node->arguments.back());
        }
        return negated ? make(Syntax::negation, nodes(std::move(node))) : std::move(node);
    }

    /// Bounds the parser's own recursion.
    struct Nested {
        explicit Nested(Parser& parser) : parser_(parser) {
            if (++parser_.nested_ > 2 * deepest_tree) parser_.fail("nested too deeply");
        }
        ~Nested() { --parser_.nested_; }
        Parser& parser_;
    };

    std::vector<Token> tokens_;
    Store& store_;
    std::size_t at_ = 0;
    int nested_ = 0;
};

}  // namespace

NodePointer parse_template(std::string_view source, Store& store) {
    return Parser(cut_template(source), store).all();
}

}  // namespace mantissa::inline v0::jinja
