#include "mantissa/device/cuda/cudnn.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::cuda {

Expected<Cudnn> load_cudnn(const std::string& library) {
    const std::shared_ptr<void> handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* opened) {
        if (opened) dlclose(opened);
    });
    if (!handle)
        return Unexpected{
            fmt::format("there is no cuDNN here ({} cannot be loaded); install cuDNN 9", library)};
    Cudnn table;
    table.kept = handle;
    std::string absent;
    for_each_dnn_function(table, [&]<class Signature>(std::function<Signature>& member, const char* symbol) {
        if (auto* address = reinterpret_cast<Signature*>(dlsym(handle.get(), symbol)))
            member = address;
        else if (absent.empty())
            absent = symbol;
    });
    if (!absent.empty())
        return Unexpected{fmt::format("cuDNN ({}) has no function {}; cuDNN 9 is needed", library, absent)};
    const std::size_t version = table.get_version();
    if (version < 90000)
        return Unexpected{fmt::format("cuDNN ({}) is of version {}; 9 is needed", library, version / 1000)};
    table.name = fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
    return table;
}

std::string words_of(const Cudnn& table, DnnStatus status) {
    const char* const name = table.get_error_string(status);
    std::array<char, 512> message = {};
    table.get_last_error_string(message.data(), message.size());
    std::string words = name ? name : "a status without a name";
    words += fmt::format(" ({})", static_cast<int>(status));
    if (message[0]) words += fmt::format(": {}", message.data());
    return words;
}

void require(const Cudnn& table, DnnStatus status, const std::string& what) {
    if (status != DnnStatus::success) throw UserError(what + ": " + words_of(table, status));
}

}  // namespace mantissa::cuda
