// The end of a command after a signal, once its work is safe.
#pragma once

#include <string>

#include "mantissa/base/error.h"

namespace mantissa::cli {

/// The program's status is then 128 plus the signal's number, as shells report it.
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
