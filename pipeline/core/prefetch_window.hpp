#pragma once

#include <algorithm>
#include <cstdint>

namespace distilld {

/// What the answer to one micro-batch takes.
struct AnswerBytes {
    std::uint64_t held = 0;  ///< memory of the decoded targets
    std::uint64_t wire = 0;  ///< bodies as they came; 0 = not known
};

struct WindowOptions {
    std::uint32_t size = 0;          ///< W: micro-batches issued and not yet released; 0 = as many as it takes
    std::uint64_t max_bytes = 0;     ///< of all of W; 0 = no bound. One micro-batch is always let through
    AnswerBytes expected;            ///< until the first has been seen
    std::uint32_t decoders = 0;      ///< answers that are decoded at a time
    std::uint64_t decode_bytes = 0;  ///< of each of them, beside what an answer counts for: see PrefetchWindow
};

/// How far the requests may run ahead of the student (W), in micro-batches and in bytes.
///
/// By itself W is 4C, and grows when slots idle though the student is about to run dry: all of W waits behind the
/// oldest answer then. What bounds it are the bytes (and 64C, which is beyond what any jitter was seen to ask for). It
/// does not shrink: an answer that was late once is late again.
///
/// A request under way counts for the most that an answer has taken, on the wire or in memory, whichever is more, so
/// that its bytes are counted before they are asked for; an answer counts for what it holds. While it is decoded it
/// takes both, and what the decoder needs besides: as many as are decoded at a time count for that much more.
class PrefetchWindow {
  public:
    explicit PrefetchWindow(WindowOptions options) : options_(options), most_(options.expected) {}

    [[nodiscard]] std::uint32_t size(std::uint32_t limit) const noexcept {
        return options_.size > 0 ? options_.size : std::clamp(grown_, 4 * limit, 64 * limit);
    }
    /// `idle` slots have nothing to do, because all of the window waits for its oldest answer. False when it may not
    /// grow.
    bool grow(std::uint32_t idle, std::uint32_t limit) noexcept {
        const std::uint32_t before = size(limit);
        grown_ = before + (options_.size > 0 ? 0 : idle);
        return size(limit) > before;
    }

    /// Whether one more request fits beside `under_way` others.
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
