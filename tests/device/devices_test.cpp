// The machines as the public face names them.
#include "mantissa/device/devices.h"

#include <gtest/gtest.h>

#include "mantissa/device/device.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

TEST(Devices, TheCpuIsOneForEachNumberOfThreads) {
    EXPECT_EQ(&cpu(), &cpu());
    EXPECT_EQ(&cpu(3), &cpu(3));
    EXPECT_EQ(cpu(3).target().threads, 3);
    EXPECT_NE(testing::error_of([] { cpu(-1); }), "no error");
}

TEST(Devices, WhereThereIsNoGpuItSaysWhatIsMissingAndWhatToDo) {
    EXPECT_EQ(testing::error_of([] { gpu(1); }),
              "a process has one GPU, of index 0; set CUDA_VISIBLE_DEVICES=1 to have another than the first");
    const std::string missing = testing::error_of([] { EXPECT_EQ(gpu().target().device, "cuda"); });
    if (missing == "no error") return;  // there is one
    EXPECT_TRUE(missing.starts_with("there is no GPU to train on: ")) << missing;
    EXPECT_TRUE(missing.ends_with("; train on the CPU instead")) << missing;
}

}  // namespace
}  // namespace mantissa
