// `mantissa peaks`: the peak rates of a device in each number format.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/run_options.h"
#include "mantissa/device/device.h"
#include "mantissa/report/peaks.h"

namespace mantissa::cli {

namespace {

struct PeaksCommand {
    RunOptions machine;
    std::string of;  ///< empty: this machine
};

void run(const PeaksCommand& options) {
    const FormatPeaks peaks = options.of.empty()
                                  ? open_device(options.machine)->measure_formats()
                                  : in_option("--of", [&] { return accelerator_peaks(options.of); });
    fmt::print("{}", peaks_table(peaks));
    write_output(options.machine.json, peaks_json(peaks));
}

}  // namespace

void add_peaks_command(CLI::App& app) {
    const auto options = std::make_shared<PeaksCommand>();
    Command& command =
        Command::in(app, "peaks", "Print this machine's rate in every number format, computed and measured");
    command.add(
        "Machine",
        {Row("--of", &options->of,
             fmt::format("Accelerator whose peaks are computed, instead of measuring this machine: {}",
                         fmt::join(accelerator_names(), ", ")),
             {.words = accelerator_names()})});
    add_machine_options(command, options->machine);
    command.does([options] { run(*options); });
}

}  // namespace mantissa::cli
