// The end of a command that a signal asked to end, when what it did is safe.
#pragma once

#include <string>

#include "mantissa/base/error.h"

namespace mantissa::cli {

/// The program then ends with 128 and the signal's number, as a shell says it of a program that a signal
/// ended.
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
