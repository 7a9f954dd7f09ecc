// The model of a report, the size of its step, and the machine.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/graph/target.h"
#include "mantissa/nn/model.h"
#include "mantissa/report/report.h"

namespace mantissa::inline v0 {

struct ReportedModel {
    std::string name;
    std::int64_t parameters = 0;
    std::int64_t batch = 0;              ///< examples of a step
    std::string unit = "examples";       ///< unit of throughput: "tokens", "images"
    std::int64_t units_per_example = 1;  ///< tokens of a sequence
    std::string examples = {};           ///< of a step, in words: "4 x 1024 tokens", "16 images"
};

inline ReportedModel reported(const nn::Model& model, const nn::ModelFacts& facts, std::int64_t batch) {
    return {.name = model.name,
            .parameters = facts.parameters,
            .batch = batch,
            .unit = model.unit,
            .units_per_example = model.units_per_example,
            .examples = nn::batch_text(model, batch)};
}

inline Fields machine_of(const Target& target) {
    return {{"cpu", target.name},
            {"isa", target.isa},
            {"bf16_unit", target.bf16_unit},
            {"threads", target.threads}};
}

}  // namespace mantissa
