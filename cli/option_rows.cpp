#include "cli/option_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "cli/output_file.h"
#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"

namespace mantissa::cli {

namespace {

std::string wrong_number(const std::string& given) {
    const std::size_t sign = given.starts_with('+') || given.starts_with('-') ? 1 : 0;
    const std::string_view digits = std::string_view(given).substr(sign);
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of("0123456789") == std::string::npos)
        return fmt::format("{} begins with a zero, which could mean octal; write it without", given);
    std::int64_t value = 0;
    const char* const first = given.data() + (given.starts_with('+') ? 1 : 0);
    const auto [end, error] = std::from_chars(first, given.data() + given.size(), value);
    if (error == std::errc::result_out_of_range)
        return fmt::format("{} is out of range; at most {}", given, std::numeric_limits<std::int64_t>::max());
    const bool whole = error == std::errc{} && end == given.data() + given.size();
    return whole || given.starts_with("0x") ? std::string()
                                            : fmt::format("expected a whole number, got '{}'", given);
}

std::string no_number(const std::string& given) {
    char* end = nullptr;
    std::strtod(given.c_str(), &end);
    if (!given.empty() && *end == '\0') return "";
    const bool has_comma = given.find(',') != std::string::npos;
    return fmt::format("expected a number, got '{}'{}", given,
                       has_comma ? "; write 0.5 with a point, and several numbers with blanks between" : "");
}

/// Refuses an empty value, as from `--checkpoint "$PLACE"` with PLACE unset.
std::string wrong_if_empty(const std::string& given) {
    return given.empty() ? "the value is empty; give one, or leave the option out" : std::string();
}

template <class Value>
constexpr bool has_default = std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>;
template <class Value>
constexpr bool has_default<std::vector<Value>> = true;

CLI::Option* add_field(CLI::App& app, const Row& row) {
    const auto add = [&]<class Value>(Value* field) -> CLI::Option* {
        if constexpr (std::is_same_v<Value, bool>) {
            return app.add_flag(row.name, *field, row.help);
        } else if constexpr (std::is_same_v<Value, std::optional<bool>>) {
            return app.add_flag_callback(
                row.name, [field] { *field = false; }, row.help);
        } else {
            CLI::Option* const option = app.add_option(row.name, *field, row.help);
            bool shows = false;
            if constexpr (std::is_arithmetic_v<Value>)
                shows = true;
            else if constexpr (has_default<Value>)
                shows = !field->empty();
            if (shows && row.help.find("(default: ") == std::string::npos) option->capture_default_str();
            return option;
        }
    };
    return std::visit(add, row.field);
}

void add_checks(CLI::Option& option, const Row& row) {
    if (row.is.writes_file)
        option.check([name = row.name](const std::string& given) {
            require_writable(name, given);
            return std::string();
        });
    if (row.is.words_are == WordUse::all) option.check(CLI::IsMember(row.is.words));
    if (row.is.check) option.check(row.is.check);
    if (option.get_items_expected_max() > 0 && !row.is.may_be_empty) option.check(wrong_if_empty);
    const std::string type = option.get_type_name();
    if (type == "INT" || type == "UINT") option.check(wrong_number);
    if (type == "FLOAT") option.check(no_number);
}

void require_in_range(const Row& row) {
    const auto look = [&]<class Value>(const Value& value) {
        if constexpr (std::is_arithmetic_v<Value>) {
            const auto number = static_cast<double>(value);
            const NumberRange& range = row.is.range;
            if (number >= range.least && number <= range.most) return;
            const std::string most =
                std::isfinite(range.most) ? fmt::format(", and at most {:.0f}", range.most) : "";
            throw UserError(fmt::format("{} must be {}{}, got {}", row.name, range.words, most, value));
        }
    };
    const auto look_in = [&]<class Value>(const Value* field) {
        if constexpr (std::is_arithmetic_v<Value>)
            look(*field);
        else if constexpr (std::is_same_v<Value, std::optional<std::int64_t>> ||
                           std::is_same_v<Value, std::optional<double>>)
            if (*field) look(**field);
    };
    std::visit(look_in, row.field);
}

void require_word(const Row& row, const CLI::Option& option) {
    const std::vector<std::string>& words = row.is.words;
    for (const std::string& given : option.results())
        if (std::ranges::find(words, given) == words.end())
            throw UserError(fmt::format("{} is {} or {}, got '{}'", row.name,
                                        fmt::join(words.begin(), words.end() - 1, ", "), words.back(),
                                        given));
}

bool is_missing(const std::filesystem::path& path) {
    std::error_code error;
    return std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found;
}

void require_there(const Row& row, const CLI::Option& option) {
    for (const std::string& path : option.results()) {
        // An interrupted save has moved the previous checkpoint.
        if (path == "-" || !is_missing(path) || !is_missing(AtomicDirectory::previous_of(path))) continue;
        if (!row.is.if_missing) throw UserError(path + ": does not exist");
        row.is.if_missing(path);
    }
}

class AppOfCommand : public CLI::App {
  public:
    AppOfCommand(const char* description, const char* name, CLI::App* outer)
        : App(description, name, outer) {}
    Command command{*this};
};

}  // namespace

Command& Command::in(CLI::App& outer, const char* name, const char* description) {
    const auto made = std::make_shared<AppOfCommand>(description, name, &outer);
    outer.add_subcommand(made);
    return made->command;
}

void Command::add(const char* section, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
        add_row(app_, row);
        app_.get_option(row.name)->group(section);
    }
}

void Command::add_one_of(const char* title, const std::vector<Row>& rows) {
    CLI::App& group = *app_.add_option_group("action", title);
    for (const Row& row : rows) add_row(group, row);
    group.require_option(1);
}

void Command::add_row(CLI::App& group, const Row& row) {
    CLI::Option& option = *add_field(group, row);
    if (row.is.shown) option.default_str(row.is.shown);
    if (row.is.type) option.type_name(row.is.type);
    if (row.is.values > 0) option.expected(row.is.values);
    if (row.is.commas) option.delimiter(',');
    if (row.is.one_at_a_time) option.allow_extra_args(false);
    if (!row.is.needs.empty()) option.needs(app_.get_option(row.is.needs));
    add_checks(option, row);
    rows_.push_back(row);
}

void Command::describe(const std::string& name, const std::string& help) {
    app_.get_option(name)->description(help);
}

void Command::show_default(const std::string& name, const char* shown) {
    app_.get_option(name)->default_str(shown);
}

void Command::does(std::function<void()> body) {
    add("Machine",
        {Row("--config", &option_file_,
             "Read options from this file, a line each of NAME = VALUE; typed options count instead",
             {.type = "FILE", .kept = Kept::nothing})});
    app_.callback([this, body = std::move(body)] {
        for (const Row& row : rows_) {
            const CLI::Option& option = *app_.get_option(row.name);
            if (option.count() == 0) continue;
            given_.insert(row.name);
            if (row.is.is_read) require_there(row, option);
        }
        for (const Row& row : rows_) {
            if (!given_.contains(row.name)) continue;
            const CLI::Option& option = *app_.get_option(row.name);
            if (row.is.words_are == WordUse::all_in_sentence) require_word(row, option);
            if (!row.is.range.words.empty()) require_in_range(row);
        }
        body();
    });
}

bool Command::has(const std::string& name) const { return app_.get_option_no_throw(name) != nullptr; }

bool Command::has_value(const std::string& name) const {
    const CLI::Option* const option = app_.get_option_no_throw(name);
    return option && option->count() > 0;
}

void Command::require_company() const {
    const auto does_something = [this](const std::string& name) {
        return has_value(name) && app_.get_option(name)->results() != std::vector<std::string>{"0"};
    };
    for (const Row& row : rows_)
        if (is_given(row.name) && !row.is.beside.options.empty() &&
            std::ranges::none_of(row.is.beside.options, does_something))
            throw UserError(fmt::format("{} {}", row.name, row.is.beside.otherwise));
}

std::vector<std::string> words_of_option(const CLI::App& app, const std::string& option) {
    std::vector<std::string> words;
    const auto add = [&](const std::vector<std::string>& more) {
        for (const std::string& word : more)
            if (std::ranges::find(words, word) == words.end()) words.push_back(word);
    };
    for (const CLI::App* inner : app.get_subcommands({}))
        if (const auto* const known = dynamic_cast<const AppOfCommand*>(inner)) {
            for (const Row& row : known->command.rows())
                if (row.name == option) add(row.is.words);
            add(words_of_option(*known, option));
        }
    return words;
}

std::string not_zero(const std::string& given) {
    return given.find_first_not_of("0") == std::string::npos ? "must be 1 or more, got " + given
                                                             : std::string();
}

}  // namespace mantissa::cli
