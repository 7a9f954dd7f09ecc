// The subcommands, one source file each, in the order of the help. Each runs in its callback and throws
// UserError. `typed`: the command line, repeated on a command's page.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace mantissa::cli {

void add_ladder_command(CLI::App& app, const std::string& typed);
void add_train_command(CLI::App& app, const std::string& typed);
void add_generate_command(CLI::App& app);
void add_predict_command(CLI::App& app);
void add_explain_command(CLI::App& app, const std::string& typed);
void add_lint_command(CLI::App& app);
void add_peaks_command(CLI::App& app);
void add_numerics_command(CLI::App& app, const std::string& typed);
/// Adds it below `numerics`.
void add_converge_command(CLI::App& numerics, const std::string& typed);
void add_bench_command(CLI::App& app, const std::string& typed);
void add_tokenize_command(CLI::App& app);
/// Completes the commands that were added before it.
void add_completion_command(CLI::App& app);
/// Describes all commands of the running program.
void add_manual_command(CLI::App& app);

}  // namespace mantissa::cli
