// The subcommands, one source file each, in the order of the help. Each runs in its callback and throws
// UserError. `typed`: the command line, repeated on a command's page. Also errors about a command's end.
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

/// The end of a command after a signal, once its work is safe. The program's status is then 128 plus the
/// signal's number, as shells report it.
class Interrupted : public UserError {
  public:
    Interrupted(int signal, const std::string& what) : UserError(what), signal_(signal) {}
    int exit_status() const { return 128 + signal_; }

  private:
    int signal_;
};

/// The end of a command after an error that was already printed.
class AlreadySaid : public UserError {
  public:
    explicit AlreadySaid(int exit_status) : UserError("it was said already"), exit_status_(exit_status) {}
    int exit_status() const { return exit_status_; }

  private:
    int exit_status_;
};

}  // namespace mantissa::cli
