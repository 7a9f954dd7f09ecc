#include "mantissa/device/cuda/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::cuda {

namespace {

/// A library as messages name it.
struct Wanted {
    const char* name;
    std::string none_here;  ///< why there is none, where it cannot be loaded
    std::string needed;     ///< "that of CUDA 12 or 13 is needed"
};

/// A table of the library's functions, which `visit_all` visits with their names.
template <class Table, class VisitAll>
Expected<Table> load(const std::string& library, const Wanted& wanted, const VisitAll& visit_all) {
    const std::shared_ptr<void> handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* opened) {
        if (opened) dlclose(opened);
    });
    if (!handle) return Unexpected{wanted.none_here};
    Table table;
    table.kept = handle;
    std::string absent;
    visit_all(table, [&]<class Signature>(std::function<Signature>& member, const char* symbol) {
        if (auto* address = reinterpret_cast<Signature*>(dlsym(handle.get(), symbol)))
            member = address;
        else if (absent.empty())
            absent = symbol;
    });
    if (!absent.empty())
        return Unexpected{
            fmt::format("{} ({}) has no function {}; {}", wanted.name, library, absent, wanted.needed)};
    return table;
}

/// As in 120803.
std::string version_text(std::size_t version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

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
    Expected<Driver> driver = load<Driver>(
        library,
        {"the NVIDIA driver", fmt::format("there is no NVIDIA driver here ({} cannot be loaded)", library),
         fmt::format("CUDA {}.{} is needed", min_driver_version / 1000, min_driver_version % 1000 / 10)},
        [](auto& table, const auto& visit) { for_each_function(table, visit); });
    if (!driver) return driver;
    int version = 0;
    if (const std::string reason = missing(*driver, version); !reason.empty()) return Unexpected{reason};
    driver->name = fmt::format("NVIDIA driver of CUDA {}.{}", version / 1000, version % 1000 / 10);
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

Expected<CublasLt> load_cublaslt(const std::string& library) {
    Expected<CublasLt> table = load<CublasLt>(
        library,
        {"cuBLASLt",
         fmt::format("there is no cuBLASLt here ({} cannot be loaded); install CUDA's libcublas 12 or 13",
                     library),
         "that of CUDA 12 or 13 is needed"},
        [](auto& all, const auto& visit) { for_each_blas_function(all, visit); });
    if (!table) return table;
    const std::size_t version = table->get_version();
    if (version < 120000)
        return Unexpected{
            fmt::format("cuBLASLt ({}) is of version {}; 12 or 13 is needed", library, version / 10000)};
    table->name = "cuBLASLt " + version_text(version);
    return table;
}

void require(const CublasLt& table, BlasStatus status, const std::string& what) {
    if (status == BlasStatus::success) return;
    const char *name = table.get_status_name(status), *text = table.get_status_string(status);
    throw UserError(fmt::format("{}: {} ({}): {}", what, name ? name : "a status without a name",
                                static_cast<int>(status), text ? text : "the library says no more"));
}

Expected<Cudnn> load_cudnn(const std::string& library) {
    Expected<Cudnn> table = load<Cudnn>(
        library,
        {"cuDNN", fmt::format("there is no cuDNN here ({} cannot be loaded); install cuDNN 9", library),
         "cuDNN 9 is needed"},
        [](auto& all, const auto& visit) { for_each_dnn_function(all, visit); });
    if (!table) return table;
    const std::size_t version = table->get_version();
    if (version < 90000)
        return Unexpected{fmt::format("cuDNN ({}) is of version {}; 9 is needed", library, version / 1000)};
    table->name = "cuDNN " + version_text(version);
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

Expected<Nccl> load_nccl(const std::string& library) {
    const std::string needed = version_text(min_nccl_version) + " or newer is needed";
    Expected<Nccl> table =
        load<Nccl>(library,
                   {"NCCL",
                    fmt::format("there is no NCCL here ({} cannot be loaded), by which ranks on GPUs "
                                "exchange; install libnccl2, or take `device` cpu",
                                library),
                    needed},
                   [](auto& all, const auto& visit) { for_each_nccl_function(all, visit); });
    if (!table) return table;
    int version = 0;
    const bool has_version = table->get_version(&version) == NcclResult::success;
    const std::string text = version_text(static_cast<std::size_t>(version));
    if (!has_version || version < min_nccl_version)
        return Unexpected{fmt::format("NCCL ({}) is of version {}; {}", library, text, needed)};
    table->name = "NCCL " + text;
    return table;
}

void require(const Nccl& table, NcclResult result, NcclComm comm, const std::string& what) {
    if (result == NcclResult::success) return;
    const char *text = table.get_error_string(result), *last = table.get_last_error(comm);
    throw UserError(fmt::format("{}: {}: {}{}", what, table.name, text ? text : "an error without words",
                                last && *last ? std::string("; ") + last : ""));
}

Expected<Libraries> find_libraries(Alone alone) {
    Expected<Driver> driver = load_driver();
    if (!driver) return Unexpected{driver.reason()};
    Expected<CublasLt> blas = load_cublaslt("libcublasLt.so.13");
    if (!blas) blas = load_cublaslt("libcublasLt.so.12");
    if (!blas) return Unexpected{blas.reason()};
    Libraries found{std::move(*driver), std::move(*blas), load_cudnn("libcudnn.so.9")};
    if (alone == Alone::yes) return found;
    Expected<Nccl> nccl = load_nccl();
    if (!nccl) return Unexpected{nccl.reason()};
    found.nccl = std::move(*nccl);
    return found;
}

}  // namespace mantissa::cuda
