// Options that a checkpoint remembers, so that `--resume DIR` alone goes on with the run as it was asked for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mantissa::cli {

class Command;

/// Values by option, as they were typed.
using TypedOptions = std::map<std::string, std::vector<std::string>>;

/// The options of the command that were given or taken over, reports that grow with a run among them; none
/// that says where to run or what to write this time. Names of files are made absolute: a run may be resumed
/// from another folder.
TypedOptions options_to_remember(const Command& command);

/// Whether log, page and event files of the run before grow on.
enum class Reports : std::uint8_t { go_on, end };

/// Gives the command what was remembered for every option that was not given. Throws UserError, naming the
/// option, for a value that it does not take. Returns which reports were left out, and why, as they would be
/// typed: those that end, or that cannot be written any more. Empty: none.
std::string take_over(Command& command, const TypedOptions& remembered, Reports reports);

}  // namespace mantissa::cli
