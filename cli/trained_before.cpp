#include "cli/trained_before.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "cli/print_error.h"

namespace mantissa::cli {

namespace {

/// Phrases that many texts have come to less.
constexpr double least_share = 0.01;

const std::vector<std::string>& values_of(const TypedOptions& options, const char* name) {
    static const std::vector<std::string> none;
    const auto found = options.find(name);
    return found == options.end() ? none : found->second;
}

bool reads_same_files(const TypedOptions& before, const TypedOptions& now) {
    for (const char* name : {"--text", "--tokens", "--chats", "--images"})
        for (const std::string& path : values_of(before, name))
            if (path != "-" && std::ranges::count(values_of(now, name), path) > 0) return true;
    return values_of(before, "--pictures") == values_of(now, "--images") && before.contains("--pictures");
}

bool held_nothing_out(const TypedOptions& saved) {
    const std::vector<std::string>& every = values_of(saved, "--validate-every");
    return every.empty() || every.front() == "0" || saved.contains("--validation");
}

/// The split of a checkpoint that says how, by today's words.
bool held_out_alike(const TypedOptions& saved, const std::string& held_out) {
    const std::vector<std::string>& word = values_of(saved, "--held-out");
    return held_out == (word.empty() ? "last" : word.front());
}

void warn(const std::string& what) {
    print_error(
        fmt::format("mantissa: warning: {}, so the validation loss does not tell of new data\n", what));
}

}  // namespace

void warn_of_what_was_trained_on(const TrainOptions& options, const TrainInput& input,
                                 const std::filesystem::path& began, const std::optional<TrainedOn>& before) {
    const std::string& name = options.resume.empty() ? options.run.from : options.resume;
    if (before) {
        if (const double share = input.trained_before(*before); share >= least_share)
            warn(fmt::format("about {:.0f} % of what is validated on was trained on by {}", 100 * share,
                             name));
        return;
    }
    if (began.empty() || !std::filesystem::exists(began / "state.json")) return;
    const TypedOptions saved = saved_options(began);
    const bool resumes = !options.resume.empty();
    if (saved.empty() || !options.validation.empty()) return;
    if (!resumes && !reads_same_files(saved, options.typed)) return;
    if (held_nothing_out(saved))
        warn(fmt::format("{} was trained on all of these files", name));
    else if (!held_out_alike(saved, options.held_out))
        warn(fmt::format("{} was trained on these files, of which it held out others", name));
    else if (const std::string split = input.split_of_before(); !split.empty() && resumes)
        print_error(
            fmt::format("mantissa: {} is of an earlier version, which held out {}; this run goes on so, and "
                        "other files would change what is held out; a new run holds out by names\n",
                        name, split));
}

}  // namespace mantissa::cli
