#include "mantissa/device/cuda/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::cuda {

namespace {

std::string version_text(int version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

Expected<Nccl> load_nccl(const std::string& library) {
    const std::shared_ptr<void> handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* opened) {
        if (opened) dlclose(opened);
    });
    if (!handle)
        return Unexpected{
            fmt::format("there is no NCCL here ({} cannot be loaded), by which ranks on GPUs exchange; "
                        "install libnccl2, or take `device` cpu",
                        library)};
    Nccl table;
    table.kept = handle;
    std::string absent;
    for_each_nccl_function(table, [&]<class Signature>(std::function<Signature>& member, const char* symbol) {
        if (auto* address = reinterpret_cast<Signature*>(dlsym(handle.get(), symbol)))
            member = address;
        else if (absent.empty())
            absent = symbol;
    });
    if (!absent.empty())
        return Unexpected{fmt::format("NCCL ({}) has no function {}; {} or newer is needed", library, absent,
                                      version_text(min_nccl_version))};
    int version = 0;
    if (table.get_version(&version) != NcclResult::success || version < min_nccl_version)
        return Unexpected{fmt::format("NCCL ({}) is of version {}; {} or newer is needed", library,
                                      version_text(version), version_text(min_nccl_version))};
    table.name = "NCCL " + version_text(version);
    return table;
}

void require(const Nccl& table, NcclResult result, NcclComm comm, const std::string& what) {
    if (result == NcclResult::success) return;
    const char *text = table.get_error_string(result), *last = table.get_last_error(comm);
    throw UserError(fmt::format("{}: {}: {}{}", what, table.name, text ? text : "an error without words",
                                last && *last ? std::string("; ") + last : ""));
}

}  // namespace mantissa::cuda
