#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "pipeline/store/store_writer.hpp"

namespace distilld {

/// Which rows a writer needs no more, and how far it is: asked by threads that shall not wait for a shard to be
/// written. Any thread.
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
    /// Those of [first, end) that are needed.
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
    /// Of [first, end). set() follows.
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
