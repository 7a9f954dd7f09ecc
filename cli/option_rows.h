// An option described once, as a row. Parsing, help, manual, completion, the option file, a checkpoint's
// memory, and checks follow from it.
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

/// The variable of the value. An optional bool is a switch that makes it false.
using OptionField =
    std::variant<bool*, std::optional<bool>*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                 std::optional<std::int64_t>*, std::optional<double>*, std::optional<std::string>*,
                 std::vector<std::string>*, std::vector<double>*, std::vector<float>*>;

/// Words of an option: some of its values, for completion; all, shown in help; or all, named in the option's
/// sentence.
enum class WordUse : std::uint8_t { some, all, all_in_sentence };

/// A checkpoint's memory of an option: its value; nothing, as the next run must give it again; or a report
/// that grows with the run.
enum class Kept : std::uint8_t { value, nothing, report };

/// The largest count: the parser returns its own maximum for anything larger.
inline constexpr double most_of_count = std::numeric_limits<std::int32_t>::max();

/// The allowed range: "--steps must be 1 or more, got 0".
struct NumberRange {
    double least = -std::numeric_limits<double>::infinity();
    std::string words = {};  ///< "1 or more"
    double most = std::numeric_limits<double>::infinity();
};

/// Options that another option needs one of, and the error without them.
struct Company {
    std::vector<std::string> options = {};  ///< a value of 0 counts as not given
    std::string otherwise = {};             ///< "belongs to --chat; give that, or leave it out"
};

struct OptionTraits {
    const char* type = nullptr;   ///< of the value in help; null: the field's type
    const char* shown = nullptr;  ///< default in help; null: the field's, unless the help names one
    int values = 0;               ///< number of values; 0: as many as the field takes
    bool commas = false;          ///< values may be separated by commas
    bool one_at_a_time = false;   ///< each value needs the option before it
    bool may_be_empty = false;    ///< the value
    bool writes_file = false;     ///< checked at once to be writable
    bool is_path = false;         ///< a checkpoint stores it as an absolute path
    bool is_read = false;         ///< files or folders that must exist; "-" is standard input
    /// Throws UserError with a text of its own for a missing file, or accepts it as something else.
    std::function<void(const std::string&)> if_missing = {};
    std::vector<std::string> words = {};
    WordUse words_are = WordUse::some;
    std::function<std::string(const std::string&)> check =
        {};  ///< returns the fault of a value, or an empty text
    NumberRange range = {};
    std::string needs = {};  ///< required by the parser
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

    /// Adds options. `section`: of --help and the manual, equal for an option in every command.
    void add(const char* section, const std::vector<Row>& rows);
    /// Adds options of which exactly one must be given.
    void add_one_of(const char* title, const std::vector<Row>& rows);
    /// Replaces an option's help, or its default in the help.
    void describe(const std::string& name, const std::string& help);
    void show_default(const std::string& name, const char* shown);

    /// Sets the command's body, after all of its options were added; --config becomes the last. Missing
    /// files, and then values out of range, are refused before it runs.
    void does(std::function<void()> body);

    const std::vector<Row>& rows() const { return rows_; }
    bool has(const std::string& name) const;
    /// Options that were typed or are in the option file, known once it runs.
    const std::set<std::string>& given() const { return given_; }
    bool is_given(const std::string& name) const { return given_.contains(name); }
    /// Whether it was given or taken over from a checkpoint.
    bool has_value(const std::string& name) const;
    /// Throws UserError if an option was given without its company.
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

/// Words of the option in any command, for a shell's completion; none if it takes any value.
std::vector<std::string> words_of_option(const CLI::App& app, const std::string& option);

/// A check: 0 means the default in the program, not as a user's value.
std::string not_zero(const std::string& given);

}  // namespace mantissa::cli
