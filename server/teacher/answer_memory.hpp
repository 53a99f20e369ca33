#pragma once

#include <cstdint>
#include <memory>

namespace distilld::teacher {

/// The memory of answers in progress. On one executor.
class AnswerMemory {
  public:
    explicit AnswerMemory(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

    /// Counts an answer until the result is released, which may be after this object; null: none is left. A single
    /// answer is always accepted: its own limit was checked before.
    [[nodiscard]] std::shared_ptr<const void> hold(std::uint64_t bytes) {
        if (*held_ != 0 && *held_ + bytes > max_bytes_) {
            return nullptr;
        }
        *held_ += bytes;
        return {held_.get(), [total = held_, bytes](const void*) { *total -= bytes; }};
    }

  private:
    const std::uint64_t max_bytes_;
    std::shared_ptr<std::uint64_t> held_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace distilld::teacher
