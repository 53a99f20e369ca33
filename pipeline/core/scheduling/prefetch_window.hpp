#pragma once

#include <algorithm>
#include <cstdint>

namespace distilld {

/// Memory of the answer to one micro-batch.
struct AnswerBytes {
    std::uint64_t held = 0;  ///< memory of the decoded targets
    std::uint64_t wire = 0;  ///< bytes on the wire; 0 = unknown
};

struct WindowOptions {
    std::uint32_t size = 0;          ///< W: micro-batches issued and not yet released; 0 = automatic
    std::uint64_t max_bytes = 0;     ///< for the whole window; 0 = no limit. One micro-batch is always allowed
    AnswerBytes expected;            ///< until the first answer
    std::uint32_t decoders = 0;      ///< answers that are decoded at a time
    std::uint64_t decode_bytes = 0;  ///< extra bytes per decoded answer: see PrefetchWindow
};

/// How far the requests may run ahead of the student (W), in micro-batches and in bytes.
///
/// W starts at 4C, and grows if slots idle while the student is about to starve, because all of W waits behind the
/// oldest answer. Its limits are the bytes and 64C, which is more than any measured jitter needs. It does not shrink:
/// late answers recur.
///
/// A request in flight counts as the largest answer so far, on the wire or in memory, so that bytes are counted before
/// they are requested. An answer counts with its real size. During decoding, it takes both, plus the decoder's memory:
/// that is added for as many answers as are decoded at a time.
class PrefetchWindow {
  public:
    explicit PrefetchWindow(WindowOptions options) : options_(options), most_(options.expected) {}

    [[nodiscard]] std::uint32_t size(std::uint32_t limit) const noexcept {
        return options_.size > 0 ? options_.size : std::clamp(grown_, 4 * limit, 64 * limit);
    }
    /// `idle` slots are unused, because the whole window waits for its oldest answer. False if it may not grow.
    bool grow(std::uint32_t idle, std::uint32_t limit) noexcept {
        const std::uint32_t before = size(limit);
        grown_ = before + (options_.size > 0 ? 0 : idle);
        return size(limit) > before;
    }

    /// Whether one more request fits in addition to `under_way` others.
    [[nodiscard]] bool has_bytes_for_another(std::uint64_t under_way) const noexcept {
        const std::uint64_t asked = under_way + 1;
        const std::uint64_t decoding = std::min<std::uint64_t>(asked, options_.decoders) * options_.decode_bytes;
        return options_.max_bytes == 0 ||
               held_bytes_ + asked * std::max(most_.held, most_.wire) + decoding <= options_.max_bytes;
    }
    void on_answer(AnswerBytes bytes) noexcept {
        held_bytes_ += bytes.held;
        most_.held = seen_ ? std::max(most_.held, bytes.held) : bytes.held;
        most_.wire = seen_ ? std::max(most_.wire, bytes.wire) : bytes.wire;
        seen_ = true;
    }
    void on_released(std::uint64_t bytes) noexcept { held_bytes_ -= bytes; }
    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_bytes_; }

  private:
    WindowOptions options_;
    AnswerBytes most_;
    bool seen_ = false;
    std::uint32_t grown_ = 0;
    std::uint64_t held_bytes_ = 0;
};

}  // namespace distilld
