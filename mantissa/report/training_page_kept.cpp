// The page of a run as text that its checkpoint keeps, so that the page goes on where the run does.
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/report/training_page.h"

namespace mantissa::inline v0 {

namespace {

/// Null stands for a number that is not finite, which JSON has none for.
double number_of(const nlohmann::json& value) {
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

std::string TrainingPage::kept(double seconds) const {
    nlohmann::ordered_json json = {
        {"seconds", seconds}, {"steps", made_}, {"skipped", skipped_}, {"judged", run_.judged}};
    json["last"] = {
        last_.step, last_.loss,   last_.learning_rate, last_.gradient_norm, last_.units_per_second,
        last_.mfu,  last_.applied};
    for (const ThinnedCurve* curve :
         {&loss_, &learning_rate_, &gradient_norm_, &units_per_second_, &validation_, &top1_, &top5_})
        json["curves"].push_back(curve->numbers());
    json["validation"] = {last_validation_, best_validation_, best_validation_step_, last_top1_, best_top1_};
    json["samples"] = nlohmann::ordered_json::array();
    for (const Sample& sample : samples_) json["samples"].push_back({sample.step, sample.text});
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

double TrainingPage::go_on(const std::string& kept) {
    try {
        const nlohmann::json json = nlohmann::json::parse(kept);
        made_ = json.at("steps");
        skipped_ = json.at("skipped");
        const nlohmann::json& last = json.at("last");
        last_ = {.step = last.at(0),
                 .loss = number_of(last.at(1)),
                 .learning_rate = number_of(last.at(2)),
                 .gradient_norm = number_of(last.at(3)),
                 .units_per_second = number_of(last.at(4)),
                 .mfu = number_of(last.at(5)),
                 .applied = last.at(6)};
        std::size_t next = 0;
        for (ThinnedCurve* curve :
             {&loss_, &learning_rate_, &gradient_norm_, &units_per_second_, &validation_, &top1_, &top5_})
            *curve = ThinnedCurve::of(json.at("curves").at(next++).get<std::vector<double>>());
        const nlohmann::json& validation = json.at("validation");
        last_validation_ = number_of(validation.at(0));
        best_validation_ = number_of(validation.at(1));
        best_validation_step_ = validation.at(2);
        last_top1_ = number_of(validation.at(3));
        best_top1_ = number_of(validation.at(4));
        // The least loss and the most accuracy are of one set of data.
        if (json.value("judged", run_.judged) != run_.judged) best_validation_step_ = -1, best_top1_ = -1;
        for (const nlohmann::json& sample : json.at("samples"))
            samples_.push_back({sample.at(0), sample.at(1)});
        return json.at("seconds");
    } catch (const nlohmann::json::exception& error) {
        throw UserError(fmt::format("the curves of a run are damaged: {}", error.what()));
    }
}

}  // namespace mantissa
