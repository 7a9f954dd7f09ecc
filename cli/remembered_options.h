// Options that a checkpoint remembers, so that `--resume DIR` alone goes on with the run as it was asked for.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Values by option, as they were typed.
using TypedOptions = std::map<std::string, std::vector<std::string>>;

/// The options of the command that were given or taken over, and those that not_taken_over names; none else
/// that says where to run or what to write this time. Names of files are made absolute: a run may be resumed
/// from another folder.
TypedOptions options_to_remember(const CLI::App& command);

/// Gives the command what was remembered for every option that was not given. Throws UserError, naming the
/// option, for a value that it does not take.
void take_over(CLI::App& command, const TypedOptions& remembered);

/// Of what was remembered, the log, the views and the threads of that run, as far as they were not given
/// again: they are not continued. As they would be typed; empty if there are none.
std::string not_taken_over(const CLI::App& command, const TypedOptions& remembered);

}  // namespace mantissa::cli
