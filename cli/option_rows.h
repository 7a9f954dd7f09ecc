// One description of an option: a row. Parsing, help, manual, completion, the option file, what a checkpoint
// remembers, and checks follow from it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Where the value goes. An optional bool is a switch that makes it false.
using OptionField =
    std::variant<bool*, std::optional<bool>*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                 std::optional<std::int64_t>*, std::optional<double>*, std::optional<std::string>*,
                 std::vector<std::string>*, std::vector<double>*, std::vector<float>*>;

/// Words of an option are some of its values, for a shell to complete; all, which help shows; or all, which
/// the option's sentence names.
enum class WordUse : std::uint8_t { some, all, all_in_sentence };

/// Kept by a checkpoint: the value; nothing, for the next run says it anew; or a report that grows with the
/// run.
enum class Kept : std::uint8_t { value, nothing, report };

/// The largest number where many is meant: the parser gives its own largest for anything larger.
inline constexpr double most_of_count = std::numeric_limits<std::int32_t>::max();

/// Numbers that an option takes: "--steps must be 1 or more, got 0".
struct NumberRange {
    double least = -std::numeric_limits<double>::infinity();
    std::string words = {};  ///< "1 or more"
    double most = std::numeric_limits<double>::infinity();
};

/// Options of which one is needed by another, and what is said of that one where none is given.
struct Company {
    std::vector<std::string> options = {};  ///< a value of 0 counts as not given
    std::string otherwise = {};             ///< "belongs to --chat; give that, or leave it out"
};

struct OptionTraits {
    const char* type = nullptr;   ///< of the value, as help shows it; null: that of the field
    const char* shown = nullptr;  ///< the default in help; null: the field's, unless the help names one
    int values = 0;               ///< how many; 0: as many as the field takes
    bool commas = false;          ///< values may have commas between
    bool one_at_a_time = false;   ///< each value has the option before it
    bool may_be_empty = false;    ///< the value
    bool writes_file = false;     ///< that it can be written is seen at once
    bool is_path = false;         ///< a checkpoint remembers it from the root of the file system
    bool is_read = false;         ///< files or folders that must be there; "-" is standard input
    /// Throws UserError for one that is not there, in words of its own, or takes it as something else.
    std::function<void(const std::string&)> if_missing = {};
    std::vector<std::string> words = {};
    WordUse words_are = WordUse::some;
    std::function<std::string(const std::string&)> check = {};  ///< what is wrong with a value, or nothing
    NumberRange range = {};
    std::string needs = {};  ///< the parser refuses it without this option
    Company beside = {};
    Kept kept = Kept::value;
};

struct Row {
    Row(std::string name, OptionField field, std::string help, OptionTraits is = {})
        : name(std::move(name)), field(field), help(std::move(help)), is(std::move(is)) {}

    std::string name;
    OptionField field;
    std::string help;
    OptionTraits is;
};

/// A command of the program, with its options.
class Command {
  public:
    explicit Command(CLI::App& app) : app_(app) {}
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;

    /// Adds a command to the program, or to another command.
    static Command& in(CLI::App& outer, const char* name, const char* description);

    /// Adds options. `section`: of --help and of the manual, the same for an option in every command.
    void add(const char* section, const std::vector<Row>& rows);
    /// Adds options of which exactly one is given.
    void add_one_of(const char* title, const std::vector<Row>& rows);
    /// Another help for one of them, or another default in the help.
    void describe(const std::string& name, const std::string& help);
    void show_default(const std::string& name, const char* shown);

    /// Takes the command's body, once all of its options are there, --config being the last. Files that are
    /// not there, and then values out of their ranges, are refused before it runs.
    void does(std::function<void()> body);

    const std::vector<Row>& rows() const { return rows_; }
    bool has(const std::string& name) const;
    /// Options that were typed or stand in the option file, once it runs.
    const std::set<std::string>& given() const { return given_; }
    bool is_given(const std::string& name) const { return given_.contains(name); }
    /// Whether it was given or taken over from a checkpoint.
    bool has_value(const std::string& name) const;
    /// Throws UserError where an option was given without its company.
    void require_company() const;

    CLI::App& app() { return app_; }
    const CLI::App& app() const { return app_; }

  private:
    void add_row(CLI::App& group, const Row& row);

    CLI::App& app_;
    std::vector<Row> rows_;
    std::set<std::string> given_;
    std::string option_file_;
};

/// Words that the option takes in any command, for a shell that completes; none where it takes anything.
std::vector<std::string> words_of_option(const CLI::App& app, const std::string& option);

/// A check of an option: 0 stands for the standard in the program's own words, not in the user's.
std::string not_zero(const std::string& given);

}  // namespace mantissa::cli
