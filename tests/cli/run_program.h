// The program run in a shell, and what it said.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace mantissa::testing {

struct Ran {
    int status = -1;
    std::string output;  ///< standard output and standard error
};

/// Runs a command in a shell.
inline Ran run_in_shell(const std::string& command) {
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    Ran ran;
    std::array<char, 4096> buffer;
    while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
        ran.output.append(buffer.data(), got);
    const int status = ::pclose(pipe);
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ran;
}

/// Runs `mantissa ARGUMENTS` in a shell.
inline Ran run(const std::string& arguments) {
    return run_in_shell(MANTISSA_BINARY_DIR "/mantissa " + arguments);
}

/// The last line of what was printed.
inline std::string last_line(const std::string& output) {
    const std::string text = output.substr(0, output.find_last_not_of('\n') + 1);
    return text.substr(text.rfind('\n') + 1);
}

}  // namespace mantissa::testing
