// Memory as the system tells it: folders made for the test stand for those of the system.
#include "mantissa/base/system_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

/// Folders as the system shows them.
class FakeSystem {
  public:
    FakeSystem() { write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n"); }
    void write(const std::string& name, const std::string& text) {
        const std::filesystem::path path = directory_ / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }
    std::int64_t available() const {
        return available_memory({.proc = directory_ / "proc", .control_groups = directory_ / "cgroup"});
    }

  private:
    TemporaryDirectory directory_;
};

TEST(AvailableMemory, IsWhatTheMachineHasWithoutLimits) { EXPECT_EQ(FakeSystem().available(), 8000 * 1024); }

TEST(AvailableMemory, IsCutByEveryGroupAboveTheProcess) {
    FakeSystem system;
    system.write("proc/self/cgroup", "0::/user.slice/job/step\n");
    system.write("cgroup/user.slice/memory.max", "max\n");
    system.write("cgroup/user.slice/job/memory.max", "5000000\n");
    system.write("cgroup/user.slice/job/memory.current", "3000000\n");
    system.write("cgroup/user.slice/job/step/memory.max", "4000000\n");
    system.write("cgroup/user.slice/job/step/memory.current", "100000\n");
    EXPECT_EQ(system.available(), 2000000);
}

TEST(AvailableMemory, CountsWhatOnlyCachesFilesAsLeft) {
    FakeSystem system;
    system.write("proc/self/cgroup", "0::/\n");
    system.write("cgroup/memory.max", "5000000\n");
    system.write("cgroup/memory.current", "4900000\n");
    system.write("cgroup/memory.stat", "anon 900000\ninactive_file 3000000\nactive_file 1000000\n");
    EXPECT_EQ(system.available(), 4100000);
}

TEST(AvailableMemory, KnowsGroupsOfTheFirstVersion) {
    FakeSystem system;
    system.write("proc/self/cgroup", "7:cpu,cpuacct:/a\n4:memory:/slurm/job_7\n1:name=systemd:/b\n");
    system.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    system.write("cgroup/memory/slurm/job_7/memory.limit_in_bytes", "3000000\n");
    system.write("cgroup/memory/slurm/job_7/memory.usage_in_bytes", "1000000\n");
    system.write("cgroup/memory/slurm/job_7/memory.stat", "total_inactive_file 200000\n");
    EXPECT_EQ(system.available(), 2200000);
}

/// Ends the process with 0 if a limit of the address space cuts what is available. In a process of its own,
/// since what is lowered for good would be lowered for every test after it.
void lower_the_limit_and_exit() {
    const rlimit tight{.rlim_cur = rlim_t{900} << 20, .rlim_max = rlim_t{1} << 40};
    const bool large = available_memory() > (std::int64_t{900} << 20);
    ::setrlimit(RLIMIT_AS, &tight);
    std::_Exit(large && available_memory() < (std::int64_t{900} << 20) ? 0 : 1);
}

TEST(AvailableMemoryDeathTest, IsCutByTheLimitOfTheAddressSpace) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "under a sanitizer: it takes terabytes of address space";
#endif
    if (available_memory() < (std::int64_t{1} << 30)) GTEST_SKIP() << "little memory: less than 1 GB is free";
    EXPECT_EXIT(lower_the_limit_and_exit(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mantissa
