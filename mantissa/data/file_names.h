// The common name of several files, in messages and in the name of a run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

/// A short name for one or more files: "a.txt", "DIR (13 files)", "41 files of DIR and b.txt".
std::string name_of(const std::vector<std::filesystem::path>& files);

}  // namespace mantissa
