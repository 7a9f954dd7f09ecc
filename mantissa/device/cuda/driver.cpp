#include "mantissa/device/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::cuda {

namespace {

/// Why an initialised driver cannot be used; empty if it can.
std::string missing(const Driver& driver, int& version) {
    if (const Result result = driver.init(0); result != Result::success)
        return "the NVIDIA driver does not start: " + words_of(driver, result);
    if (driver.driver_get_version(&version) != Result::success) return "the NVIDIA driver has no version";
    if (version < min_driver_version)
        return fmt::format("the NVIDIA driver is of CUDA {}.{}; CUDA {}.{} is needed", version / 1000,
                           version % 1000 / 10, min_driver_version / 1000, min_driver_version % 1000 / 10);
    int devices = 0;
    if (driver.device_get_count(&devices) != Result::success || devices == 0)
        return "the NVIDIA driver has no device";
    return "";
}

}  // namespace

Expected<Driver> load_driver(const std::string& library) {
    const std::shared_ptr<void> handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* opened) {
        if (opened) dlclose(opened);
    });
    if (!handle)
        return Unexpected{fmt::format("there is no NVIDIA driver here ({} cannot be loaded)", library)};
    Driver driver;
    driver.kept = handle;
    std::string absent;
    for_each_function(driver, [&]<class Signature>(std::function<Signature>& member, const char* symbol) {
        if (auto* address = reinterpret_cast<Signature*>(dlsym(handle.get(), symbol)))
            member = address;
        else if (absent.empty())
            absent = symbol;
    });
    if (!absent.empty())
        return Unexpected{fmt::format("the NVIDIA driver ({}) has no function {}; CUDA {}.{} is needed",
                                      library, absent, min_driver_version / 1000,
                                      min_driver_version % 1000 / 10)};
    int version = 0;
    if (const std::string reason = missing(driver, version); !reason.empty()) return Unexpected{reason};
    driver.name = fmt::format("NVIDIA driver of CUDA {}.{}", version / 1000, version % 1000 / 10);
    return driver;
}

std::string words_of(const Driver& driver, Result result) {
    const char *name = nullptr, *text = nullptr;
    if (driver.get_error_name(result, &name) != Result::success) name = nullptr;
    if (driver.get_error_string(result, &text) != Result::success) text = nullptr;
    return fmt::format("{} ({}): {}", name ? name : "an error without a name", static_cast<int>(result),
                       text ? text : "the driver says no more");
}

void require(const Driver& driver, Result result, const std::string& what) {
    if (result != Result::success) throw UserError(what + ": " + words_of(driver, result));
}

}  // namespace mantissa::cuda
