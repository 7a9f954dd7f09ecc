// The subcommands, one source file each, in the order of the help. Each runs in its callback and throws
// UserError. `typed`: the command line, which a command's page repeats. And errors that say how a command
// ended.
#pragma once

#include <string>

#include "mantissa/base/error.h"

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

/// The end of a command that a signal asked to end, once its work is saved. The program then ends with 128
/// and the signal's number, as a shell says it of a program that a signal ended.
class Interrupted : public UserError {
  public:
    Interrupted(int signal, const std::string& what) : UserError(what), signal_(signal) {}
    int exit_status() const { return 128 + signal_; }

  private:
    int signal_;
};

/// The end of a command that went wrong and has said so.
class AlreadySaid : public UserError {
  public:
    explicit AlreadySaid(int exit_status) : UserError("it was said already"), exit_status_(exit_status) {}
    int exit_status() const { return exit_status_; }

  private:
    int exit_status_;
};

}  // namespace mantissa::cli
