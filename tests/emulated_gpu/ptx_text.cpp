#include "tests/emulated_gpu/ptx_text.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstdlib>

#include "tests/emulated_gpu/ptx_tokens.h"

namespace mantissa::inline v0::cuda::ptx {

int bytes_of_type(std::string_view type) {
    static const std::map<std::string_view, int> sizes{
        {"pred", 0},   {"b8", 1},   {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2}, {"s16", 2},
        {"f16", 2},    {"bf16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4}, {"f32", 4}, {"f16x2", 4},
        {"bf16x2", 4}, {"tf32", 4}, {"b64", 8}, {"u64", 8}, {"s64", 8}, {"f64", 8}, {"b128", 16}};
    const auto found = sizes.find(type);
    return found == sizes.end() ? -1 : found->second;
}

namespace {

class Parser {
  public:
    explicit Parser(std::string_view text) : tokens_(text) {
        for (std::size_t start = 0; start <= text.size();) {
            const std::size_t end = std::min(text.find('\n', start), text.size());
            module_.lines.emplace_back(text.substr(start, end - start));
            start = end + 1;
        }
    }

    TextModule whole() {
        while (!tokens_.ended()) top_level();
        if (module_.target.empty()) throw TextError{0, "there is no .target"};
        return std::move(module_);
    }

  private:
    [[noreturn]] void refuse(const std::string& why) const { throw TextError{tokens_.line(), why}; }

    void top_level() {
        if (tokens_.accept(".version")) {
            const std::string number = tokens_.take();
            const std::size_t dot = number.find('.');
            if (dot == std::string::npos) refuse("a .version is of the form 7.0");
            module_.version = std::atoi(number.c_str()) * 10 + std::atoi(number.c_str() + dot + 1);
        } else if (tokens_.accept(".target")) {
            module_.target = tokens_.take();
            while (tokens_.accept(",")) tokens_.take();  // texturing and debugging modes
        } else if (tokens_.accept(".address_size")) {
            if (tokens_.take() != "64") refuse("addresses have 64 bits here");
        } else if (tokens_.accept(".file") || tokens_.accept(".loc")) {
            tokens_.skip_line();
        } else {
            linked();
        }
    }

    /// A function or a variable of the module, with how it is linked.
    void linked() {
        while (tokens_.accept(".visible") || tokens_.accept(".extern") || tokens_.accept(".weak") ||
               tokens_.accept(".common")) {
        }
        if (tokens_.accept(".entry"))
            function(true);
        else if (tokens_.accept(".func"))
            function(false);
        else
            for (Variable& variable : variables()) module_.variables.push_back(std::move(variable));
    }

    static Space space_of(const std::string& word) {
        static const std::map<std::string, Space> spaces{
            {".global", Space::global}, {".const", Space::constant}, {".shared", Space::shared},
            {".local", Space::local},   {".param", Space::param},    {".reg", Space::reg}};
        const auto found = spaces.find(word);
        if (found == spaces.end()) throw TextError{0, fmt::format("'{}' is not known here", word)};
        return found->second;
    }

    /// One name with its type: `.param .align 8 .b8 name[16]`.
    Variable declaration(Space space, const std::string& type, std::int64_t align) {
        Variable variable{.name = tokens_.take(), .space = space, .line = tokens_.line()};
        const int bytes = bytes_of_type(type);
        variable.size = bytes;
        variable.align = align ? align : bytes;
        if (tokens_.peek() == "[") variable.size = bytes;
        while (tokens_.accept("[")) {
            if (tokens_.accept("]")) {
                variable.size = 0;
                continue;
            }
            variable.size *= static_cast<std::int64_t>(integer(tokens_.take()));
            tokens_.expect("]");
        }
        if (tokens_.accept("=")) initial(variable, static_cast<std::size_t>(bytes));
        return variable;
    }

    void initial(Variable& variable, std::size_t bytes) {
        if (tokens_.accept("{")) {
            while (!tokens_.accept("}")) {
                initial(variable, bytes);
                tokens_.accept(",");
            }
        } else {
            const TextOperand number = operand();
            if (number.kind == TextOperand::Kind::name) refuse("addresses in a variable are not emulated");
            for (std::size_t i = 0; i < bytes; ++i)
                variable.bytes.push_back(static_cast<std::uint8_t>(number.bits >> (8 * i)));
        }
        if (static_cast<std::int64_t>(variable.bytes.size()) > variable.size) refuse("too many values");
    }

    /// `.space [.align n] .type a, b[4];` Registers come with a count as `%r<10>`.
    std::vector<Variable> variables() {
        const int line = tokens_.line();
        const std::string word = tokens_.take();
        Space space{};
        try {
            space = space_of(word);
        } catch (TextError& error) {
            throw TextError{line, error.message};
        }
        std::string type;
        std::int64_t align = 0;
        read_type(type, align);
        std::vector<Variable> all;
        do all.push_back(declaration(space, type, align));
        while (tokens_.accept(","));
        tokens_.expect(";");
        return all;
    }

    void read_type(std::string& type, std::int64_t& align) {
        while (tokens_.peek().starts_with(".")) {
            const std::string word = tokens_.take();
            if (word == ".align")
                align = static_cast<std::int64_t>(integer(tokens_.take()));
            else if (word == ".ptr")
                while (tokens_.peek() == ".global" || tokens_.peek() == ".shared" ||
                       tokens_.peek() == ".const" || tokens_.peek() == ".local")
                    tokens_.take();
            else if (bytes_of_type(std::string_view(word).substr(1)) >= 0)
                type = word.substr(1);
            else
                refuse(fmt::format("'{}' is no type", word));
        }
        if (type.empty()) refuse("a type is missing");
    }

    std::vector<Variable> parameter_list() {
        std::vector<Variable> all;
        tokens_.expect("(");
        while (!tokens_.accept(")")) {
            const Space space = space_of(tokens_.take());
            std::string type;
            std::int64_t align = 0;
            read_type(type, align);
            // `.param .u64 .ptr .align 1 name`: the alignment of what it points to is not its own.
            const bool pointer = type == "u64" || type == "b64";
            all.push_back(declaration(space, type, pointer ? 0 : align));
            types_of_parameters_[all.back().name] = type;
            tokens_.accept(",");
        }
        return all;
    }

    void function(bool entry) {
        TextFunction made;
        made.entry = entry;
        made.line = tokens_.line();
        types_of_parameters_.clear();
        if (tokens_.peek() == "(") made.results = parameter_list();
        made.name = tokens_.take();
        if (tokens_.peek() == "(") made.parameters = parameter_list();
        directives(made);
        for (const auto* list : {&made.parameters, &made.results})
            for (const Variable& one : *list)
                if (one.space == Space::reg) made.registers[one.name] = types_of_parameters_[one.name];
        if (!tokens_.accept(";")) {
            made.has_body = true;
            scopes_.assign(1, {});
            tokens_.expect("{");
            body(made);
        }
        module_.functions.push_back(std::move(made));
    }

    void directives(TextFunction& made) {
        while (tokens_.peek().starts_with(".")) {
            const std::string word = tokens_.take();
            int unused[3];
            if (word == ".reqntid")
                numbers(made.required_threads);
            else if (word == ".maxntid")
                numbers(made.max_threads);
            else if (word == ".minnctapersm" || word == ".maxnreg" || word == ".maxnctapersm")
                numbers(unused);
            else if (word == ".pragma")
                tokens_.skip_statement();
            else if (word != ".noreturn")
                refuse(fmt::format("the directive '{}' is not emulated", word));
        }
    }

    void numbers(int (&three)[3]) {
        int count = 0;
        for (int& number : three) number = 1;
        do {
            if (count == 3) refuse("more than three dimensions");
            three[count++] = static_cast<int>(integer(tokens_.take()));
        } while (tokens_.accept(","));
    }

    void body(TextFunction& made) {
        while (!tokens_.accept("}")) {
            if (tokens_.ended()) refuse("a body has no end");
            if (tokens_.accept("{")) {
                scopes_.emplace_back();
                body(made);
                scopes_.pop_back();
            } else if (tokens_.accept(";")) {
                continue;
            } else if (tokens_.peek() == ".reg") {
                registers(made);
            } else if (tokens_.accept(".loc") || tokens_.accept(".file")) {
                tokens_.skip_line();
            } else if (tokens_.accept(".pragma")) {
                tokens_.skip_statement();
            } else if (tokens_.peek().starts_with(".")) {
                for (Variable& variable : variables()) {
                    variable.name = declare(variable.name);
                    made.variables.push_back(std::move(variable));
                }
            } else {
                label_or_statement(made);
            }
        }
    }

    /// Names of inner scopes may be used again: each gets a name of its own.
    std::string declare(const std::string& name) {
        const std::string own = scopes_.size() == 1 ? name : fmt::format("{}@{}", name, ++scope_names_);
        scopes_.back()[name] = own;
        return own;
    }

    std::string resolve(const std::string& name) const {
        for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
            if (const auto found = scope->find(name); found != scope->end()) return found->second;
        return name;
    }

    void registers(TextFunction& made) {
        tokens_.expect(".reg");
        std::string type;
        std::int64_t align = 0;
        read_type(type, align);
        do {
            const std::string name = tokens_.take();
            if (tokens_.accept("<")) {
                const auto count = integer(tokens_.take());
                tokens_.expect(">");
                for (std::uint64_t i = 0; i < count; ++i)
                    made.registers[declare(name + std::to_string(i))] = type;
            } else {
                made.registers[declare(name)] = type;
            }
        } while (tokens_.accept(","));
        tokens_.expect(";");
    }

    void label_or_statement(TextFunction& made) {
        const int line = tokens_.line();
        if (tokens_.peek(1) == ":") {
            const std::string label = tokens_.take();
            tokens_.expect(":");
            if (tokens_.accept(".branchtargets")) {
                do made.branch_targets[label].push_back(tokens_.take());
                while (tokens_.accept(","));
                tokens_.expect(";");
            } else if (!made.labels.try_emplace(label, static_cast<int>(made.statements.size())).second) {
                refuse(fmt::format("the label {} is there twice", label));
            }
            return;
        }
        Statement statement{.line = line};
        if (tokens_.accept("@")) {
            statement.guard_negated = tokens_.accept("!");
            statement.guard = resolve(tokens_.take());
        }
        statement.line = tokens_.line();
        for (std::string_view rest = tokens_.peek(); !rest.empty();) {
            const std::size_t dot = rest.find('.', 0);
            statement.op.emplace_back(rest.substr(0, dot));
            rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
        }
        tokens_.take();
        while (!tokens_.accept(";")) {
            statement.operands.push_back(operand());
            if (!tokens_.accept(",") && tokens_.peek() != ";" && tokens_.peek() != "[") {
                refuse(fmt::format("';' or ',' was expected, not '{}'", tokens_.peek()));
            }
        }
        made.statements.push_back(std::move(statement));
    }

    TextOperand operand() {
        TextOperand found;
        if (tokens_.peek() == "{" || tokens_.peek() == "(") {
            const std::string close = tokens_.take() == "{" ? "}" : ")";
            found.kind = TextOperand::Kind::vector;
            while (!tokens_.accept(close)) {
                found.parts.push_back(operand());
                tokens_.accept(",");
            }
            return found;
        }
        if (tokens_.accept("[")) {
            found = operand();
            if (found.kind == TextOperand::Kind::integer)
                found.offset = static_cast<std::int64_t>(found.bits);
            found.kind = TextOperand::Kind::address;
            if (!tokens_.accept("]")) refuse("']' was expected");
            return found;
        }
        if (tokens_.accept("!")) {
            found = operand();
            found.negated = true;
            return found;
        }
        return name_or_number();
    }

    TextOperand name_or_number() {
        TextOperand found;
        const bool minus = tokens_.accept("-");
        const std::string word = tokens_.take();
        if (word.empty()) refuse("the text ends within a statement");
        if (word[0] >= '0' && word[0] <= '9') {
            number(word, found);
            if (minus && found.kind == TextOperand::Kind::integer) found.bits = 0 - found.bits;
            if (minus && found.kind == TextOperand::Kind::f64) found.bits ^= std::uint64_t{1} << 63;
            if (minus && found.kind == TextOperand::Kind::f32) found.bits ^= std::uint64_t{1} << 31;
            return found;
        }
        found.name = resolve(word);
        if (tokens_.accept("|")) found.second = resolve(tokens_.take());
        while (tokens_.peek() == "+" || tokens_.peek() == "-") {
            const bool less = tokens_.take() == "-";
            const bool inner_minus = tokens_.accept("-");
            const auto by = static_cast<std::int64_t>(integer(tokens_.take()));
            found.offset += less != inner_minus ? -by : by;
        }
        return found;
    }

    void number(const std::string& word, TextOperand& found) const {
        if (word.size() > 2 && word[0] == '0' && (word[1] == 'f' || word[1] == 'F') && word.size() == 10) {
            found.kind = TextOperand::Kind::f32;
            found.bits = std::strtoull(word.c_str() + 2, nullptr, 16);
        } else if (word.size() == 18 && word[0] == '0' && (word[1] == 'd' || word[1] == 'D')) {
            found.kind = TextOperand::Kind::f64;
            found.bits = std::strtoull(word.c_str() + 2, nullptr, 16);
        } else if (word.find('.') != std::string::npos) {
            found.kind = TextOperand::Kind::f64;
            found.bits = std::bit_cast<std::uint64_t>(std::strtod(word.c_str(), nullptr));
        } else {
            found.kind = TextOperand::Kind::integer;
            found.bits = integer(word);
        }
    }

    std::uint64_t integer(std::string word) const {
        if (!word.empty() && (word.back() == 'U' || word.back() == 'u')) word.pop_back();
        const char* const start = word.c_str();
        char* end = nullptr;
        const std::uint64_t value = word.starts_with("0b") || word.starts_with("0B")
                                        ? std::strtoull(start + 2, &end, 2)
                                        : std::strtoull(start, &end, 0);
        if (word.empty() || *end != 0) refuse(fmt::format("'{}' is no number", word));
        return value;
    }

    Tokens tokens_;
    TextModule module_;
    std::vector<std::map<std::string, std::string>> scopes_{1};
    std::map<std::string, std::string> types_of_parameters_;
    int scope_names_ = 0;
};

}  // namespace

TextModule parse(std::string_view text) { return Parser(text).whole(); }

}  // namespace mantissa::cuda::ptx
