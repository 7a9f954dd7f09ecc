// Whether this process was started as one of several ranks, and by whom: the variables that a launcher
// sets, and the transport that belongs to it. Ranks of one host share its cores: each keeps to its
// own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/ranks/ranks.h"
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

/// Cores that this process may use, by its affinity mask.
std::vector<int> usable_cores();

/// Threads for this rank where none were asked for (0): its threads from now on keep to their cores. Returns
/// `asked` where the launcher gave each rank cores of its own, or OMP_NUM_THREADS says how many; 0 then: as
/// many as there may be. All ranks call it.
int share_cores(Ranks& ranks, int asked);

}  // namespace mantissa
