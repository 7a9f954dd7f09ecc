// Files that the program is given: those of an earlier revision, and a text that it learns quickly.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace mantissa::testing {

/// Files of an earlier revision, and the images among them: ten each of blue, green and red.
inline const std::string fixtures = MANTISSA_SOURCE_DIR "/tests/fixtures/248ad45",
                         pictures = fixtures + "/pictures";

/// Writes so many sentences that differ in a number. Returns the file's name.
inline std::string write_sentences(const std::filesystem::path& path, int count = 400) {
    std::ofstream file(path);
    for (int i = 0; i < count; ++i) file << "the cat sat on the mat and saw the dog number " << i << "\n";
    return path.string();
}

}  // namespace mantissa::testing
