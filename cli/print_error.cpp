#include "cli/print_error.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "mantissa/base/file.h"

namespace mantissa::cli {

namespace {

/// Names of fields in the library, each with the option for it.
constexpr std::pair<const char*, const char*> options_of_fields[] = {
    {"accumulate", "--accumulate"},
    {"batch", "--batch"},
    {"device", "--device"},
    {"adapter", "--adapter"},
    {"encode_text", "tokenize --encode"},
    {"frozen", "--freeze"},
    {"image_size", "--image-size"},
    {"least", "--min-learning-rate"},
    {"length", "--length"},
    {"load_weights", "--from"},
    {"lora", "--lora"},
    {"lora_alpha", "--lora-alpha"},
    {"lora_dropout", "--lora-dropout"},
    {"model", "--model"},
    {"out", "--out"},
    {"passes", "--passes"},
    {"peak", "--learning-rate"},
    {"policy", "--policy"},
    {"recompute", "--recompute"},
    {"sequence", "--sequence"},
    {"size.batch", "--batch-size"},
    {"size.batches", "--num-batches-per-iter"},
    {"size.iterations", "--num-iters"},
    {"size.warmup_batches", "--num-warmup-batches"},
    {"states", "--states"},
    {"texts", "--text"},
    {"tokenizer", "--tokenizer"},
    {"tokens", "--tokens"},
    {"tokens_format", "--tokens-format"},
    {"trunk", "--trunk"},
    {"warmup", "--warmup"},
    {"width", "--width"},
};

}  // namespace

std::string with_options(const std::string& text) {
    std::string said = text;
    for (const auto& [field, option] : options_of_fields) {
        const std::string named = std::string("`") + field + "`";
        for (std::size_t at = 0; (at = said.find(named, at)) != std::string::npos;)
            said.replace(at, named.size(), option);
    }
    return said;
}

void print_error(const std::string& text) {
    const std::string said = with_options(text);
    static_cast<void>(std::fwrite(said.data(), 1, said.size(), stderr));
}

namespace {

/// Uses only functions that a signal handler may call.
void write_error(const char* text) {
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // the text cannot be delivered
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
