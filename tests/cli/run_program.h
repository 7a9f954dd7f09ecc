// The program run in a shell, and what it said.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <sstream>
#include <string>

namespace mantissa::testing {

struct Ran {
    int status = -1;
    std::string output;  ///< standard output and standard error
};

/// As one word of a shell's.
inline std::string quoted(const std::string& text) {
    std::string word = "'";
    for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return word + "'";
}

/// The seconds that a command may take before it is ended, and all that it started.
constexpr int max_seconds = 300;

/// Runs a command in a shell. One that is not done in time has the status 124, and words say so.
inline Ran run_in_shell(const std::string& command, int seconds = max_seconds) {
    const std::string limited = "timeout " + std::to_string(seconds) + " sh -c " + quoted(command + " 2>&1");
    std::FILE* pipe = ::popen(limited.c_str(), "r");
    Ran ran;
    std::array<char, 4096> buffer;
    while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
        ran.output.append(buffer.data(), got);
    const int status = ::pclose(pipe);
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (ran.status == 124)
        ran.output += "\nended after " + std::to_string(seconds) + " s, though it was not done: " + command;
    return ran;
}

inline const std::string program = MANTISSA_BINARY_DIR "/mantissa";

/// Runs `mantissa ARGUMENTS` in a shell.
inline Ran run(const std::string& arguments) { return run_in_shell(program + " " + arguments); }

/// A shell's words before a program that is to find the emulated GPU with these options.
inline std::string emulated_gpu_variables(const std::string& options) {
    return "LD_LIBRARY_PATH=" MANTISSA_BINARY_DIR "/emulated_gpu EMULATED_GPU=" + options + " ";
}
/// The program's name behind them.
inline std::string with_emulated_gpu(const std::string& options) {
    return emulated_gpu_variables(options) + program + " ";
}

/// The lines of steps and validations that were printed, without their times.
inline std::string steps_of(const std::string& output) {
    std::istringstream lines(output);
    std::string steps;
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with("step "))
            steps += line.substr(0, line.find(" ms")).substr(0, line.rfind("norm")) + "\n";
    return steps;
}

/// The last line of what was printed.
inline std::string last_line(const std::string& output) {
    const std::string text = output.substr(0, output.find_last_not_of('\n') + 1);
    return text.substr(text.rfind('\n') + 1);
}

}  // namespace mantissa::testing
