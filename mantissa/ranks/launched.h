// Whether this process was started as one of several ranks, and by whom: a launcher's variables in the
// environment, and the transport that belongs to it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "mantissa/ranks/transport.h"

namespace mantissa::inline v0 {

struct Launched {
    std::string by;      ///< as in "Open MPI's mpirun"
    std::string plugin;  ///< file name of the transport that it needs; empty: there is none yet
    int ranks = 1;
};

/// None where the process stands alone, or is the only rank.
std::optional<Launched> launched();

/// Connects with the other ranks, which are waited for so many seconds. Throws UserError in one line where
/// the plug-in or a library that it needs is not there, naming the package to install.
std::unique_ptr<Transport> connect(const Launched& launched, double seconds);

}  // namespace mantissa
