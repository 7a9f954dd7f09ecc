#include "cli/bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "mantissa/base/file.h"

namespace mantissa::cli {

namespace {

/// Nothing but what a signal handler may do.
void write_error(const char* text) {
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody left to tell
}

void on_bus_error(int signal, siginfo_t* info, void*) {
    const char* const file = mapped_file_at(info->si_addr);
    if (!file) {
        ::signal(signal, SIG_DFL);  // the instruction runs again, and the signal ends the program
        return;
    }
    write_error("mantissa: ");
    write_error(file);
    write_error(
        ": was cut short while it was read, or its disk failed; let nobody write to it and run this again\n");
    ::_exit(1);
}

}  // namespace

void name_files_cut_short() {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace mantissa::cli
