#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "pipeline/store/store_writer.hpp"

namespace distilld {

/// The rows that a writer has, and its progress, for threads that must not wait while a shard is written. Any thread.
class HeldRows {
  public:
    explicit HeldRows(std::uint64_t rows) : held_(rows) {}

    [[nodiscard]] bool needs(std::uint64_t row) const {
        const std::lock_guard guard(mutex_);
        return row < held_.size() && !held_[row];
    }
    [[nodiscard]] StoreProgress progress() const {
        const std::lock_guard guard(mutex_);
        return progress_;
    }
    /// The needed rows of [first, end).
    [[nodiscard]] std::vector<std::uint64_t> needed(std::uint64_t first, std::uint64_t end) const {
        const std::lock_guard guard(mutex_);
        std::vector<std::uint64_t> rows;
        for (std::uint64_t row = first; row < end; ++row) {
            if (!held_[row]) {
                rows.push_back(row);
            }
        }
        return rows;
    }

    void add(std::uint64_t row) {
        const std::lock_guard guard(mutex_);
        held_[row] = true;
        ++progress_.held_rows;
    }
    /// Sets which rows of [first, end) are held. Call set() afterwards.
    void mark(std::uint64_t first, std::uint64_t end, const std::function<bool(std::uint64_t)>& is_held) {
        const std::lock_guard guard(mutex_);
        for (std::uint64_t row = first; row < end; ++row) {
            held_[row] = is_held(row);
        }
    }
    void set(const StoreProgress& progress) {
        const std::lock_guard guard(mutex_);
        progress_ = progress;
    }

  private:
    mutable std::mutex mutex_;
    std::vector<bool> held_;
    StoreProgress progress_;
};

}  // namespace distilld
