// Weights of one training beside those of another: which end furthest apart, by name and line.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

class Trainer;

struct WeightApart {
    std::string name;  ///< of the parameter
    std::string line;  ///< that first takes it, as in "model.py:52"; empty: unknown
    double share = 0;  ///< the norm of the difference, over how far the first training moved it
};

/// Holds the weights of one training in host memory.
class WeightsOfFirst {
  public:
    /// Before its first step.
    void begin(const Trainer& trainer);
    /// After its last.
    void end(const Trainer& trainer);
    /// Those that end furthest from it in another training, at most so many, the furthest first. What the
    /// first did not move is left out.
    std::vector<WeightApart> furthest(const Trainer& other, std::size_t most) const;

  private:
    struct Weight {
        std::vector<float> numbers;
        double moved = 0;  ///< norm of what the training added
    };
    std::map<std::string, Weight> weights_;
};

}  // namespace mantissa
