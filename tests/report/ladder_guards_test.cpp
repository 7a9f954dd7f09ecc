// The guards of the ladder against a rung that is not what it says: planted rungs on other kernels, with
// other losses, with none.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/report/ladder.h"
#include "tests/support/device_around.h"
#include "tests/support/gpt2.h"

namespace mantissa {
namespace {

/// The CPU, with every kernel of `matmul` changed.
class OtherMatmul final : public testing::DeviceAround {
  public:
    explicit OtherMatmul(const std::function<void(Kernel&)>& change)
        : DeviceAround(make_cpu_device({.threads = 1})) {
        for (Kernel kernel : DeviceAround::kernels("matmul")) {
            change(kernel);
            matmul_.push_back(std::move(kernel));
        }
    }
    std::span<const Kernel> kernels(std::string_view op) const override {
        return op == "matmul" ? matmul_ : DeviceAround::kernels(op);
    }

  private:
    std::vector<Kernel> matmul_;
};

/// Multiplies products of BF16 by a factor.
std::function<void(Kernel&)> multiplied_by(double factor) {
    return [factor](Kernel& kernel) {
        kernel.prepare = [prepare = kernel.prepare, factor](const Problem& problem) {
            Expected<PreparedKernel> product = prepare(problem);
            if (!product || problem.inputs[0].dtype != DType::bf16) return product;
            product->launch = [launch = product->launch, factor,
                               type = problem.outputs[0]](const Operands& operands) {
                launch(operands);
                for (std::int64_t i = 0; i < type.shape.elements(); ++i)
                    store_from_f64(operands.outputs[0], type.dtype, i,
                                   factor * load_as_f64(operands.outputs[0], type.dtype, i));
            };
            return product;
        };
    };
}

/// The ladder's objection to it, of fp32 and bf16.
std::string refusal_on(Device& device) {
    std::vector<std::int32_t> text;
    for (std::int32_t i = 0; i < 500; ++i) text.push_back((i * i / 7 + i) % 61);
    const nn::Gpt2Config model{
        .name = "small", .layers = 1, .heads = 2, .channels = 32, .vocabulary = 61, .context = 16};
    const LadderOptions options{.rungs = {"fp32", "bf16"},
                                .model = nn::gpt2_model(model, 16),
                                .trainer = {.batch = 2},
                                .steps = 2,
                                .repeats = 1};
    const TokenStream stream(text);
    try {
        run_ladder(device, TextWindows(stream, stream.all(), 16, {.batch = 2}), options);
    } catch (const UserError& error) {
        return error.what();
    }
    return "";
}

TEST(LadderGuards, TheMachineAsItIsPasses) {
    OtherMatmul device([](Kernel&) {});
    EXPECT_EQ(refusal_on(device), "");
    OtherMatmul same(multiplied_by(1));
    EXPECT_EQ(refusal_on(same), "");
}

TEST(LadderGuards, ARungOnOtherKernelsThanItsOwnIsRefused) {
    OtherMatmul device([](Kernel& kernel) {
        if (kernel.arithmetic.multiply == "bf16") kernel.arithmetic.multiply = kernel.name = "s8";
    });
    EXPECT_EQ(refusal_on(device), "rung bf16 multiplies bf16 and adds in f32, but 's8' would run");
    OtherMatmul wide([](Kernel& kernel) {
        if (kernel.arithmetic.multiply == "bf16") kernel.arithmetic.sums = DType::f64, kernel.name = "wide";
    });
    EXPECT_EQ(refusal_on(wide), "rung bf16 multiplies bf16 and adds in f32, but 'wide' would run");
}

TEST(LadderGuards, ARungWhoseLossLeavesThatOfTheFirstIsRefused) {
    OtherMatmul device(multiplied_by(4));
    const std::string refusal = refusal_on(device);
    EXPECT_TRUE(refusal.starts_with("the loss of bf16 at step 0 is ")) << refusal;
    EXPECT_TRUE(refusal.ends_with(": further apart than 0.02")) << refusal;
}

TEST(LadderGuards, ARungWithoutALossIsRefused) {
    OtherMatmul device(multiplied_by(std::numeric_limits<double>::quiet_NaN()));
    EXPECT_EQ(refusal_on(device), "bf16: the loss of step 0 is not finite");
}

}  // namespace
}  // namespace mantissa
