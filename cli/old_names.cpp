#include "cli/old_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "cli/run_options.h"

namespace mantissa::cli {

namespace {

struct OldOption {
    std::string_view before, today;
};
constexpr std::array<OldOption, 4> options = {
    {{"simulate", "emulate"}, {"deviation", "std"}, {"bad-pictures", "bad-images"}, {"pictures", "images"}}};

struct OldWord {
    std::string_view option, before, today;
};
constexpr std::array<OldWord, 2> values = {
    {{"augment", "mirror", "flip"}, {"passes", "chunk_loss", "fuse_linear_cross_entropy"}}};

}  // namespace

std::string option_today(std::string_view name) {
    const auto old = std::ranges::find(options, name, &OldOption::before);
    return std::string(old == options.end() ? name : old->today);
}

std::string value_today(std::string_view option, std::string_view value) {
    if (std::ranges::find(values, option, &OldWord::option) == values.end()) return std::string(value);
    std::vector<std::string> words = split_at_commas(std::string(value));
    for (std::string& word : words)
        for (const OldWord& old : values)
            if (old.option == option && old.before == word) word = old.today;
    return fmt::format("{}", fmt::join(words, ","));
}

std::vector<std::string> words_today(const std::vector<std::string>& words) {
    std::vector<std::string> today;
    std::string option;  // whose values follow
    for (const std::string& word : words) {
        if (!word.starts_with("--")) {
            today.push_back(value_today(option, word));
            continue;
        }
        const std::size_t equals = word.find('=');
        option = option_today(std::string_view(word).substr(2, equals == word.npos ? word.npos : equals - 2));
        today.push_back("--" + option);
        if (equals != word.npos) today.back() += "=" + value_today(option, word.substr(equals + 1));
    }
    return today;
}

}  // namespace mantissa::cli
