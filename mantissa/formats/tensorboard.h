// Event files, which TensorBoard reads while they grow: records of TensorFlow's (TFRecord), each an Event.
// Field numbers are those of tensorboard/compat/proto/event.proto and summary.proto.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "mantissa/formats/protobuf.h"
#include "mantissa/numerics/value_histogram.h"

namespace mantissa::inline v0 {

/// Throws UserError unless `directory` is one that files can be written to, or can be made. Makes nothing.
void require_event_directory(const std::filesystem::path& directory);

class EventFile {
  public:
    /// Makes the directory if there is none, and in it events.out.tfevents.SECONDS.HOST.PID, a new file for
    /// each run. `step`: the first that will be written; what TensorBoard read from it on, of a run that was
    /// resumed from before, it forgets. Throws UserError if it cannot be written.
    EventFile(const std::filesystem::path& directory, std::int64_t step);

    const std::filesystem::path& path() const { return path_; }

    // Values of one step. A tag such as "loss/training" is a chart in the group "loss".
    void add_scalar(const std::string& tag, double value);
    /// Its numbers divided by `scale`.
    void add_histogram(const std::string& tag, const ValueHistogram& histogram, double scale = 1);
    void add_text(const std::string& tag, const std::string& text);

    /// Writes what was added, as of this step and now, for all to see. Throws UserError where that fails, as
    /// on a full disk.
    void write(std::int64_t step);

  private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    void write_event(ProtobufMessage event);

    std::filesystem::path path_;
    std::unique_ptr<std::FILE, Close> file_;
    ProtobufMessage summary_;
};

}  // namespace mantissa
