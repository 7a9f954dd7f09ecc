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

}  // namespace mantissa::cli
