#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// TensorBoard's event files: protobuf messages (tensorflow.Event) in TFRecord frames. Encoded by hand, because only
/// five fields are needed.
namespace distilld::sinks {

using TensorboardTime = std::chrono::system_clock::time_point;

struct TensorboardScalar {
    std::string tag;
    double value = 0;  ///< written as a float
};

/// The first event of each file.
[[nodiscard]] std::string tensorboard_version(TensorboardTime at);
/// SessionLog START: TensorBoard discards this and later steps of earlier files.
[[nodiscard]] std::string tensorboard_start(TensorboardTime at, std::uint64_t step);
[[nodiscard]] std::string tensorboard_scalars(TensorboardTime at, std::uint64_t step,
                                              const std::vector<TensorboardScalar>& scalars);
/// Markdown for the "Text" tab.
[[nodiscard]] std::string tensorboard_text(TensorboardTime at, std::uint64_t step, std::string_view tag,
                                           std::string_view text);

/// The frame of one record: length, masked CRC-32C of the length, record, masked CRC-32C of the record.
[[nodiscard]] std::string tfrecord(std::string_view record);

}  // namespace distilld::sinks
