// Requested kernels that may be made later. Equal ones are one. A kernel that nobody holds any more when the
// requests are made is never made.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace mantissa::inline v0::codegen {

template <class Kernel>
class KernelRequests {
  public:
    /// The kernel of that text. Until it is taken to be made, it is forgotten when nobody holds it.
    template <class Make>
    std::shared_ptr<Kernel> find(const std::string& text, Make&& make) {
        std::weak_ptr<Kernel>& known = by_text_[text];
        if (std::shared_ptr<Kernel> held = known.lock()) return held;
        auto asked = std::make_shared<Kernel>(make());
        known = asked;
        open_.push_back(known);
        ++count_;
        return asked;
    }
    /// How many kernels were asked for, made or not.
    std::size_t count() const { return count_; }

    /// Kernels that are held and not made yet, in the order of the requests.
    std::vector<std::shared_ptr<Kernel>> pending() const {
        std::vector<std::shared_ptr<Kernel>> held;
        for (const std::weak_ptr<Kernel>& each : open_)
            if (std::shared_ptr<Kernel> kernel = each.lock()) held.push_back(std::move(kernel));
        return held;
    }
    /// Takes the pending kernels, to be made by the caller: from now on they are kept.
    std::vector<std::shared_ptr<Kernel>> take_pending() {
        std::vector<std::shared_ptr<Kernel>> held = pending();
        made_.insert(made_.end(), held.begin(), held.end());
        open_.clear();
        std::erase_if(by_text_, [](const auto& entry) { return entry.second.expired(); });
        return held;
    }
    const std::vector<std::shared_ptr<Kernel>>& made() const { return made_; }

  private:
    std::map<std::string, std::weak_ptr<Kernel>> by_text_;
    std::vector<std::weak_ptr<Kernel>> open_;
    std::vector<std::shared_ptr<Kernel>> made_;
    std::size_t count_ = 0;
};

}  // namespace mantissa::codegen
