// Any bytes as a token file, in each format: refused with a UserError, or all tokens readable and in range.
#include "mantissa/data/token_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const int fd = ::memfd_create("tokens", 0);
    static const std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size))
        __builtin_trap();
    using mantissa::TokenFormat;
    for (const TokenFormat format :
         {TokenFormat::detect, TokenFormat::llmc, TokenFormat::raw, TokenFormat::npy}) {
        try {
            const mantissa::TokenFile file(path, format);
            std::vector<std::int32_t> tokens(file.size());
            file.copy(0, tokens);
            for (const std::int32_t token : tokens)
                mantissa::check(token >= 0, "a token number is not negative");
            file.check_vocabulary(50257);
        } catch (const mantissa::UserError&) {
            continue;
        }
    }
    return 0;
}
