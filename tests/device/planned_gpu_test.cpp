// The answers of a GPU that is not there, and that nothing runs on it.
#include "mantissa/device/cuda/planned/planned_gpu.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

TEST(CudaPlannedGpu, AnswersAsTheArchitectureHasItAndRunsNothing) {
    const cuda::Driver driver = cuda::planned_libraries("sm_90").driver;
    int multiprocessors = 0;
    EXPECT_EQ(driver.device_get_attribute(&multiprocessors, cuda::DeviceAttribute::multiprocessor_count, 0),
              cuda::Result::success);
    EXPECT_EQ(multiprocessors, 132);
    std::size_t free = 0, total = 0;
    EXPECT_EQ(driver.mem_get_info(&free, &total), cuda::Result::success);
    EXPECT_EQ(total, std::size_t{80} << 30);
    cuda::Module module = nullptr;
    EXPECT_EQ(driver.module_load_data_ex(&module, "", 0, nullptr, nullptr), cuda::Result::no_device);
    EXPECT_EQ(driver.launch_kernel(nullptr, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
              cuda::Result::no_device);
}

TEST(CudaPlannedGpu, AnArchitectureThatIsNotKnownIsRefusedWithThoseThatAre) {
    try {
        cuda::planned_libraries("sm_12");
        FAIL() << "it was taken";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(),
                     "no GPU 'sm_12' is known; known are sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100");
    }
}

}  // namespace
}  // namespace mantissa
