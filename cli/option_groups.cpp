#include "cli/option_groups.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace mantissa::cli {

namespace {

struct Section {
    const char* title;
    std::vector<std::string_view> options;
};

/// An option is in the same section of every command.
const std::vector<Section>& sections() {
    static const std::vector<Section> all = {
        {"Model",
         {"--model", "--layers", "--heads", "--channels", "--context", "--vocabulary", "--dropout",
          "--no-bias", "--image-size", "--classes", "--width", "--from"}},
        {"Text", {"--text", "--tokens", "--tokens-format", "--tokenizer", "--documents"}},
        {"Pictures",
         {"--images", "--resize", "--crop-padding", "--augment", "--mean", "--deviation", "--bad-pictures",
          "--read-threads"}},
        {"Training",
         {"--batch", "--sequence", "--accumulate", "--steps", "--seed", "--order", "--optimizer",
          "--learning-rate", "--min-learning-rate", "--warmup", "--betas", "--momentum", "--nesterov",
          "--weight-decay", "--clip", "--bad-steps", "--freeze", "--ema"}},
        {"Formats and passes",
         {"--policy", "--policies", "--simulate", "--loss-scale", "--loss-scale-start",
          "--loss-scale-interval", "--loss-scale-floor", "--passes", "--recompute"}},
        {"Checkpoints", {"--checkpoint", "--save-every", "--resume", "--keep-best"}},
        {"Validation and samples",
         {"--validate-every", "--validate-batches", "--patience", "--validation", "--held-out",
          "--sample-every", "--prompt", "--tolerance", "--seeds"}},
        {"Reports",
         {"--json", "--log", "--html", "--tensorboard", "--histogram-every", "--trace", "--print-every",
          "--quiet", "--profile", "--pass-times", "--dump", "--dump-target", "--diff", "--roofline",
          "--memory", "--nodes", "--rungs", "--repeats", "--no-measure"}},
        {"Machine", {"--device", "--threads", "--memory-rate", "--for", "--config"}},
        {"Ranks",
         {"--ranks", "--link", "--latency", "--on", "--states", "--reduce-dtype", "--bucket",
          "--rank-timeout", "--compare-every"}},
    };
    return all;
}

/// Below, one list is easier to read.
constexpr std::size_t many_options = 25;

void group_options_of(CLI::App& command) {
    const std::vector<CLI::Option*> options = command.get_options();
    for (CLI::Option* option : options)
        for (const Section& section : sections())
            if (options.size() >= many_options &&
                std::ranges::find(section.options, option->get_name()) != section.options.end())
                option->group(section.title);
}

}  // namespace

void group_options(CLI::App& app) {
    for (CLI::App* command : app.get_subcommands({})) {
        group_options_of(*command);
        group_options(*command);
    }
}

}  // namespace mantissa::cli
