#include "mantissa/report/training_page.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/report/html.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/report.h"

namespace mantissa::inline v0 {

void ThinnedCurve::Part::add(const Part& after) {
    if (count == 0) {
        *this = after;
        return;
    }
    if (after.least.value < least.value) least = after.least;
    if (after.greatest.value > greatest.value) greatest = after.greatest;
    last = after.last;
    sum += after.sum;
    count += after.count;
}

void ThinnedCurve::add(double step, double value) {
    if (!std::isfinite(value)) return;
    const auto is_full = [&] { return parts_.empty() || parts_.back().count >= width_; };
    if (is_full() && parts_.size() >= max_parts_) halve();
    if (is_full()) parts_.emplace_back();  // if the number of parts was odd, the last has room now
    const Point point{step, value};
    parts_.back().add(
        {.first = point, .least = point, .greatest = point, .last = point, .sum = value, .count = 1});
}

std::vector<double> ThinnedCurve::numbers() const {
    std::vector<double> numbers{static_cast<double>(width_)};
    for (const Part& part : parts_) {
        for (const Point& point : {part.first, part.least, part.greatest, part.last})
            numbers.insert(numbers.end(), {point.step, point.value});
        numbers.insert(numbers.end(), {part.sum, static_cast<double>(part.count)});
    }
    return numbers;
}

ThinnedCurve ThinnedCurve::of(std::span<const double> numbers) {
    constexpr std::size_t of_a_part = 10;
    if (numbers.size() % of_a_part != 1 || !(numbers[0] >= 1))
        throw UserError(fmt::format("{} numbers are no curve", numbers.size()));
    ThinnedCurve curve;
    curve.width_ = static_cast<std::int64_t>(numbers[0]);
    for (std::size_t i = 1; i < numbers.size(); i += of_a_part) {
        const auto point = [&](std::size_t at) { return Point{numbers[i + at], numbers[i + at + 1]}; };
        curve.parts_.push_back({.first = point(0),
                                .least = point(2),
                                .greatest = point(4),
                                .last = point(6),
                                .sum = numbers[i + 8],
                                .count = static_cast<std::int64_t>(numbers[i + 9])});
    }
    return curve;
}

/// Joins the parts in pairs.
void ThinnedCurve::halve() {
    std::vector<Part> joined;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (i % 2 == 0)
            joined.push_back(parts_[i]);
        else
            joined.back().add(parts_[i]);
    }
    parts_ = std::move(joined);
    width_ *= 2;
}

std::vector<ThinnedCurve::Point> ThinnedCurve::points() const {
    std::vector<Point> points;
    const auto add = [&](const Point& point) {
        if (points.empty() || points.back().step < point.step) points.push_back(point);
    };
    if (parts_.empty()) return points;
    add(parts_.front().first);
    for (const Part& part : parts_) {
        const bool falls = part.greatest.step < part.least.step;
        add(falls ? part.greatest : part.least);
        add(falls ? part.least : part.greatest);
    }
    add(parts_.back().last);
    return points;
}

ThinnedCurve::Means ThinnedCurve::means(std::size_t most) const {
    const std::size_t together = ceil_div(parts_.size(), most);
    Means means;
    means.each = width_ * static_cast<std::int64_t>(together);
    for (std::size_t begin = 0; begin < parts_.size(); begin += together) {
        Part joined;
        for (std::size_t i = begin; i < std::min(begin + together, parts_.size()); ++i) joined.add(parts_[i]);
        means.points.push_back(
            {(joined.first.step + joined.last.step) / 2, joined.sum / static_cast<double>(joined.count)});
    }
    return means;
}

namespace {

/// Seconds between reloads of an open page, and most samples shown.
constexpr int reload_seconds = 10;
constexpr std::size_t max_samples = 20;

// Two drawings side by side on a broad page, one on a narrow one.
constexpr html::DrawingOptions half_page{.width = 480, .height = 240};
// A step's norm may be hundreds of times another's.
constexpr html::DrawingOptions of_norms{.width = 480, .height = 240, .logarithmic = true};

html::Curve curve_of(std::string name, const std::vector<ThinnedCurve::Point>& points, std::size_t color) {
    html::Curve curve{std::move(name), {}, color};
    for (const ThinnedCurve::Point& point : points) {
        curve.steps.push_back(point.step);
        curve.values.push_back(point.value);
    }
    return curve;
}

/// A curve; a long curve also with its means.
std::vector<html::Curve> with_means(const std::string& name, const ThinnedCurve& thinned, std::size_t color,
                                    std::size_t mean_color) {
    constexpr std::size_t max_means = 60;
    std::vector<html::Curve> curves{curve_of(name, thinned.points(), color)};
    if (const ThinnedCurve::Means means = thinned.means(max_means); means.each > 2)
        curves.push_back(
            curve_of(fmt::format("mean of each {} steps", means.each), means.points, mean_color));
    return curves;
}

std::string chart(const std::string& vertical, const std::vector<html::Curve>& curves,
                  const html::DrawingOptions& options = half_page) {
    return "<div>" + html::curves(curves, vertical, options) + "</div>\n";
}

std::string number(const char* what, const std::string& value) {
    return fmt::format("<span>{} <b>{}</b></span> ", what, value);
}

}  // namespace

void TrainingPage::add(const TrainingPoint& point) {
    last_ = point;
    ++made_;
    if (!point.applied) ++skipped_;
    const auto step = static_cast<double>(point.step);
    loss_.add(step, point.loss);
    learning_rate_.add(step, point.learning_rate);
    gradient_norm_.add(step, point.gradient_norm);
    units_per_second_.add(step, point.units_per_second);
}

void TrainingPage::add_validation(double loss) {
    validation_.add(static_cast<double>(last_.step), loss);
    last_validation_ = loss;
    if (std::isfinite(loss) && (best_validation_step_ < 0 || loss < best_validation_)) {
        best_validation_ = loss;
        best_validation_step_ = last_.step;
    }
}

void TrainingPage::add_accuracy(double top1, double top5) {
    const auto step = static_cast<double>(last_.step);
    top1_.add(step, top1);
    top5_.add(step, top5);
    last_top1_ = top1;
    best_top1_ = std::max(best_top1_, top1);
}

void TrainingPage::add_sample(std::string text) {
    samples_.push_front({last_.step, std::move(text)});
    if (samples_.size() > max_samples) samples_.pop_back();
}

std::string TrainingPage::status(TrainingState state, const std::string& time, double seconds) const {
    const std::int64_t done = last_.step + 1;
    std::string text = made_ == 0
                           ? fmt::format("No step of {} is done", grouped(static_cast<double>(run_.steps)))
                           : fmt::format("{} of {} steps are done", grouped(static_cast<double>(done)),
                                         grouped(static_cast<double>(run_.steps)));
    if (made_ > 0 && made_ < done)
        text += fmt::format(" ({} of them on this page)", grouped(static_cast<double>(made_)));
    text += ", " + duration_text(seconds);
    const auto left = static_cast<double>(run_.steps - done);
    if (state == TrainingState::ended)
        text += " in all; the run has ended";
    else if (made_ > 0 && left > 0)
        text +=
            fmt::format(" so far, about {} left", duration_text(seconds / static_cast<double>(made_) * left));
    text += fmt::format(". Written {}", time);
    if (state == TrainingState::runs)
        text += fmt::format("; the page loads itself again every {} seconds", reload_seconds);
    return "<p>" + html::escaped(text) + ".</p>\n";
}

std::string TrainingPage::numbers() const {
    if (made_ == 0) return "";
    std::string text =
        number("step", fmt::format("{}", last_.step)) + number("loss", fmt::format("{:.4f}", last_.loss));
    if (best_validation_step_ >= 0)
        text += number("validation loss", fmt::format("{:.4f}", last_validation_)) +
                number("least", fmt::format("{:.4f} at step {}", best_validation_, best_validation_step_));
    if (best_top1_ >= 0)
        text += number("validation accuracy", percent(last_top1_)) + number("most", percent(best_top1_));
    text += number("learning rate", fmt::format("{:.4g}", last_.learning_rate)) +
            number("gradient norm", fmt::format("{:.4f}", last_.gradient_norm)) +
            number((run_.unit + " a second").c_str(), grouped(last_.units_per_second)) +
            number("MFU", percent(last_.mfu));
    if (skipped_ > 0) text += number("steps skipped, as not finite", fmt::format("{}", skipped_));
    return "<p class='key'>" + text + "</p>\n";
}

std::string TrainingPage::charts() const {
    if (made_ == 0) return "";
    const std::vector<html::Curve> losses = this->losses(0);
    const std::string speed = run_.unit + " a second";
    std::string accuracy;
    if (best_top1_ >= 0)
        accuracy = chart("accuracy on validation images",
                         {curve_of("top 1", top1_.points(), 0), curve_of("top 5", top5_.points(), 1)});
    return "<h2>Loss</h2>\n<div class='broad'>\n" + html::curves(losses, "loss") +
           "</div>\n<div class='narrow'>\n" + html::curves(losses, "loss", half_page) +
           "</div>\n<div class='columns'>\n" + accuracy +
           chart("loss, second half", this->losses((loss_.first_step() + loss_.last_step()) / 2)) +
           chart("learning rate", {curve_of("learning rate", learning_rate_.points(), 2)}) +
           chart("gradient norm, before clipping", with_means("gradient norm", gradient_norm_, 4, 1),
                 of_norms) +
           chart(speed, with_means(speed, units_per_second_, 6, 1)) + "</div>\n";
}

std::vector<html::Curve> TrainingPage::losses(double from_step) const {
    std::vector<html::Curve> curves = with_means("loss", loss_, 0, 3);
    if (best_validation_step_ >= 0) curves.push_back(curve_of("validation loss", validation_.points(), 1));
    for (html::Curve& curve : curves) {
        const auto first = std::lower_bound(curve.steps.begin(), curve.steps.end(), from_step);
        curve.values.erase(curve.values.begin(), curve.values.begin() + (first - curve.steps.begin()));
        curve.steps.erase(curve.steps.begin(), first);
    }
    return curves;
}

std::string TrainingPage::samples() const {
    if (samples_.empty()) return "";
    std::string text = "<h2>Samples</h2>\n";
    for (const Sample& sample : samples_)
        text += fmt::format("<h3>after step {}</h3>\n<p><code class=\"sample\">{}</code></p>\n", sample.step,
                            html::escaped(printable(sample.text)));
    return text;
}

std::string TrainingPage::example() const {
    if (run_.example.empty()) return "";
    constexpr std::size_t longest = 4000;  // of the page, in bytes
    std::string text;
    for (std::size_t i = 0; i < run_.example.size() && text.size() < longest; ++i) {
        const auto& [part, learnt] = run_.example[i];
        const std::string shown = html::escaped(printable(part.substr(0, longest)));
        text += learnt ? "<mark>" + shown + "</mark>" : shown;
    }
    return fmt::format(
        "<h2>An example; what is marked is learnt</h2>\n<p><code class=\"sample\">{}</code></p>\n", text);
}

std::string TrainingPage::html(TrainingState state, const std::string& time, double seconds) const {
    std::vector<html::Row> facts;
    for (const auto& [what, text] : run_.facts) facts.push_back({what, text});
    const std::string body = status(state, time, seconds) + numbers() + charts() + samples() + example() +
                             "<h2>The run</h2>\n" + html::table({{"", ""}, facts}) +
                             html::footer(run_.command);
    return html::page("Training " + run_.model, body, state == TrainingState::runs ? reload_seconds : 0);
}

namespace {

/// Null means a number that is not finite, which JSON lacks.
double number_of(const nlohmann::json& value) {
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

std::string TrainingPage::kept(double seconds) const {
    const Datum::List last{
        last_.step, last_.loss,   last_.learning_rate, last_.gradient_norm, last_.units_per_second,
        last_.mfu,  last_.applied};
    Datum::List curves, samples;
    for (const ThinnedCurve* curve :
         {&loss_, &learning_rate_, &gradient_norm_, &units_per_second_, &validation_, &top1_, &top5_})
        curves.emplace_back(curve->numbers());
    for (const Sample& sample : samples_) samples.emplace_back(Datum::List{sample.step, sample.text});
    const Datum::List validation{last_validation_, best_validation_, best_validation_step_, last_top1_,
                                 best_top1_};
    return json_line(Fields{{"seconds", seconds},
                            {"steps", made_},
                            {"skipped", skipped_},
                            {"judged", run_.judged},
                            {"last", last},
                            {"curves", curves},
                            {"validation", validation},
                            {"samples", samples}}) +
           "\n";
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
        // The best loss and accuracy are for one set of data.
        if (json.value("judged", run_.judged) != run_.judged) best_validation_step_ = -1, best_top1_ = -1;
        for (const nlohmann::json& sample : json.at("samples"))
            samples_.push_back({sample.at(0), sample.at(1)});
        return json.at("seconds");
    } catch (const nlohmann::json::exception& error) {
        throw UserError(fmt::format("the curves of a run are damaged: {}", error.what()));
    }
}

}  // namespace mantissa
