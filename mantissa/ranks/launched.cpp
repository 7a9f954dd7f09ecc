#include "mantissa/ranks/launched.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>

#include "mantissa/base/printable.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/ranks/mpi_plugin.h"

namespace mantissa::inline v0 {

namespace {

constexpr const char* open_mpi = "mantissa_openmpi.so";
constexpr const char* mpich = "mantissa_mpich.so";

int number(const char* text) {
    int value = 0;
    if (text) std::from_chars(text, text + std::strlen(text), value);
    return value;
}

/// The plug-in beside the program, as in a build, or in an installation; else its name alone, for the search
/// path of libraries, where find_package(mantissa) names the installed folder.
std::filesystem::path place_of(const std::string& plugin) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    for (const fs::path& place : {program / plugin, program / ".." / "lib" / "mantissa" / plugin})
        if (fs::exists(place, ignored)) return place;
    return plugin;
}

class MpiTransport final : public Transport {
  public:
    MpiTransport(const MantissaMpi& mpi, double seconds)
        : Transport(seconds), mpi_(mpi), uncaught_(std::uncaught_exceptions()) {}
    /// Where an error ends this rank, the others must not wait for it to take part in the end.
    ~MpiTransport() override {
        if (std::uncaught_exceptions() > uncaught_)
            mpi_.abort();
        else
            mpi_.end();
    }

    int rank() const override { return mpi_.rank; }
    int ranks() const override { return mpi_.ranks; }

    void start(std::span<const std::span<const std::byte>> send,
               std::span<const std::span<std::byte>> receive) override {
        const auto count = static_cast<std::size_t>(mpi_.ranks);
        check(send.size() == count && receive.size() == count, "a span a rank");
        std::vector<const void*> from;
        std::vector<void*> to;
        std::vector<std::size_t> from_bytes, to_bytes;
        for (std::size_t rank = 0; rank < count; ++rank) {
            from.push_back(send[rank].data());
            from_bytes.push_back(send[rank].size());
            to.push_back(receive[rank].data());
            to_bytes.push_back(receive[rank].size());
        }
        or_lost([&](char* why, std::size_t size) {
            return mpi_.start(from.data(), from_bytes.data(), to.data(), to_bytes.data(), why, size);
        });
    }
    void advance() override {
        or_lost([&](char* why, std::size_t size) { return mpi_.advance(why, size); });
    }
    int finish_oldest() override {
        int late = -1;
        or_lost([&](char* why, std::size_t size) { return mpi_.finish_oldest(&late, why, size); });
        return late;
    }

    void abort() noexcept override { mpi_.abort(); }

  private:
    template <class Call>
    static void or_lost(const Call& call) {
        std::array<char, 1024> why{};
        if (const int lost = call(why.data(), why.size()); lost >= 0) throw LostRank(lost, why.data());
    }

    const MantissaMpi& mpi_;
    int uncaught_;
};

}  // namespace

std::optional<Launched> launched() {
    if (const int ranks = number(std::getenv("OMPI_COMM_WORLD_SIZE")); ranks > 1)
        return Launched{"Open MPI's mpirun", open_mpi, ranks};
    // The count of a step of Slurm's, not of a script that it runs, which is alone.
    if (const int ranks = number(std::getenv("SLURM_STEP_NUM_TASKS")); ranks > 1)
        return Launched{"Slurm", std::getenv("PMIX_RANK") ? open_mpi : mpich, ranks};
    if (const int ranks = number(std::getenv("PMI_SIZE")); ranks > 1)
        return Launched{"MPICH's mpirun", mpich, ranks};
    if (const int ranks = number(std::getenv("WORLD_SIZE")); ranks > 1 && std::getenv("TORCHELASTIC_RUN_ID"))
        return Launched{"torchrun", "", ranks};
    return std::nullopt;
}

std::unique_ptr<Transport> connect(const Launched& launched, double seconds) {
    const auto fail = [&](const std::string& why) {
        throw UserError(fmt::format("this is one of {} started by {}, but {}",
                                    count_text(launched.ranks, "rank"), launched.by, why));
    };
    if (launched.plugin.empty()) fail("ranks are connected by MPI: start them with mpirun -n N");
    const bool is_mpich = launched.plugin == mpich;
    const std::filesystem::path place = place_of(launched.plugin);
    // Open MPI loads parts of itself, which look for its symbols among everybody's. It is never unloaded.
    void* const library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    const std::string why_not = library ? "" : ::dlerror();
    if (why_not.starts_with(launched.plugin))  // the plug-in is missing, and not a library that it needs
        fail(fmt::format("mantissa was built without {}: install {}, then configure and build again",
                         launched.plugin, is_mpich ? "libmpich-dev" : "libopenmpi-dev"));
    if (!library)
        fail(fmt::format("{} cannot be loaded: {}; install {}", place.string(), why_not,
                         is_mpich ? "mpich" : "openmpi-bin"));
#define MANTISSA_TEXT_OF(name) #name
#define MANTISSA_NAME(name) MANTISSA_TEXT_OF(name)
    const auto open = reinterpret_cast<MantissaOpenMpi>(::dlsym(library, MANTISSA_NAME(MANTISSA_OPEN_MPI)));
#undef MANTISSA_NAME
#undef MANTISSA_TEXT_OF
    if (!open) fail(fmt::format("{} is of another version of mantissa: build it again", place.string()));
    std::array<char, 1024> why{};
    const MantissaMpi* const mpi = open(why.data(), why.size());
    if (!mpi) fail(fmt::format("{}: {}", place.string(), why.data()));
    if (mpi->ranks != launched.ranks)
        fail(
            fmt::format("MPI knows of {}: it is another MPI's mpirun; mpirun.openmpi and mpirun.mpich are "
                        "Debian's names for the two",
                        mpi->ranks));
    return std::make_unique<MpiTransport>(*mpi, seconds);
}

namespace {

void keep_to(const std::vector<int>& cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int core : cores) CPU_SET(core, &set);
    static_cast<void>(::sched_setaffinity(0, sizeof set, &set));  // else the system shares as it can
}

}  // namespace

std::vector<int> usable_cores() {
    std::vector<int> cores;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &set)) cores.push_back(core);
    return cores;
}

int share_cores(Ranks& ranks, int asked) {
    const std::vector<int> cores = usable_cores();
    std::string mine = ranks.host_of(ranks.rank());
    for (int core : cores) mine += fmt::format(" {}", core);
    const std::vector<std::string> all = ranks.gather(mine);
    // Where the launcher gave each rank cores of its own, no other has the same.
    const auto sharing = static_cast<int>(std::ranges::count(all, mine));
    const auto before = static_cast<int>(std::count(all.begin(), all.begin() + ranks.rank(), mine));
    if (asked != 0 || sharing == 1 || std::getenv("OMP_NUM_THREADS")) return asked;
    const int threads = std::max(1, default_thread_count() / sharing);
    std::vector<int> own;
    for (int i = 0; i < threads && !cores.empty(); ++i)
        own.push_back(cores[static_cast<std::size_t>(before * threads + i) % cores.size()]);
    keep_to(own);
    return threads;
}

}  // namespace mantissa
