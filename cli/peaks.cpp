#include "cli/peaks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/report/peaks.h"
#include "mantissa/report/peaks_accelerators.h"

namespace mantissa::cli {

namespace {

struct Options {
    std::string of, json;
};

void run(const Options& options) {
    const FormatPeaks peaks = accelerator_peaks(options.of);
    fmt::print("{}", peaks_table(peaks));
    write_json(options.json, peaks_json(peaks));
}

}  // namespace

void add_peaks_command(CLI::App& app) {
    const auto options = std::make_shared<Options>();
    CLI::App* command =
        app.add_subcommand("peaks", "Print the rate of every number format, theoretical and measured");
    command
        ->add_option("--of", options->of,
                     fmt::format("Compute those of an accelerator: {}", fmt::join(accelerator_names(), ", ")))
        ->required();
    command->add_option("--json", options->json, "Write what is printed to this file, for machines")
        ->type_name("FILE");
    command->callback([options] { run(*options); });
}

}  // namespace mantissa::cli
