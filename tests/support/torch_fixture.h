// A file of tensors computed by PyTorch, from tests/fixtures/.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "mantissa/formats/safetensors.h"
#include "tests/support/largest_difference.h"

namespace mantissa {

class TorchFixture {
  public:
    explicit TorchFixture(const std::string& name)
        : file_(MANTISSA_SOURCE_DIR "/tests/fixtures/" + name + ".safetensors") {}

    template <class T>
    std::vector<T> values(const std::string& name) const {
        for (const TensorView& tensor : file_.views()) {
            if (tensor.name != name) continue;
            std::vector<T> out(byte_count(tensor.dtype, tensor.shape) / sizeof(T));
            std::memcpy(out.data(), tensor.data, out.size() * sizeof(T));
            return out;
        }
        ADD_FAILURE() << "the fixture has no " << name;
        return {};
    }
    std::vector<double> f32(const std::string& name) const {
        const auto values = this->values<float>(name);
        return {values.begin(), values.end()};
    }

  private:
    SafetensorsFile file_;
};

/// The largest difference over the largest expected magnitude, at least `floor`; infinite if a number is NaN.
inline double relative_error(const std::vector<double>& got, const std::vector<double>& expected,
                             double floor = 0) {
    double largest = floor;
    for (double x : expected) largest = std::max(largest, std::abs(x));
    return testing::largest_difference(got, expected) / largest;
}

}  // namespace mantissa
