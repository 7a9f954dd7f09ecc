#include "mantissa/device/cuda/cublaslt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::cuda {

Expected<CublasLt> load_cublaslt(const std::string& library) {
    const std::shared_ptr<void> handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* opened) {
        if (opened) dlclose(opened);
    });
    if (!handle)
        return Unexpected{fmt::format(
            "there is no cuBLASLt here ({} cannot be loaded); install CUDA's libcublas 12 or 13", library)};
    CublasLt table;
    table.kept = handle;
    std::string absent;
    for_each_blas_function(table, [&]<class Signature>(std::function<Signature>& member, const char* symbol) {
        if (auto* address = reinterpret_cast<Signature*>(dlsym(handle.get(), symbol)))
            member = address;
        else if (absent.empty())
            absent = symbol;
    });
    if (!absent.empty())
        return Unexpected{fmt::format("cuBLASLt ({}) has no function {}; that of CUDA 12 or 13 is needed",
                                      library, absent)};
    const std::size_t version = table.get_version();
    if (version < 120000)
        return Unexpected{
            fmt::format("cuBLASLt ({}) is of version {}; 12 or 13 is needed", library, version / 10000)};
    table.name = fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
    return table;
}

void require(const CublasLt& table, BlasStatus status, const std::string& what) {
    if (status == BlasStatus::success) return;
    const char *name = table.get_status_name(status), *text = table.get_status_string(status);
    throw UserError(fmt::format("{}: {} ({}): {}", what, name ? name : "a status without a name",
                                static_cast<int>(status), text ? text : "the library says no more"));
}

}  // namespace mantissa::cuda
