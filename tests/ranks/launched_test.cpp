// The environment that launchers set, and the errors of a rank that cannot be connected.
#include "mantissa/ranks/launched.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "tests/support/error_of.h"

namespace mantissa {
namespace {

/// The variables of all launchers, as given, until its end.
class LauncherVariables {
  public:
    explicit LauncherVariables(const std::map<std::string, std::string>& given) {
        for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", "PMI_SIZE",
                                 "WORLD_SIZE", "TORCHELASTIC_RUN_ID"}) {
            const char* const value = std::getenv(name);
            before_[name] = value ? std::optional<std::string>(value) : std::nullopt;
            ::unsetenv(name);
        }
        for (const auto& [name, value] : given) ::setenv(name.c_str(), value.c_str(), 1);
    }
    ~LauncherVariables() {
        for (const auto& [name, value] : before_)
            value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
    LauncherVariables(const LauncherVariables&) = delete;
    LauncherVariables& operator=(const LauncherVariables&) = delete;

  private:
    std::map<std::string, std::optional<std::string>> before_;
};

std::string launched_with(const std::map<std::string, std::string>& variables) {
    const LauncherVariables set(variables);
    const std::optional<Launched> found = launched();
    return found ? found->by + ", " + found->plugin + ", " + std::to_string(found->ranks) : "alone";
}

TEST(Launched, LaunchersAreKnownByTheirVariables) {
    EXPECT_EQ(launched_with({}), "alone");
    EXPECT_EQ(launched_with({{"OMPI_COMM_WORLD_SIZE", "4"}}), "Open MPI's mpirun, mantissa_openmpi.so, 4");
    EXPECT_EQ(launched_with({{"PMI_SIZE", "3"}}), "MPICH's mpirun, mantissa_mpich.so, 3");
    EXPECT_EQ(launched_with({{"SLURM_STEP_NUM_TASKS", "2"}}), "Slurm, mantissa_mpich.so, 2");
    EXPECT_EQ(launched_with({{"SLURM_STEP_NUM_TASKS", "2"}, {"PMIX_RANK", "0"}}),
              "Slurm, mantissa_openmpi.so, 2");
    EXPECT_EQ(launched_with({{"WORLD_SIZE", "8"}, {"TORCHELASTIC_RUN_ID", "none"}}), "torchrun, , 8");
}

TEST(Launched, OneRankStandsAlone) {
    EXPECT_EQ(launched_with({{"OMPI_COMM_WORLD_SIZE", "1"}}), "alone");
    EXPECT_EQ(launched_with({{"PMI_SIZE", "1"}}), "alone");
    EXPECT_EQ(launched_with({{"PMI_SIZE", "many"}}), "alone");
    EXPECT_EQ(launched_with({{"WORLD_SIZE", "8"}}), "alone");
}

std::string refusal_to_connect(const Launched& with) {
    return testing::error_of([&] { connect(with, 1); });
}

TEST(Launched, RanksOfTorchrunAreToldOfMpirun) {
    EXPECT_EQ(refusal_to_connect({"torchrun", "", 8}),
              "this is one of 8 ranks started by torchrun, but ranks are connected by MPI: start them with "
              "mpirun -n N");
}

TEST(Launched, APluginThatIsNotThereIsNamedWithWhatToInstall) {
    EXPECT_EQ(refusal_to_connect({"a launcher", "mantissa_no_such_mpi.so", 2}),
              "this is one of 2 ranks started by a launcher, but mantissa was built without "
              "mantissa_no_such_mpi.so: install libopenmpi-dev, then configure and build again");
}

}  // namespace
}  // namespace mantissa
